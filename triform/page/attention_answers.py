"""Answers about attention: all heads of a layer, one head step by step, and what a head adds."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from triform.inspect import module_paths
from triform.inspect.attention_view import Formula as Written
from triform.inspect.labelled_array import MOST_NUMBERS
from triform.page import requests
from triform.page.rounding import check, listed, size, windowed, within
from triform.page.session import Looker, Need

GLANCE = 128  # squares along a side of a head seen at a glance
NARROW = "ask for fewer of them with queries [from, to] and keys [from, to]"


def heads(looker: Looker, asked: requests.Heads) -> dict[str, Any]:
    need = needed(looker, asked)
    queries, keys = sides(looker, asked)
    count = looker.model.spec.stacks[asked.stack].attention.heads
    check((count, "heads"), (size(queries), "queries"), (size(keys), "keys"), narrow=f"{NARROW}, or for one head")
    view = looker.view(asked.run, need=need)
    found = view.attention(asked.layer, kind=asked.kind, stack=asked.stack, queries=queries, keys=keys)
    return {"weights": listed(found.values), "error": found.error}


def formula(looker: Looker, asked: requests.Formula) -> dict[str, Any]:
    need = needed(looker, asked)
    queries, keys = sides(looker, asked)
    width = looker.model.spec.stacks[asked.stack].attention.head_width
    check((size(queries), "queries"), (size(keys), "keys"), narrow=NARROW)
    check((size(queries) + 2 * size(keys), "queries, keys and values"), (width, "wide"), narrow=NARROW)
    view = looker.view(asked.run, need=need)
    found = view.formula(asked.layer, asked.head, kind=asked.kind, stack=asked.stack, queries=queries)
    return written(found, keys) | {"scale": looker.model.spec.stacks[asked.stack].attention.score_scale}


def written(found: Written, keys: slice) -> dict[str, Any]:
    """Of the keys outside the window only the sum of their weights is told."""
    outside = 1.0 - found.weights.values[:, keys].sum(axis=-1)
    return {
        "q": listed(found.q.values),
        "k": listed(found.k.values[keys]),
        "v": listed(found.v.values[keys]),
        "scores": listed(found.scores.values[:, keys]),
        "mask": listed(found.mask.values[:, keys]),
        "weights": listed(found.weights.values[:, keys]),
        "outside": listed(np.clip(outside, 0.0, 1.0)),
        "mixed": listed(found.mixed.values),
        "error": found.weights.error,
    }


def overview(looker: Looker, asked: requests.Overview) -> dict[str, Any]:
    view = looker.view(asked.run, need=needed(looker, asked))
    source = "encoder" if asked.kind == "cross" else asked.stack
    asking, answering = len(view.texts[asked.stack].ids), len(view.texts[source].ids)
    step = max(1, -(-max(asking, answering) // GLANCE))
    rows = step * max(1, MOST_NUMBERS // (step * answering))  # queries of one piece, whole squares of them
    pieces = []
    for first in range(0, asking, rows):
        queries = slice(first, min(asking, first + rows))
        found = view.attention(asked.layer, asked.head, kind=asked.kind, stack=asked.stack, queries=queries)
        pieces.append(largest(found.values, step))
    return {"step": step, "cells": listed(np.concatenate(pieces))}


def largest(weights: NDArray[Any], step: int) -> NDArray[Any]:
    """The largest number in each square."""
    down = np.maximum.reduceat(weights, np.arange(0, weights.shape[0], step), axis=0)
    return np.maximum.reduceat(down, np.arange(0, weights.shape[1], step), axis=1)


def added(looker: Looker, asked: requests.Added) -> dict[str, Any]:
    """before + this head + the other heads (+ bias) = after; vectors of the model's width."""
    view = looker.view(asked.run, need=needed(looker, asked))
    within(asked.query, len(view.texts[asked.stack].ids), "query")
    path = module_paths.attention_path(looker.model.network, asked.layer, kind=asked.kind, stack=asked.stack)
    module_paths.check_head(looker.model.network, path, asked.head)
    at = slice(asked.query, asked.query + 1)
    each = view.contributions(asked.layer, kind=asked.kind, stack=asked.stack, positions=at).values[:, 0]
    ledger = view.ledger(asked.layer, stack=asked.stack, positions=at)
    names = list(ledger.axes[0].labels)
    upto = names.index(module_paths.PARTS[asked.kind])
    before = ledger.values[:upto, 0].sum(axis=0)
    head, others = each[asked.head], np.delete(each, asked.head, axis=0).sum(axis=0)
    vectors = {"before": before, "head": head, "others": others, "after": before + ledger.values[upto, 0]}
    return {
        name: {"numbers": listed(vector), "length": float(f"{np.linalg.norm(vector):.5g}")}
        for name, vector in vectors.items()
    }


def needed(looker: Looker, asked: requests.Heads | requests.Formula | requests.Overview | requests.Added) -> Need:
    """Of the one block that is asked about, what entered the kernel and what was added; nothing above it runs."""
    module_paths.attention_path(looker.model.network, asked.layer, kind=asked.kind, stack=asked.stack)
    block = f"{asked.stack}.blocks.{asked.layer}"
    return Need(f"{block} {block}.*.attend {block}.*.out {block}.*.drop {block}.*.outer", block)


def sides(looker: Looker, asked: requests.Heads | requests.Formula) -> tuple[slice, slice]:
    """Queries and keys that are asked for; what is not there is said before anything is computed."""
    texts = looker.unread(asked.run).texts
    source = "encoder" if asked.kind == "cross" else asked.stack
    return (
        windowed(asked.queries, len(texts[asked.stack].ids), "queries"),
        windowed(asked.keys, len(texts[source].ids), "keys"),
    )
