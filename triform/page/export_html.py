"""One self-contained file: the page, its modules and the answers to what a reader may ask of one run, inlined.

It works from disk, offline. Nothing runs in it but the modules of this package, held by the hashes of its
content-security policy; texts are data, never markup. Refuses to know HTTP.
"""

import base64
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, cast, get_args

import msgspec

from triform.costs.workload import Phase
from triform.errors import TriformError
from triform.inspect.module_paths import Kind, StackName
from triform.page import requests
from triform.page.answer_requests import answer
from triform.page.requests import AnyAsk, Change, OffHead, Run
from triform.page.session import WRITTEN, Looker
from triform.parameters import parameters

WINDOW = 32  # tokens a page shows at once: the same number is in state.js
LENS = 12
POLICY = "img-src data:; base-uri 'none'; form-action 'none'"
MOST_BYTES = 12_000_000  # of answers; what a reader would ask for last is left out
MOST_FLOPS = 4e10  # for answers with one head off, half a minute on a slow machine
CONTEXTS = {
    "mole": ("The European mole is a mammal", "Take a biopsy of the mole", "One mole of carbon dioxide"),
    "lion": ("lion", "sea lion", "sea lion cuddly toy"),
}
STATIC = files("triform.page") / "static"
STYLE = '<link rel="stylesheet" href="page/style.css">'
SCRIPT = '<script type="module" src="page/main.js"></script>'
IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function|const|class|let) (\w+)", re.MULTILINE)


def page_file(looker: Looker, run: Run, *, lessons: dict[str, Any] | None = None) -> str:
    """The page of one run as a single HTML file; `lessons` are those of the lectures, where they are to be in it."""
    style, script = static("style.css"), bundle("main.js")
    policy = (
        f"default-src 'none'; script-src {hashed(script)}; style-src {hashed(style)}; img-src data:; base-uri 'none'"
    )
    held: dict[str, Any] = {"name": looker.name, "text": run.text, "target": run.target, "lessons": lessons}
    held["answers"] = list(answered(looker, run))
    data = msgspec.json.encode(held).decode()
    inert = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n'
        f'<script type="application/json" id="answers">{inert}</script>'
    )
    body = f'</noscript>\n<script type="module">{script}</script>'  # last, so that the page is there when it runs
    return static("index.html").replace(STYLE, head).replace(SCRIPT + "\n", "").replace("</noscript>", body)


def hashed(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


# --- modules ------------------------------------------------------------------------------------------------------


def static(name: str) -> str:
    return STATIC.joinpath(*name.split("/")).read_text(encoding="utf-8")


@cache
def bundle(main: str) -> str:
    """The modules in the order they need each other, each in a scope of its own that gives back its exports."""
    done: dict[str, str] = {}

    def add(name: str) -> None:
        source = static(name)
        for _, path in IMPORT.findall(source):
            if resolved(name, path) not in done:
                add(resolved(name, path))
        done[name] = scoped(name, source)

    add(main)
    return "const modules = {};\n" + "\n".join(done.values())


def scoped(name: str, source: str) -> str:
    def taken(found: re.Match[str]) -> str:
        return f'const {{{found[1]}}} = modules["{resolved(name, found[2])}"];'

    gives = ", ".join(EXPORT.findall(source))
    body = re.sub(r"^export ", "", IMPORT.sub(taken, source), flags=re.MULTILINE)
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {gives} }};\n}})();'


def resolved(name: str, path: str) -> str:
    """`../dom.js` seen from `views/flow.js` is `dom.js`."""
    parts = [*name.split("/")[:-1], *path.split("/")]
    while ".." in parts:
        at = parts.index("..")
        del parts[at - 1 : at + 1]
    return "/".join(part for part in parts if part != ".")


# --- answers ------------------------------------------------------------------------------------------------------


def answered(looker: Looker, run: Run) -> Iterator[tuple[Any, Any]]:
    """Questions with their answers until the file is full; in them the text is left out, for there is only one."""
    room = MOST_BYTES
    for question in worth(looker, run):
        try:
            found = answer(looker, question)
        except TriformError:
            if isinstance(question, requests.Start):
                raise
            continue  # a word that is not there, a phase the form does not have: the page says so where it is asked
        asked = msgspec.to_builtins(question)
        if "run" in asked:
            asked["run"] |= {"text": "", "target": ""}
        room -= len(msgspec.json.encode((asked, found)))
        if room < 0:
            return
        yield asked, found


