"""Answers about attention: all heads of a layer, one head step by step, and what a head adds to the stream."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from triform.inspect import module_paths
from triform.inspect.attention_view import Formula as Written
from triform.inspect.labelled_array import MAX_ARRAY_NUMBERS
from triform.page import requests
from triform.page.rounding import check, listed, size, windowed, within
from triform.page.session import Looker, Need

OVERVIEW_CELLS = 128  # per side
NARROW = "request fewer with queries [from, to] and keys [from, to]"


def heads(session: Looker, request: requests.Heads) -> dict[str, Any]:
    need = needed(session, request)
    queries, keys = sides(session, request)
    count = session.model.spec.stacks[request.stack].attention.heads
    check((count, "heads"), (size(queries), "queries"), (size(keys), "keys"), narrow=f"{NARROW}, or for one head")
    view = session.view(request.run, need=need)
    result = view.attention(request.layer, kind=request.kind, stack=request.stack, queries=queries, keys=keys)
    return {"weights": listed(result.values), "error": result.error}


def formula(session: Looker, request: requests.Formula) -> dict[str, Any]:
    need = needed(session, request)
    queries, keys = sides(session, request)
    width = session.model.spec.stacks[request.stack].attention.head_width
    check((size(queries), "queries"), (size(keys), "keys"), narrow=NARROW)
    check((size(queries) + 2 * size(keys), "queries, keys and values"), (width, "wide"), narrow=NARROW)
    view = session.view(request.run, need=need)
    result = view.formula(request.layer, request.head, kind=request.kind, stack=request.stack, queries=queries)
    return written(result, keys) | {"scale": session.model.spec.stacks[request.stack].attention.score_scale}


def written(result: Written, keys: slice) -> dict[str, Any]:
    """Of the keys outside the window, only the sum of their weights."""
    outside = 1.0 - result.weights.values[:, keys].sum(axis=-1)
    return {
        "q": listed(result.q.values),
        "k": listed(result.k.values[keys]),
        "v": listed(result.v.values[keys]),
        "scores": listed(result.scores.values[:, keys]),
        "mask": listed(result.mask.values[:, keys]),
        "weights": listed(result.weights.values[:, keys]),
        "outside": listed(np.clip(outside, 0.0, 1.0)),
        "mixed": listed(result.mixed.values),
        "error": result.weights.error,
    }


def overview(session: Looker, request: requests.Overview) -> dict[str, Any]:
    view = session.view(request.run, need=needed(session, request))
    source = "encoder" if request.kind == "cross" else request.stack
    queries, keys = len(view.texts[request.stack].ids), len(view.texts[source].ids)
    step = max(1, -(-max(queries, keys) // OVERVIEW_CELLS))
    rows = step * max(1, MAX_ARRAY_NUMBERS // (step * keys))  # queries per chunk: whole squares
    chunks = []
    for first in range(0, queries, rows):
        chunk = slice(first, min(queries, first + rows))
        result = view.attention(request.layer, request.head, kind=request.kind, stack=request.stack, queries=chunk)
        chunks.append(largest(result.values, step))
    return {"step": step, "cells": listed(np.concatenate(chunks))}


def largest(weights: NDArray[Any], step: int) -> NDArray[Any]:
    """The maximum of each square of `step` × `step` weights."""
    down = np.maximum.reduceat(weights, np.arange(0, weights.shape[0], step), axis=0)
    return np.maximum.reduceat(down, np.arange(0, weights.shape[1], step), axis=1)


def added(session: Looker, request: requests.Added) -> dict[str, Any]:
    """before + this head + the other heads (+ bias) = after; vectors of width D."""
    view = session.view(request.run, need=needed(session, request))
    within(request.query, len(view.texts[request.stack].ids), "query")
    path = module_paths.attention_path(session.model.network, request.layer, kind=request.kind, stack=request.stack)
    module_paths.check_head(session.model.network, path, request.head)
    at = slice(request.query, request.query + 1)
    by_head = view.contributions(request.layer, kind=request.kind, stack=request.stack, positions=at).values[:, 0]
    ledger = view.ledger(request.layer, stack=request.stack, positions=at)
    names = list(ledger.axes[0].labels)
    upto = names.index(module_paths.PARTS[request.kind])
    before = ledger.values[:upto, 0].sum(axis=0)
    head, others = by_head[request.head], np.delete(by_head, request.head, axis=0).sum(axis=0)
    vectors = {"before": before, "head": head, "others": others, "after": before + ledger.values[upto, 0]}
    return {
        name: {"numbers": listed(vector), "length": float(f"{np.linalg.norm(vector):.5g}")}
        for name, vector in vectors.items()
    }


def needed(session: Looker, request: requests.LayerAsk) -> Need:
    """One block: the inputs of its attention kernel and what it added; blocks above it do not run."""
    module_paths.attention_path(session.model.network, request.layer, kind=request.kind, stack=request.stack)
    block = f"{request.stack}.blocks.{request.layer}"
    return Need(f"{block} {block}.*.attend {block}.*.out {block}.*.drop {block}.*.outer", block)


def sides(session: Looker, request: requests.Heads | requests.Formula) -> tuple[slice, slice]:
    """The requested queries and keys, checked before anything is computed."""
    texts = session.unread(request.run).texts
    source = "encoder" if request.kind == "cross" else request.stack
    return (
        windowed(request.queries, len(texts[request.stack].ids), "queries"),
        windowed(request.keys, len(texts[source].ids), "keys"),
    )
