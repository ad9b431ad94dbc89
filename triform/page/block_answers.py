"""One token on its way through one block: every operation with its matrix at small size, in the order they ran.

Made from the record of the pass alone, so it is the same for every family and form.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from triform.inspect import module_paths
from triform.inspect.module_paths import AttentionKind
from triform.inspect.view import View
from triform.page import requests
from triform.page.rounding import check_position, round_to_lists
from triform.page.session import InspectionSession, NeededModules

SIDE = 40  # cells of a matrix drawn small, at most
NUMBERS = 192  # of a vector
SAYS = {
    "before": "Normalised before the sublayer: W · (x − mean) / spread, or without the mean.",
    "qkv": "One product with W_q, W_k and W_v side by side: the token's queries, keys and values.",
    "q": "Its queries, from the decoder's stream.",
    "kv": "Keys and values of the encoder's output, computed once for all tokens.",
    "q_norm": "The queries, normalised per head.",
    "k_norm": "The keys, normalised per head.",
    "turn": "Queries turned by the token's position.",
    "attend": "Weights of this token over all keys, head by head, and the weighted values beside each other.",
    "out": "The heads' outputs times W_O: back to the width of the stream.",
    "up": "Times W_1 (and the gate's matrix): a wider vector.",
    "down": "The activation, then times W_2: back to the width of the stream.",
    "after": "Normalised after the sublayer.",
    "add": "Added to the stream: x + what the sublayer made of it.",
    "outer": "Normalised after the addition.",
}


def answer_block(session: InspectionSession, request: requests.BlockRequest) -> dict[str, Any]:
    """The operations of a block in order, for one token."""
    path = module_paths.block_path(session.model.network, request.layer, stack=request.stack)
    view = session.view(request.run, need=NeededModules(f"{path} {path}.*", path))
    at = check_position(request.query, len(view.texts[request.stack].ids), "query")
    steps = []
    for name, module in session.model.network.get_submodule(path).named_modules():
        full = f"{path}.{name}"
        if not name or full not in view.record.calls:
            continue
        steps += describe_step(session, view, full, module, at, request)
    order = {full: i for i, full in enumerate(view.record.calls)}
    return {"steps": sorted(steps, key=lambda step: order[step["path"]])}


def describe_step(
    session: InspectionSession, view: View, path: str, module: nn.Module, at: int, request: requests.BlockRequest
) -> list[dict[str, Any]]:
    """One operation, or none for a module that only passes on its input or contains others."""
    name, call = path.rsplit(".", 1)[-1], view.record.last_call(path)
    given, made = call.inputs[0], call.output
    if name == "drop":  # what the sublayer made, added to the stream
        stream = view.record.last_call(path.removesuffix(".drop")).inputs[0]
        x, added = row_of(stream, at), row_of(made, at)
        return [make_step(path, "add", x, describe_matrix(added.cpu().numpy()[None]), x + added)]
    if name not in SAYS or not isinstance(made, Tensor) or made is given or name == "kv":
        return []
    if name == "attend":
        kind: AttentionKind = "cross" if ".cross." in path else "self"
        weights = view.attention(request.layer, kind=kind, stack=request.stack, queries=slice(at, at + 1))
        queries = given[0, :, at].flatten()
        return [make_step(path, name, queries, describe_matrix(weights.values[:, 0]), made[0, :, at].flatten())]
    if path not in session.small_matrices:  # the same for every token and text
        session.small_matrices[path] = find_matrix(module)
    return [make_step(path, name, row_of(given, at), session.small_matrices[path], row_of(made, at))]


def row_of(x: Tensor, at: int) -> Tensor:
    """The numbers of one token; heads beside each other."""
    return x[0, at].flatten().double()


def find_matrix(module: nn.Module) -> dict[str, Any] | None:
    """Its weight: a matrix, or the gain of a norm as one row."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor):
        return None
    table = weight.detach().float().cpu().numpy()
    return describe_matrix(table.T if table.ndim == 2 else table[None])


def make_step(path: str, name: str, given: Tensor, matrix: dict[str, Any] | None, made: Tensor) -> dict[str, Any]:
    """An operation as strips and cells, with its true sizes."""
    vectors = {"given": describe_vector(given), "made": describe_vector(made)}
    return {"name": name, "path": path, "says": SAYS[name], "matrix": matrix} | vectors


def describe_matrix(table: NDArray[Any]) -> dict[str, Any]:
    most = SIDE if len(table) > 1 else NUMBERS
    return {"shape": list(table.shape), "cells": round_to_lists(shrink_matrix(table, most))}


def describe_vector(x: Tensor) -> dict[str, Any]:
    """A vector as a strip, with its true size and length."""
    numbers = x.double().cpu().numpy()
    return {
        "count": len(numbers),
        "length": float(f"{np.linalg.norm(numbers):.5g}"),
        "numbers": round_to_lists(shrink_vector(numbers, NUMBERS)),
    }


def shrink_matrix(x: NDArray[Any], most: int) -> NDArray[Any]:
    """Not more than `most` × `most` cells: of each square the number that is furthest from 0."""
    return shrink_rows(shrink_rows(x, most).T, most).T


def shrink_rows(x: NDArray[Any], most: int) -> NDArray[Any]:
    """Not more than `most` rows."""
    step = -(-len(x) // most)
    starts = np.arange(0, len(x), step)
    above, below = np.maximum.reduceat(x, starts, axis=0), np.minimum.reduceat(x, starts, axis=0)
    return np.where(above >= -below, above, below)


def shrink_vector(x: NDArray[Any], most: int) -> NDArray[Any]:
    return shrink_rows(x[:, None], most)[:, 0]
