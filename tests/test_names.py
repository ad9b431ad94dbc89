"""Names and words that an engineer of the field can read: held by figures over `triform/`, printed with `pytest -s`."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = sorted((ROOT / "triform").rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE}
# Shares of functions. They may only get better.
MAX_PARTICIPLES, MIN_VERB_FIRST = 0.01, 0.7
MAX_WITHOUT_DOCSTRING = 0
SHORT_FUNCTION_LINES = 3  # of a body that needs no docstring


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Functions that build what they are named after; to be called as a constructor is.
CONSTRUCTOR_NOUNS = frozenset(("main", "app", "skeleton", "sinusoid", "alibi", "rotary", "figure", "bars", "heat"))
# Conversions, alternative constructors and context managers that read as a phrase: `with_mask`, `from_toml`, `to_json`.
PREPOSITIONS = frozenset(("as", "by", "for", "from", "in", "into", "of", "on", "to", "with", "without"))
IRREGULAR = words(
    """been begun bent born bought bound broken brought built caught chosen done drawn driven fallen felt forgotten
    found frozen given gone grown held hidden hung kept known laid led left lent lost made meant met paid proven
    rewritten said seen sent shown sold spent spoken stood taken taught thought thrown told understood unwritten worn
    written"""
)
NOT_PARTICIPLES = words("bed bleed embed exceed feed heed need proceed seed shed speed succeed")
VERBS = words(
    """abort accept accumulate acquire activate adapt add adjust admit advance aggregate align allocate allow annotate
    answer append apply argue arrange ask assemble assert assign attach attend average await backward balance begin
    bind blend block borrow bound break bring broadcast buffer build bundle cache calculate calibrate call can
    cancel cast catch center change chat check choose chunk clamp classify clean clear clip clone close collapse
    collate collect combine compare compile complete compress compute concatenate configure connect consume contain
    continue convert copy correct count cover create crop cut decide decode decorate decrypt deduplicate define delay
    delete deliver dequantize derive describe deserialize detach detect determine dig disable discard display divide
    do download draft drain draw drop dump edit embed emit enable encode encrypt end ensure enter enumerate erase
    escape estimate evaluate examine exchange execute exit expand expect explain export extend extract fail feed fetch
    fill filter find finish fit fix flatten flush fold follow forecast forget fork format forward free freeze freshen
    gather generate get give go group grow guard guess handle has hash have hide highlight hold identify ignore import
    include increase index infer inform initialize inject insert inspect install interleave interrupt intersect
    intervene invoke is iterate join judge keep label launch lay learn leave let limit link lint list listen load
    locate lock log look make map mark mask match materialize measure merge mix mock modify monitor move mutate
    name need negate normalize normalise note notice notify number observe open order outline overlay pack pad paint
    park parse partition pass patch pause penalize penalise perform permute pick place plan plot pool pop post predict
    prefill prepare present preserve press print probe process produce project propose protect prove prune pull push
    put quantize query quit quote raise rank rate read rebuild recall receive recompute reconnect record recover
    redirect reduce refer refill refresh refuse register rehearse reject relabel release reload remember remove rename
    render reorder repair repeat replace replay reply report request require rescale reserve reset resize resolve
    respond restore resume retain retrieve retry return reuse reverse revert rewind rewrite roll rotate round route run
    sample sanitize save say scale scan schedule score search see select send serialize serve set shard sharpen shed
    shift ship shorten show shrink shuffle shut sign silence simplify simulate skip slice smooth sniff snapshot solve
    sort spend split spot stack start step stop store stream strip submit substitute suggest sum summarize supports
    suspend swap switch sync tag take tap tell test throw tie tokenize toggle touch trace track train transfer
    transform translate transpose traverse trim truncate try tune turn unfold unload unpack unregister unwrap update
    upload use validate vary verify view visit wait wake walk warm warn watch weigh wind wrap write yield"""
)
# Nouns as much as verbs: they count as verbs before an object (`number_folds`), not alone and not as in `cache_for`.
AMBIGUOUS = words(
    """batch block bound buffer cache chunk class group index label limit line list log map mark mask name note number
    order place plan pool process project query rank rate record report request route scale schedule score sign slice
    stack stream sum tag time turn view"""
)


class Named(NamedTuple):
    """A function's own name, and where it stands."""

    name: str
    place: str


def decorated(node: ast.FunctionDef | ast.AsyncFunctionDef, kinds: str) -> bool:
    return any(re.search(kinds, ast.unparse(each)) for each in node.decorator_list)


def functions() -> list[Named]:
    """All that a caller calls by a verb: no dunders, properties, overloads, commands."""
    return [
        Named(node.name.strip("_"), f"{path.relative_to(ROOT)}:{node.lineno}")
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("__")
        and not decorated(node, r"property|overload|setter|command|group")
    ]


def is_bare_participle(name: str) -> bool:
    """One word that says what was done, and not what to do: `laid`, `seated`."""
    return name in IRREGULAR or (re.fullmatch(r"[a-z]+ed", name) is not None and name not in NOT_PARTICIPLES)


def is_verb_first(name: str) -> bool:
    first, *rest = name.split("_")
    return first in VERBS and (first not in AMBIGUOUS or bool(rest and rest[0] not in PREPOSITIONS))


