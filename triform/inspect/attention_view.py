"""Attention written out for the eye, from exactly what entered the kernel, for the heads that are asked for only.

Knows one kernel call at a time; which layer it was is `view.py`'s business.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from triform.core.attention import WrittenOut, written_out
from triform.core.masks import Sight, minus_infinity, seen
from triform.errors import InputError
from triform.inspect.labelled_array import MOST_NUMBERS, Axis, Labelled
from triform.inspect.taps import Call
from triform.precision import distance

ALL = slice(None)


class QKV(NamedTuple):
    """Queries, keys and values as they entered the kernel (normed and turned, where the model does so):
    heads × tokens × head width; k and v have one head for each group of query heads."""

    q: Labelled
    k: Labelled
    v: Labelled


class Formula(NamedTuple):
    """mixed = softmax(q kᵀ · scale + mask) v, step by step, for one head.

    `mask` is all that is added to the scores: a bias by distance where the model has one, −inf where a query may not
    look. `weighted(i)` is each key's share in the answer to query i.
    """

    q: Labelled
    k: Labelled
    v: Labelled
    scores: Labelled
    mask: Labelled
    masked: Labelled
    weights: Labelled
    mixed: Labelled

    def weighted(self, query: int) -> Labelled:
        """weight · value, one row a key; the rows sum to the query's row of `mixed`."""
        asked = self.weights.axes[0].labels
        if not -len(asked) <= query < len(asked):
            raise InputError(f"query {query} is not here; queries are 0 to {len(asked) - 1}")
        shares = self.weights.values[query][:, None] * self.v.values
        return Labelled(f"{self.v.title}, weighted for {asked[query]}", self.v.axes, shares)


class Asked(NamedTuple):
    """One kernel call with the tokens that asked and the tokens that answered; `title` names the layer."""

    call: Call
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    scale: float
    title: str

    @property
    def heads(self) -> range:
        return range(self.call.inputs[0].shape[1])

    def qkv(self) -> QKV:
        def part(name: str, x: Tensor, tokens: tuple[str, ...]) -> Labelled:
            axes = Axis.counted("head", x.shape[1]), Axis("token", tokens), Axis.counted("width", x.shape[3])
            return Labelled.of(x[0], axes, title=f"{name} of {self.title}")

        q, k, v, _ = self.call.inputs
        return QKV(part("q", q, self.queries), part("k", k, self.keys), part("v", v, self.keys))

    def head(self, head: int, queries: slice) -> WrittenOut:
        """All steps for some queries of one head; every key is there, for a softmax needs them all."""
        each = zip(self.call.inputs[:3], self.places(head), strict=True)
        q, k, v = (wide(x[:, at : at + 1]) for x, at in each)
        return written_out(q[:, :, queries], k, v, added=self.added(head, queries), scale=self.scale)

    def places(self, head: int) -> tuple[int, int, int]:
        """Where a head's own queries, keys and values stand: groups of heads may share the latter."""
        q, k = self.call.inputs[:2]
        group = head // (q.shape[1] // k.shape[1])
        return head, group, group

    def added(self, head: int, queries: slice) -> Tensor:
        """All that is added to the scores of a head, [1, 1, T, S], for the queries that are asked for"""
        size = len(self.queries), len(self.keys)
        sight = self.call.inputs[3]
        if isinstance(sight, Sight) and sight.added is None:
            places, keys = torch.arange(size[0])[queries][None], torch.arange(size[1])
            allowed = seen(places, keys, window=None)
            return minus_infinity(allowed if sight.causal else torch.ones_like(allowed), torch.float64)
        added: Tensor = sight.matrix(*size)
        own = added[:, head : head + 1] if added.shape[1] > 1 else added
        return own.expand(1, 1, *size)[:, :, queries]

    def error(self, head: int, queries: slice, mixed: Tensor) -> float:
        return distance(mixed, self.call.output[:, head : head + 1, queries].to(mixed.dtype))

    def attention(self, heads: Sequence[int], queries: slice, keys: slice) -> Labelled:
        """heads × queries × keys"""
        sides = self.sides(heads, queries, keys)
        parts, errors = [], []
        for head in heads:
            steps = self.head(head, queries)
            parts.append(steps.weights[0, 0, :, keys])
            errors.append(self.error(head, queries, steps.mixed))
        return Labelled.of(torch.stack(parts), sides, title=f"attention of {self.title}", error=max(errors))

    def formula(self, head: int, queries: slice) -> Formula:
        _, asking, answering = self.sides([head], queries, ALL)
        q, k, v = (each[at] for each, at in zip(self.qkv(), self.places(head), strict=True))
        steps = self.head(head, queries)
        error = self.error(head, queries, steps.mixed)

        def step(name: str, x: Tensor, across: Axis = answering) -> Labelled:
            return Labelled.of(x[0, 0], [asking, across], title=f"{name} of head {head}, {self.title}", error=error)

        return Formula(
            q=q[queries],
            k=k,
            v=v,
            scores=step("scores", steps.scores),
            mask=step("mask", self.added(head, queries)),
            masked=step("scores after the mask", steps.masked),
            weights=step("weights", steps.weights),
            mixed=step("mixed values", steps.mixed, v.axes[1]),
        )

    def sides(self, heads: Sequence[int], queries: slice, keys: slice) -> list[Axis]:
        """Labels of what is asked for, refused before anything is computed where it is too much."""
        asking, answering = self.queries[queries], self.keys[keys]
        count = len(heads) * len(asking) * len(answering)
        if count > MOST_NUMBERS:
            raise InputError(
                f"{len(heads)} heads × {len(asking)} queries × {len(answering)} keys are {count:,} weights, the limit "
                f"is {MOST_NUMBERS:,}; narrow it with head=0, queries=slice(0, 100) or keys=slice(0, 100)"
            )
        if not count:
            raise InputError(f"{queries} of {len(self.queries)} queries and {keys} of {len(self.keys)} keys are none")
        return [Axis("head", tuple(map(str, heads))), Axis("query", asking), Axis("key", answering)]


def wide(x: Tensor) -> Tensor:
    """Halves are looked at in float32."""
    return x.float() if x.dtype.itemsize < 4 else x


@torch.no_grad()
def contributions(entered: Tensor, out: nn.Linear, *, head_width: int) -> Tensor:
    """head_j W_O[j] for every head, and the bias behind them: [H + 1, T, D], whose sum is the output projection."""
    heads = torch.unflatten(wide(entered), -1, (-1, head_width))  # [T, H, K]
    columns = torch.unflatten(wide(out.weight), -1, (-1, head_width))  # [D, H, K]
    each = torch.einsum("thk,dhk->htd", heads, columns)
    bias = torch.zeros_like(each[:1]) if out.bias is None else wide(out.bias).expand_as(each[:1])
    return torch.cat((each, bias))
