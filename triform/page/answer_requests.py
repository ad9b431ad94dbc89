"""Answers to the requests of the page: plain values with few digits, of limited size, from views of a run."""

from collections.abc import Callable
from typing import Any

import msgspec

from triform.costs.predict import cache_bytes, cost
from triform.costs.roofline import crossovers
from triform.inspect import module_paths
from triform.inspect.model_answers import find_kind
from triform.inspect.view import View
from triform.page import (
    attention_answers,
    block_answers,
    position_answers,
    prediction_answers,
    requests,
    stream_answers,
)
from triform.page.diagram import make_diagram
from triform.page.prediction_answers import has_language_head
from triform.page.requests import AnyPageRequest
from triform.page.session import InspectionSession

COST_COLUMNS = ("stack", "name", "path", "lecture", "formula", "flops", "moved", "intensity", "parameters")


def answer_request(session: InspectionSession, request: AnyPageRequest) -> dict[str, Any]:
    with session.lock:
        return ANSWERS[type(request)](session, request)


def answer_start(session: InspectionSession, request: requests.StartRequest) -> dict[str, Any]:
    """What the page needs first: the diagram, the tokens, what the model can do."""
    model, view = session.model, session.view_tokens(request.run)
    return {
        "name": session.name,
        "diagram": msgspec.to_builtins(make_diagram(model.spec)),
        "position": type(model.spec.position).__name__.lower(),
        "dtype": view.dtype,
        "speaks": has_language_head(session),
        "writes": model.spec.decoder is not None and has_language_head(session),
        "embeds": find_kind(model) == "vector",
        "words": model.tokenizer is not None,
        "text": request.run.text,
        "target": request.run.target,
        "stacks": {
            name: {"tokens": list(tokens.labels), "ids": list(tokens.ids)} for name, tokens in view.texts.items()
        },
        "position_asked": find_first_position(session, view),
        "cache_bytes": cache_bytes(model.spec, 1, bytes_per_number=model.network.dtype.itemsize),
    }


def find_first_position(session: InspectionSession, view: View) -> int:
    """The position shown first: the mask if there is one; the start token of a target, which is generated to its end;
    otherwise the last token."""
    if session.has_target:
        return 0
    tokenizer, ids = session.output_tokenizer, view.predicted_text.ids
    if tokenizer is not None and tokenizer.mask in ids:
        return ids.index(tokenizer.mask)
    return len(ids) - 1


def answer_positions(session: InspectionSession, request: requests.PositionsRequest) -> dict[str, Any]:
    name = module_paths.check_stack(session.model.network, request.stack)
    stack = module_paths.find_stacks(session.model.network)[name]
    return position_answers.describe_positions(session.model.spec, stack, count=request.count)


def answer_costs(session: InspectionSession, request: requests.CostsRequest) -> dict[str, Any]:
    """The cost of one phase, operation by operation."""
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


ANSWERS: dict[type, Callable[[InspectionSession, Any], dict[str, Any]]] = {
    requests.StartRequest: answer_start,
    requests.HeadsRequest: attention_answers.answer_heads,
    requests.FormulaRequest: attention_answers.answer_formula,
    requests.BirdseyeRequest: attention_answers.answer_birdseye,
    requests.BlockRequest: block_answers.answer_block,
    requests.OverviewRequest: attention_answers.answer_overview,
    requests.AddedRequest: attention_answers.answer_added,
    requests.StreamRequest: stream_answers.answer_stream,
    requests.LensRequest: stream_answers.answer_lens,
    requests.ContextsRequest: stream_answers.answer_contexts,
    requests.PositionsRequest: answer_positions,
    requests.StepsRequest: prediction_answers.answer_steps,
    requests.AnswerRequest: prediction_answers.answer_prediction,
    requests.CostsRequest: answer_costs,
}
