"""The page of one run as one self-contained HTML file, with its modules and the answers to likely requests inlined.

It works offline. Its content-security policy allows only this package's modules, by their hashes; texts are data, never
markup.
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
from triform.inspect.module_paths import AttentionKind, StackName
from triform.page import requests
from triform.page.answer_requests import answer_request
from triform.page.requests import AnyPageRequest, Interventions, OffHead, PageRun
from triform.page.session import MAX_TARGET_TOKENS, InspectionSession
from triform.parameters import count_parameters

WINDOW = 32  # tokens that the page shows at once: the same number is in state.js
LENS_TOKENS = 12
MAX_ANSWER_BYTES = 12_000_000  # the least likely requests are left out
MAX_ABLATION_FLOPS = 4e10  # for answers with one head off: half a minute on a slow machine
CONTEXTS = {
    "mole": ("The European mole is a mammal", "Take a biopsy of the mole", "One mole of carbon dioxide"),
    "lion": ("lion", "sea lion", "sea lion cuddly toy"),
}
STATIC = files("triform.page") / "static"
STYLE = '<link rel="stylesheet" href="page/style.css">'
SCRIPT = '<script type="module" src="page/main.js"></script>'
IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function|const|class|let) (\w+)", re.MULTILINE)


def render_file(
    session: InspectionSession, run: PageRun, *, lessons: dict[str, Any] | None = None, most: int | None = None
) -> str:
    """The page of one run as one HTML file, with `lessons` if given; `most`: bytes of answers."""
    style, script = read_static("style.css"), bundle_modules("main.js")
    sources = f"script-src {csp_hash(script)}; style-src {csp_hash(style)}"
    policy = f"default-src 'none'; {sources}; img-src data:; base-uri 'none'"
    held: dict[str, Any] = {"name": session.name, "text": run.text, "target": run.target, "lessons": lessons}
    held["answers"] = list(list_answers(session, run, most=MAX_ANSWER_BYTES if most is None else most))
    data = msgspec.json.encode(held).decode()
    inert = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n'
        f'<script type="application/json" id="answers">{inert}</script>'
    )
    body = f'</noscript>\n<script type="module">{script}</script>'  # last, so that the page is there when it runs
    return read_static("index.html").replace(STYLE, head).replace(SCRIPT + "\n", "").replace("</noscript>", body)


def csp_hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


# --- modules ------------------------------------------------------------------------------------------------------


def read_static(name: str) -> str:
    return STATIC.joinpath(*name.split("/")).read_text(encoding="utf-8")


@cache
def bundle_modules(main: str) -> str:
    """All modules in dependency order, each as a function that returns its exports."""
    done: dict[str, str] = {}

    def add(name: str) -> None:
        source = read_static(name)
        for _, path in IMPORT.findall(source):
            if resolve_import(name, path) not in done:
                add(resolve_import(name, path))
        done[name] = wrap_module(name, source)

    add(main)
    return "const modules = {};\n" + "\n".join(done.values())


def wrap_module(name: str, source: str) -> str:
    """A JavaScript module as an expression that defines it inside one file."""

    def taken(result: re.Match[str]) -> str:
        return f'const {{{result[1]}}} = modules["{resolve_import(name, result[2])}"];'

    gives = ", ".join(EXPORT.findall(source))
    body = re.sub(r"^export ", "", IMPORT.sub(taken, source), flags=re.MULTILINE)
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {gives} }};\n}})();'


def resolve_import(name: str, path: str) -> str:
    """`../dom.js` imported by `views/flow.js` is `dom.js`."""
    parts = [*name.split("/")[:-1], *path.split("/")]
    while ".." in parts:
        at = parts.index("..")
        del parts[at - 1 : at + 1]
    return "/".join(part for part in parts if part != ".")


# --- answers ------------------------------------------------------------------------------------------------------


def list_answers(session: InspectionSession, run: PageRun, *, most: int) -> Iterator[tuple[Any, Any]]:
    """Requests with their answers, until the file is full; without the text, which is the same in all."""
    left = most
    for request in list_requests(session, run):
        try:
            result = answer_request(session, request)
        except TriformError:
            if isinstance(request, requests.StartRequest):
                raise
            continue  # a word that does not occur, a phase this form does not have: the page reports it
        body = msgspec.to_builtins(request)
        if "run" in body:
            body["run"] |= {"text": "", "target": ""}
        left -= len(msgspec.json.encode((body, result)))
        if left < 0:
            return
        yield body, result


def list_requests(session: InspectionSession, run: PageRun) -> Iterator[AnyPageRequest]:
    """The requests of a reader, the likeliest first."""
    start = requests.StartRequest(run=run)
    yield start
    begun = answer_request(session, start)
    counts = {name: len(stack["tokens"]) for name, stack in begun["stacks"].items()}
    names = [cast(StackName, name) for name in counts]
    last = names[-1]
    for phase in get_args(Phase):
        yield requests.CostsRequest(phase=phase, length=min(128, session.model.spec.context))
    for length in cost_lengths(session.model.spec.context):
        yield requests.CostsRequest(phase="reading", length=length)
    yield requests.StepsRequest(run=run, count=MAX_TARGET_TOKENS if session.has_target else 16)
    yield requests.StepsRequest(run=run, count=count_generated_tokens(session))
    yield requests.LensRequest(run=run, tokens=(max(0, counts[last] - LENS_TOKENS), counts[last]))
    for word, texts in CONTEXTS.items():
        yield requests.ContextsRequest(texts=texts, word=word)
    for stack in names:
        yield requests.PositionsRequest(stack=stack)
    for position in sorted({begun["position_asked"], *range(min(counts[last], 4 * WINDOW))}):
        yield requests.AnswerRequest(run=run, position=position)
    for stack in names:
        for window in split_windows(counts[stack]):
            yield requests.StreamRequest(run=run, stack=stack, tokens=window)
    yield requests.BirdseyeRequest(run=run)
    yield from list_attention_requests(session, run, counts)
    for stack in names:
        for layer in range(session.model.spec.stacks[stack].layers):
            for query in range(min(WINDOW, counts[stack])):
                yield requests.BlockRequest(run=run, stack=stack, layer=layer, query=query)
    yield from list_ablation_requests(session, run, counts[last])


def cost_lengths(context: int) -> list[int]:
    """The lengths for which the page draws costs."""
    return [*(n for n in (2**power for power in range(4, 14)) if n < context), context][:10]


def split_windows(count: int) -> list[tuple[int, int]]:
    return [(first, min(count, first + WINDOW)) for first in range(0, count, WINDOW)]


class AttentionLayer(NamedTuple):
    """One attention layer of the model."""

    stack: StackName
    kind: AttentionKind
    layer: int
    heads: int


def list_attention_layers(session: InspectionSession) -> Iterator[AttentionLayer]:
    """All attention layers of a model, by stack and kind."""
    for stack, spec in session.model.spec.stacks.items():
        kinds: tuple[AttentionKind, ...] = ("self", "cross") if stack == "decoder" and session.has_target else ("self",)
        for kind in kinds:
            for layer in range(spec.layers):
                yield AttentionLayer(cast(StackName, stack), kind, layer, spec.attention.heads)


def list_attention_requests(
    session: InspectionSession, run: PageRun, counts: dict[str, int]
) -> Iterator[AnyPageRequest]:
    """Every head of every layer, window by window; then what each head adds."""
    for at in range(max(len(split_windows(count)) for count in counts.values())):
        for kernel in list_attention_layers(session):
            yield from list_window_requests(run, kernel, counts, at)
    for stack, kind, layer, heads in list_attention_layers(session):
        for head in range(heads):
            for query in range(min(WINDOW, counts[stack])):
                yield requests.AddedRequest(run=run, stack=stack, kind=kind, layer=layer, head=head, query=query)


def list_window_requests(
    run: PageRun, kernel: AttentionLayer, counts: dict[str, int], at: int
) -> Iterator[AnyPageRequest]:
    """The requests for one window of queries of an attention layer."""
    stack, kind, layer, heads = kernel
    of_queries, of_keys = split_windows(counts[stack]), split_windows(counts["encoder" if kind == "cross" else stack])
    if at >= len(of_queries):
        return
    queries, keys = of_queries[at], of_keys[at if kind == "self" else 0]
    yield requests.HeadsRequest(run=run, stack=stack, kind=kind, layer=layer, queries=queries, keys=keys)
    for head in range(heads):
        yield requests.FormulaRequest(
            run=run, stack=stack, kind=kind, layer=layer, head=head, queries=queries, keys=keys
        )
        if len(of_queries) > 1 and at == 0:
            yield requests.OverviewRequest(run=run, stack=stack, kind=kind, layer=layer, head=head)


def list_ablation_requests(session: InspectionSession, run: PageRun, tokens: int) -> Iterator[AnyPageRequest]:
    """One head off at a time, if the model is small enough for so many passes."""
    heads = [
        OffHead(stack=stack, kind=kind, layer=layer, head=head)
        for stack, kind, layer, count in list_attention_layers(session)
        for head in range(count)
    ]
    if 2 * count_parameters(session.model.spec) * tokens * len(heads) * 3 > MAX_ABLATION_FLOPS:
        return
    place = answer_request(session, requests.StartRequest(run=run))["position_asked"]
    for head in heads:
        off = msgspec.structs.replace(run, change=Interventions(heads=(head,)))
        yield requests.AnswerRequest(run=off, position=place)
        yield requests.StepsRequest(run=off, count=count_generated_tokens(session))


def count_generated_tokens(session: InspectionSession) -> int:
    """Tokens that the page's Interventions view generates: the whole target, or the next few of a decoder."""
    return MAX_TARGET_TOKENS if session.has_target else 8
