"""Answers about attention: all heads of a layer, one head step by step, and what a head adds to the stream."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from triform.inspect import module_paths
from triform.inspect.attention_view import HeadFormula as Written
from triform.inspect.head_numbers import MAX_TOKENS, describe_heads
from triform.inspect.labelled_array import MAX_ARRAY_NUMBERS
from triform.inspect.module_paths import AttentionKind, StackName
from triform.page import requests
from triform.page.rounding import check_count, check_position, check_window, count_positions, round_to_lists
from triform.page.session import InspectionSession, NeededModules

OVERVIEW_CELLS = 128  # per side
NARROW = "request fewer with queries [from, to] and keys [from, to]"


def answer_heads(session: InspectionSession, request: requests.HeadsRequest) -> dict[str, Any]:
    """The attention weights of all heads of a layer."""
    need = find_needed_modules(session, request)
    queries, keys = check_sides(session, request)
    count = session.model.spec.stacks[request.stack].attention.heads
    check_count(
        (count, "heads"),
        (count_positions(queries), "queries"),
        (count_positions(keys), "keys"),
        narrow=f"{NARROW}, or for one head",
    )
    view = session.view(request.run, need=need)
    result = view.attention(request.layer, kind=request.kind, stack=request.stack, queries=queries, keys=keys)
    return {"weights": round_to_lists(result.values), "error": result.error}


def answer_formula(session: InspectionSession, request: requests.FormulaRequest) -> dict[str, Any]:
    """The attention formula of one head, step by step."""
    need = find_needed_modules(session, request)
    queries, keys = check_sides(session, request)
    width = session.model.spec.stacks[request.stack].attention.head_width
    check_count((count_positions(queries), "queries"), (count_positions(keys), "keys"), narrow=NARROW)
    check_count(
        (count_positions(queries) + 2 * count_positions(keys), "queries, keys and values"),
        (width, "wide"),
        narrow=NARROW,
    )
    view = session.view(request.run, need=need)
    result = view.formula(request.layer, request.head, kind=request.kind, stack=request.stack, queries=queries)
    return list_formula(result, keys) | {"scale": session.model.spec.stacks[request.stack].attention.score_scale}


def list_formula(result: Written, keys: slice) -> dict[str, Any]:
    """Of the keys outside the window, only the sum of their weights."""
    outside = 1.0 - result.weights.values[:, keys].sum(axis=-1)
    return {
        "q": round_to_lists(result.q.values),
        "k": round_to_lists(result.k.values[keys]),
        "v": round_to_lists(result.v.values[keys]),
        "scores": round_to_lists(result.scores.values[:, keys]),
        "mask": round_to_lists(result.mask.values[:, keys]),
        "weights": round_to_lists(result.weights.values[:, keys]),
        "outside": round_to_lists(np.clip(outside, 0.0, 1.0)),
        "mixed": round_to_lists(result.mixed.values),
        "error": result.weights.error,
    }


def answer_overview(session: InspectionSession, request: requests.OverviewRequest) -> dict[str, Any]:
    """The attention weights of one head, coarsened to fit a screen."""
    view = session.view(request.run, need=find_needed_modules(session, request))
    source = "encoder" if request.kind == "cross" else request.stack
    queries, keys = len(view.texts[request.stack].ids), len(view.texts[source].ids)
    step = max(1, -(-max(queries, keys) // OVERVIEW_CELLS))
    rows = step * max(1, MAX_ARRAY_NUMBERS // (step * keys))  # queries per chunk: whole squares
    chunks = []
    for first in range(0, queries, rows):
        chunk = slice(first, min(queries, first + rows))
        result = view.attention(request.layer, request.head, kind=request.kind, stack=request.stack, queries=chunk)
        chunks.append(pool_largest(result.values, step))
    return {"step": step, "cells": round_to_lists(np.concatenate(chunks))}


def pool_largest(weights: NDArray[Any], step: int) -> NDArray[Any]:
    """The maximum of each square of `step` × `step` weights."""
    down = np.maximum.reduceat(weights, np.arange(0, weights.shape[0], step), axis=0)
    return np.maximum.reduceat(down, np.arange(0, weights.shape[1], step), axis=1)


def answer_birdseye(session: InspectionSession, request: requests.BirdseyeRequest) -> dict[str, Any]:
    """A few numbers of every head of every attention: layers × heads."""
    view = session.view(request.run, need=NeededModules("*.attend", session.all_modules.until))
    kinds: list[tuple[StackName, AttentionKind]] = [(cast(StackName, stack), "self") for stack in view.texts]
    if session.has_target:
        kinds.append(("decoder", "cross"))
    found = []
    for stack, kind in kinds:
        numbers = describe_heads(view, kind=kind, stack=stack)
        measures = {name: round_to_lists(table.values) for name, table in numbers.items()}
        found.append({"stack": stack, "kind": kind, "measures": measures})
    return {"tokens": MAX_TOKENS, "kinds": found}


def answer_added(session: InspectionSession, request: requests.AddedRequest) -> dict[str, Any]:
    """before + this head + the other heads (+ bias) = after; vectors of width D."""
    view = session.view(request.run, need=find_needed_modules(session, request))
    check_position(request.query, len(view.texts[request.stack].ids), "query")
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
        name: {"numbers": round_to_lists(vector), "length": float(f"{np.linalg.norm(vector):.5g}")}
        for name, vector in vectors.items()
    }


def find_needed_modules(session: InspectionSession, request: requests.LayerRequest) -> NeededModules:
    """One block: the inputs of its attention kernel and what it added; blocks above it do not run."""
    module_paths.attention_path(session.model.network, request.layer, kind=request.kind, stack=request.stack)
    block = f"{request.stack}.blocks.{request.layer}"
    return NeededModules(f"{block} {block}.*.attend {block}.*.out {block}.*.drop {block}.*.outer", block)


def check_sides(
    session: InspectionSession, request: requests.HeadsRequest | requests.FormulaRequest
) -> tuple[slice, slice]:
    """The requested queries and keys, checked before anything is computed."""
    texts = session.view_tokens(request.run).texts
    source = "encoder" if request.kind == "cross" else request.stack
    return (
        check_window(request.queries, len(texts[request.stack].ids), "queries"),
        check_window(request.keys, len(texts[source].ids), "keys"),
    )
