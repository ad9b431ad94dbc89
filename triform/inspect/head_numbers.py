"""A few numbers of every attention head of a run: a bird's-eye view, layers × heads.

    describe_heads(view)["previous token"]     # how much weight each head puts on the token before

All are means over queries, from 0 to 1 except the distance, which is in tokens.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from triform.inspect import module_paths
from triform.inspect.labelled_array import ArrayAxis, LabelledArray
from triform.inspect.module_paths import AttentionKind, StackName
from triform.inspect.view import View

MAX_TOKENS = 256  # of a text, from its beginning


def describe_heads(
    view: View, *, kind: AttentionKind = "self", stack: StackName | None = None
) -> dict[str, LabelledArray]:
    """What each head attends to: name → layers × heads."""
    name = module_paths.check_stack(view.network, stack)
    source = "encoder" if kind == "cross" else name
    ids, keys = view.texts[name].ids[:MAX_TOKENS], view.texts[source].ids[:MAX_TOKENS]
    layers = view.spec.stacks[name].layers
    found: dict[str, list[list[float]]] = {}
    for layer in range(layers):
        part = {"queries": slice(len(ids)), "keys": slice(len(keys))}
        weights = view.attention(layer, kind=kind, stack=name, **part).values  # type: ignore[arg-type]
        for measure, of_heads in measure_weights(weights, ids, same=kind == "self").items():
            found.setdefault(measure, []).append(of_heads.tolist())
    heads = view.spec.stacks[name].attention.heads
    axes = ArrayAxis.numbered("layer", layers), ArrayAxis.numbered("head", heads)
    return {measure: LabelledArray(measure, axes, np.array(values)) for measure, values in found.items()}


def measure_weights(weights: NDArray[np.float64], ids: Sequence[int], *, same: bool) -> dict[str, NDArray[np.float64]]:
    """heads × queries × keys → name → one number per head; `same`: queries and keys are the same text"""
    _, queries, keys = weights.shape
    logs = np.log(np.maximum(weights, 1e-30))
    spread = -(weights * logs).sum(-1).mean(-1) / math.log(max(keys, 2))
    found = {"first token": weights[:, 1:, 0].mean(-1) if queries > 1 else weights[:, :, 0].mean(-1), "spread": spread}
    if not same:
        return found
    at = np.arange(queries)
    found["own token"] = weights[:, at, at].mean(-1)
    if queries > 1:
        found["previous token"] = weights[:, at[1:], at[:-1]].mean(-1)
    found["distance"] = (weights * np.abs(at[:, None] - np.arange(keys)[None])).sum(-1).mean(-1)
    pairs = find_successors(ids)
    if pairs:
        rows, columns = (list(side) for side in zip(*pairs, strict=True))
        found["induction"] = weights[:, rows, columns].mean(-1)
    return found


def find_successors(ids: Sequence[int]) -> list[tuple[int, int]]:
    """Each query whose token occurred before, with the position behind that occurrence: what induction looks for."""
    last: dict[int, int] = {}
    pairs = []
    for at, id in enumerate(ids):
        if id in last and last[id] + 1 < at:
            pairs.append((at, last[id] + 1))
        last[id] = at
    return pairs
