"""Answers to the requests of the page: plain values with few digits, of limited size, from views of a run."""

from collections.abc import Callable
from typing import Any

import msgspec

from triform.costs.predict import cache_bytes_per_position, cost
from triform.costs.roofline import crossovers
from triform.inspect import module_paths
from triform.inspect.view import View
from triform.page import attention_answers, position_answers, prediction_answers, requests, stream_answers
from triform.page.diagram import diagram
from triform.page.prediction_answers import speaks
from triform.page.requests import AnyAsk
from triform.page.session import Looker

COST_COLUMNS = ("stack", "name", "path", "lecture", "formula", "flops", "moved", "intensity", "parameters")


def answer(session: Looker, request: AnyAsk) -> dict[str, Any]:
    with session.lock:
        return ANSWERS[type(request)](session, request)


def start(session: Looker, request: requests.Start) -> dict[str, Any]:
    model, view = session.model, session.unread(request.run)
    return {
        "name": session.name,
        "diagram": msgspec.to_builtins(diagram(model.spec)),
        "position": type(model.spec.position).__name__.lower(),
        "dtype": view.dtype,
        "speaks": speaks(session),
        "writes": model.spec.decoder is not None and speaks(session),
        "words": model.tokenizer is not None,
        "text": request.run.text,
        "target": request.run.target,
        "stacks": {
            name: {"tokens": list(tokens.labels), "ids": list(tokens.ids)} for name, tokens in view.texts.items()
        },
        "position_asked": position_of(session, view),
        "cache_bytes": cache_bytes_per_position(model.spec, number=model.network.token.weight.element_size()),
    }


def position_of(session: Looker, view: View) -> int:
    """The position shown first: the mask if there is one; the start token of a target, which is generated to its end;
    otherwise the last token."""
    if session.pair:
        return 0
    tokenizer, ids = session.words, view.answering.ids
    if tokenizer is not None and tokenizer.mask in ids:
        return ids.index(tokenizer.mask)
    return len(ids) - 1


def positions(session: Looker, request: requests.Positions) -> dict[str, Any]:
    name = module_paths.stack_named(session.model.network, request.stack)
    stack = module_paths.stacks_of(session.model.network)[name]
    return position_answers.positions(session.model.spec, stack, count=request.count)


def costs(session: Looker, request: requests.Costs) -> dict[str, Any]:
    spec = session.model.spec
    length = min(request.length, spec.context)
    source = length if spec.form == "encoder-decoder" else None
    new = min(64, spec.context - length + 1) if request.phase == "generation" else None
    result = cost(spec, phase=request.phase, batch=request.batch, length=length, source=source, new=new)
    return {
        "rows": [{name: getattr(row, name) for name in COST_COLUMNS} for row in result.operations],
        "load": msgspec.to_builtins(result.load),
        "memory": msgspec.to_builtins(result.memory) | {"total": result.memory.total},
        "flops": result.total.flops,
        "moved": result.total.moved,
        "crossovers": msgspec.to_builtins(crossovers(spec)),
    }


ANSWERS: dict[type, Callable[[Looker, Any], dict[str, Any]]] = {
    requests.Start: start,
    requests.Heads: attention_answers.heads,
    requests.Formula: attention_answers.formula,
    requests.Overview: attention_answers.overview,
    requests.Added: attention_answers.added,
    requests.Stream: stream_answers.stream,
    requests.Lens: stream_answers.lens,
    requests.Contexts: stream_answers.contexts,
    requests.Positions: positions,
    requests.Steps: prediction_answers.steps,
    requests.Answer: prediction_answers.said,
    requests.Costs: costs,
}
