"""Answers to what a page asks: plain values of a few digits, bounded, from looks at a run.

One function a question; attention and words have files of their own. Refuses to know how an answer is shown or sent.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from triform.costs.predict import cost
from triform.costs.roofline import crossovers
from triform.errors import InputError
from triform.inspect import module_paths
from triform.inspect.view import View
from triform.page import attention_answers, position_answers, prediction_answers, requests
from triform.page.diagram import diagram
from triform.page.prediction_answers import speaks
from triform.page.requests import AnyAsk
from triform.page.rounding import check, listed, size, windowed
from triform.page.session import Looker, streaming
from triform.page.word_in_contexts import contexts

MOST_LENSES = 32  # tokens: each place of each costs a head over the whole vocabulary


def answer(looker: Looker, question: AnyAsk) -> dict[str, Any]:
    with looker.lock:
        return ANSWERS[type(question)](looker, question)


def start(looker: Looker, asked: requests.Start) -> dict[str, Any]:
    model, view = looker.model, looker.unread(asked.run)
    return {
        "name": looker.name,
        "diagram": msgspec.to_builtins(diagram(model.spec)),
        "position": type(model.spec.position).__name__.lower(),
        "dtype": view.dtype,
        "speaks": speaks(looker),
        "writes": model.spec.decoder is not None and speaks(looker),
        "words": model.tokenizer is not None,
        "text": asked.run.text,
        "target": asked.run.target,
        "stacks": {
            name: {"tokens": list(tokens.labels), "ids": list(tokens.ids)} for name, tokens in view.texts.items()
        },
        "position_asked": position_of(looker, view),
        "cache_bytes": cache_bytes(looker),
    }


def position_of(looker: Looker, view: View) -> int:
    """Where the answer is read at first: at the mask where there is one; at the start token of a target, which the
    model has written to its end; else at the end."""
    if looker.pair:
        return 0
    tokenizer, ids = looker.words, view.answering.ids
    if tokenizer is not None and tokenizer.mask in ids:
        return ids.index(tokenizer.mask)
    return len(ids) - 1


def cache_bytes(looker: Looker) -> int:
    """Of one position: keys and values of every layer."""
    stack = looker.model.spec.decoder
    if stack is None:
        return 0
    a = stack.attention
    return 2 * stack.layers * a.kv_heads * a.head_width * looker.model.network.token.weight.element_size()


def stream(looker: Looker, asked: requests.Stream) -> dict[str, Any]:
    module_paths.stack_named(looker.model.network, asked.stack)
    view = looker.view(asked.run, need=streaming(asked.stack))
    tokens = windowed(asked.tokens, len(view.texts[asked.stack].ids), "tokens")
    layers = looker.model.spec.stacks[asked.stack].layers
    check((layers, "layers"), (size(tokens), "tokens"), (6, "entries"), narrow="ask for fewer tokens [from, to]")
    walk = view.stream(stack=asked.stack, positions=tokens)
    shares = [view.shares(layer, stack=asked.stack, positions=tokens) for layer in range(layers)]
    return {
        "places": list(walk.axes[0].labels),
        "lengths": listed(walk.lengths().values),
        "degrees": listed(view.angles(stack=asked.stack, positions=tokens).values),
        "entries": list(shares[0].axes[0].labels),
        "shares": listed(np.stack([each.values for each in shares])),
        "error": max(each.error or 0.0 for each in shares),
    }


def lens(looker: Looker, asked: requests.Lens) -> dict[str, Any]:
    view = looker.view(asked.run, need=streaming(list(looker.model.spec.stacks)[-1]))
    tokens = windowed(asked.tokens, len(view.answering.ids), "tokens")
    if size(tokens) > MOST_LENSES:
        raise InputError(f"the words of {size(tokens)} tokens are too many at once; ask for {MOST_LENSES} at most")
    found = view.lens(positions=tokens)
    words = [] if found.words is None else found.words.tolist()
    return {"places": list(found.axes[0].labels), "words": words, "chances": listed(found.values)}


def positions(looker: Looker, asked: requests.Positions) -> dict[str, Any]:
    name = module_paths.stack_named(looker.model.network, asked.stack)
    return position_answers.positions(
        looker.model.spec, module_paths.stacks_of(looker.model.network)[name], count=asked.count
    )


def costs(looker: Looker, asked: requests.Costs) -> dict[str, Any]:
    spec = looker.model.spec
    length = min(asked.length, spec.context)
    source = length if spec.form == "encoder-decoder" else None
    written = min(64, spec.context - length + 1) if asked.phase == "generation" else None
    found = cost(spec, phase=asked.phase, batch=asked.batch, length=length, source=source, new=written)
    rows = [
        {
            "stack": row.stack,
            "name": row.name,
            "path": row.path,
            "lecture": row.lecture,
            "formula": row.formula,
            "flops": row.flops,
            "moved": row.moved,
            "intensity": row.intensity,
            "parameters": row.parameters,
        }
        for row in found.operations
    ]
    return {
        "rows": rows,
        "load": msgspec.to_builtins(found.load),
        "memory": msgspec.to_builtins(found.memory) | {"total": found.memory.total},
        "flops": found.total.flops,
        "moved": found.total.moved,
        "crossovers": msgspec.to_builtins(crossovers(spec)),
    }


ANSWERS: dict[type, Callable[[Looker, Any], dict[str, Any]]] = {
    requests.Start: start,
    requests.Heads: attention_answers.heads,
    requests.Formula: attention_answers.formula,
    requests.Overview: attention_answers.overview,
    requests.Added: attention_answers.added,
    requests.Stream: stream,
    requests.Lens: lens,
    requests.Contexts: contexts,
    requests.Positions: positions,
    requests.Steps: prediction_answers.steps,
    requests.Answer: prediction_answers.said,
    requests.Costs: costs,
}