def is_constructor(named: Named) -> bool:
    first = named.name.split("_")[0]
    return named.place.startswith("triform/families.py") or named.name in CONSTRUCTOR_NOUNS or first in PREPOSITIONS


def some(found: list[Named], count: int = 40) -> str:
    return ", ".join(f"{each.name} ({each.place})" for each in found[:count])


def qualified_classes(node: ast.AST, outer: str = "") -> Iterator[str]:
    """`Classify`, and `Classify.Options` for a class inside it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield outer + child.name
            yield from qualified_classes(child, f"{outer}{child.name}.")
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from qualified_classes(child, outer)


def test_a_class_name_is_defined_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in TREES.items():
        for name in qualified_classes(tree):
            places[name].append(str(path.relative_to(ROOT)))
    twice = {name: at for name, at in sorted(places.items()) if len(at) > 1}
    print(f"class names: {len(places)}, defined more than once: {len(twice)}")
    assert not twice, "\n".join(f"{name}: {', '.join(at)}" for name, at in twice.items())


def test_functions_are_not_bare_participles() -> None:
    every = functions()
    found = [each for each in every if is_bare_participle(each.name)]
    print(f"bare participles: {len(found)} of {len(every)} functions, {len(found) / len(every):.1%}")
    assert len(found) <= MAX_PARTICIPLES * len(every), some(found, 400)


def test_functions_begin_with_a_verb() -> None:
    every = [each for each in functions() if not is_constructor(each)]
    others = [each for each in every if not is_verb_first(each.name)]
    share = 1 - len(others) / len(every)
    print(f"verb first: {share:.1%} of {len(every)} functions")
    assert share >= MIN_VERB_FIRST, f"{share:.1%} begin with a verb; not these: {some(others, 400)}"


def test_public_functions_and_classes_have_docstrings() -> None:
    """Except functions so short that their one expression is their sentence."""
    public = [
        (path, node)
        for path, tree in TREES.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
    missing = [(path, node) for path, node in public if not ast.get_docstring(node)]
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path, node in missing
        if isinstance(node, ast.ClassDef) or (node.end_lineno or 0) - node.body[0].lineno >= SHORT_FUNCTION_LINES
    ]
    print(f"public without a docstring: {len(missing)} of {len(public)}, {len(long)} of them classes or not short")
    assert len(long) <= MAX_WITHOUT_DOCSTRING, "\n".join(long)


# --- words in what a user reads ------------------------------------------------------------------------------------

BANNED = [
    r"nobod(?:y|ies)", r"whoever", r"who asks", r"those who", r"numbers that are none", r"first numbers",
    r"gives? no sign", r"liked", r"likes? to write", r"shelf", r"box", r"roads? users walk", r"lent", r"seated",
    r"abreast", r"portions?", r"begin anew", r"as may", r"(?:make|enough) room", r"(?:only|or|long:) so many",
    r"so-manieth", r"asks meanwhile", r"what a person can mend",
    r"(?<!first )(?<!second )(?<!third )(?<!three )doors?",  # of positions there are three
    # the distributive "a": "one label a token"
    r"(?<!the )(?:one|two|three|\d+)(?: (?!what|that|which)\w+)? an? (?:token|row|line|text|step|layer|head)",
    r"(?<!the )(?:one|two|three|\d+)(?: (?!what|that|which)\w+)? an? (?:request|model|pass|position|sequence)",
    r"a (?:line|text|label|row|token|file|model) an? (?:line|text|row|token|label|model|task|second)",
]  # fmt: skip
DIALECT = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)
LOGS = {"lab.md", "decisions.md", "CHANGELOG.md"}  # what was done once


def strings_in(node: ast.AST) -> Iterator[ast.Constant]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Help texts of options and commands, and what a raised error says."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from ((each.lineno, each.value) for each in strings_in(node.exc))
        elif isinstance(node, ast.Call):
            helps = [word.value for word in node.keywords if word.arg in ("help", "short_help", "epilog")]
            yield from ((each.lineno, each.value) for text in helps for each in strings_in(text))
        elif isinstance(node, ast.FunctionDef) and decorated(node, r"command|group"):
            yield node.lineno, ast.get_docstring(node) or ""


def dialect_in(text: str, place: str) -> list[str]:
    return [f"{place}: {found.group()!r} in “{text[max(0, found.start() - 40) : found.end() + 40]}”".replace("\n", " ")
            for found in DIALECT.finditer(text)]  # fmt: skip


def test_messages_and_help_are_in_plain_words() -> None:
    found = [
        line
        for path, tree in TREES.items()
        for number, text in messages(tree)
        for line in dialect_in(text, f"{path.relative_to(ROOT)}:{number}")
    ]
    print(f"dialect in messages and help: {len(found)}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "path",
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))],
    ids=lambda path: path.name,
)
def test_documents_are_in_plain_words(path: Path) -> None:
    if path.name in LOGS:
        pytest.skip("a log of what was done")
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    found = [line for number, text in lines for line in dialect_in(text, f"{path.name}:{number}")]
    print(f"dialect in {path.name}: {len(found)}")
    assert not found, "\n".join(found)