def worth(looker: Looker, run: Run) -> Iterator[AnyAsk]:
    """What a reader would ask first comes first."""
    start = requests.Start(run=run)
    yield start
    begun = answer(looker, start)
    counts = {name: len(one["tokens"]) for name, one in begun["stacks"].items()}
    names = [cast(StackName, name) for name in counts]
    last = names[-1]
    for phase in get_args(Phase):
        yield requests.Costs(phase=phase, length=min(128, looker.model.spec.context))
    for length in lengths(looker.model.spec.context):
        yield requests.Costs(phase="reading", length=length)
    yield requests.Steps(run=run, count=WRITTEN if looker.pair else 16)
    yield requests.Steps(run=run, count=rewritten(looker))
    yield requests.Lens(run=run, tokens=(max(0, counts[last] - LENS), counts[last]))
    for word, texts in CONTEXTS.items():
        yield requests.Contexts(texts=texts, word=word)
    for stack in names:
        yield requests.Positions(stack=stack)
    for position in sorted({begun["position_asked"], *range(min(counts[last], 4 * WINDOW))}):
        yield requests.Answer(run=run, position=position)
    for stack in names:
        for window in windows(counts[stack]):
            yield requests.Stream(run=run, stack=stack, tokens=window)
    yield from attention(looker, run, counts)
    yield from silenced(looker, run, counts[last])


def lengths(context: int) -> list[int]:
    """Those that the page draws costs for."""
    return [*(n for n in (2**power for power in range(4, 14)) if n < context), context][:10]


def windows(count: int) -> list[tuple[int, int]]:
    return [(first, min(count, first + WINDOW)) for first in range(0, count, WINDOW)]


class Kernel(NamedTuple):
    """An attention of the model."""

    stack: StackName
    kind: Kind
    layer: int
    heads: int


def kernels(looker: Looker) -> Iterator[Kernel]:
    for stack, spec in looker.model.spec.stacks.items():
        kinds: tuple[Kind, ...] = ("self", "cross") if stack == "decoder" and looker.pair else ("self",)
        for kind in kinds:
            for layer in range(spec.layers):
                yield Kernel(cast(StackName, stack), kind, layer, spec.attention.heads)


def attention(looker: Looker, run: Run, counts: dict[str, int]) -> Iterator[AnyAsk]:
    """Window by window, every head of every layer; then what each adds."""
    for at in range(max(len(windows(count)) for count in counts.values())):
        for kernel in kernels(looker):
            yield from windowed(run, kernel, counts, at)
    for stack, kind, layer, heads in kernels(looker):
        for head in range(heads):
            for query in range(min(WINDOW, counts[stack])):
                yield requests.Added(run=run, stack=stack, kind=kind, layer=layer, head=head, query=query)


def windowed(run: Run, kernel: Kernel, counts: dict[str, int], at: int) -> Iterator[AnyAsk]:
    stack, kind, layer, heads = kernel
    asking, answering = windows(counts[stack]), windows(counts["encoder" if kind == "cross" else stack])
    if at >= len(asking):
        return
    queries, keys = asking[at], answering[at if kind == "self" else 0]
    yield requests.Heads(run=run, stack=stack, kind=kind, layer=layer, queries=queries, keys=keys)
    for head in range(heads):
        yield requests.Formula(run=run, stack=stack, kind=kind, layer=layer, head=head, queries=queries, keys=keys)
        if len(asking) > 1 and at == 0:
            yield requests.Overview(run=run, stack=stack, kind=kind, layer=layer, head=head)


def silenced(looker: Looker, run: Run, tokens: int) -> Iterator[AnyAsk]:
    """One head off at a time, where the model is small enough for so many passes."""
    heads = [
        OffHead(stack=stack, kind=kind, layer=layer, head=head)
        for stack, kind, layer, count in kernels(looker)
        for head in range(count)
    ]
    if 2 * parameters(looker.model.spec) * tokens * len(heads) * 3 > MOST_FLOPS:
        return
    place = answer(looker, requests.Start(run=run))["position_asked"]
    for head in heads:
        off = msgspec.structs.replace(run, change=Change(heads=(head,)))
        yield requests.Answer(run=off, position=place)
        yield requests.Steps(run=off, count=rewritten(looker))


def rewritten(looker: Looker) -> int:
    """Tokens that the page's Interventions writes: the whole target, or the next few of a decoder."""
    return WRITTEN if looker.pair else 8
