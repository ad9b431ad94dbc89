"""Attention of one kernel call, recomputed step by step from the kernel's own inputs, for the selected heads only."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from triform.core.attention import AttentionSteps, compute_attention_steps
from triform.core.masks import Sight, allow_past, to_additive_mask
from triform.errors import InputError
from triform.inspect.labelled_array import MAX_ARRAY_NUMBERS, ArrayAxis, LabelledArray
from triform.inspect.taps import ModuleCall
from triform.precision import relative_error

ALL = slice(None)


class QKV(NamedTuple):
    """Queries, keys and values as they entered the kernel (after query/key norms and rotary positions, if any):
    heads × tokens × head width; k and v have one head per group of query heads."""

    q: LabelledArray
    k: LabelledArray
    v: LabelledArray


class HeadFormula(NamedTuple):
    """mixed = softmax(q kᵀ · scale + mask) v, step by step, for one head.

    `mask` is all that is added to the scores: the model's position bias, if any, and −inf for masked keys.
    `weighted(i)` is each key's contribution to the output of query i.
    """

    q: LabelledArray
    k: LabelledArray
    v: LabelledArray
    scores: LabelledArray
    mask: LabelledArray
    masked: LabelledArray
    weights: LabelledArray
    mixed: LabelledArray

    def weighted_values(self, query: int) -> LabelledArray:
        """weight · value, one row per key; the rows sum to the query's row of `mixed`."""
        queries = self.weights.axes[0].labels
        if not -len(queries) <= query < len(queries):
            raise InputError(f"query {query} is not in this view; queries are 0 to {len(queries) - 1}")
        shares = self.weights.values[query][:, None] * self.v.values
        return LabelledArray(f"{self.v.title}, weighted for {queries[query]}", self.v.axes, shares)


class AttentionCall(NamedTuple):
    """One kernel call with the labels of its queries and keys; `title` names the layer."""

    call: ModuleCall
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    scale: float
    title: str

    @property
    def heads(self) -> range:
        return range(self.call.inputs[0].shape[1])

    def qkv(self) -> QKV:
        def part(name: str, x: Tensor, tokens: tuple[str, ...]) -> LabelledArray:
            axes = (
                ArrayAxis.numbered("head", x.shape[1]),
                ArrayAxis("token", tokens),
                ArrayAxis.numbered("width", x.shape[3]),
            )
            return LabelledArray.from_tensor(x[0], axes, title=f"{name} of {self.title}")

        q, k, v, _ = self.call.inputs
        return QKV(part("q", q, self.queries), part("k", k, self.keys), part("v", v, self.keys))

    def compute_head(self, head: int, queries: slice) -> AttentionSteps:
        """All steps for some queries of one head, over all keys, since the softmax needs them."""
        own = zip(self.call.inputs[:3], self.head_indices(head), strict=True)
        q, k, v = (widen(x[:, at : at + 1]) for x, at in own)
        return compute_attention_steps(q[:, :, queries], k, v, added=self.added(head, queries), scale=self.scale)

    def head_indices(self, head: int) -> tuple[int, int, int]:
        """The indices of a head's queries, keys and values: groups of heads may share keys and values."""
        q, k = self.call.inputs[:2]
        group = head // (q.shape[1] // k.shape[1])
        return head, group, group

    def added(self, head: int, queries: slice) -> Tensor:
        """All that is added to the scores of a head, [1, 1, T, S], for the selected queries"""
        size = len(self.queries), len(self.keys)
        sight = self.call.inputs[3]
        if isinstance(sight, Sight) and sight.added is None:
            positions, keys = torch.arange(size[0])[queries][None], torch.arange(size[1])
            allowed = allow_past(positions, keys, window=None)
            return to_additive_mask(allowed if sight.causal else torch.ones_like(allowed), torch.float64)
        added: Tensor = sight.matrix(*size)
        own = added[:, head : head + 1] if added.shape[1] > 1 else added
        return own.expand(1, 1, *size)[:, :, queries]

    def error(self, head: int, queries: slice, mixed: Tensor) -> float:
        return relative_error(mixed, self.call.output[:, head : head + 1, queries].to(mixed.dtype))

    def attention(self, heads: Sequence[int], queries: slice, keys: slice) -> LabelledArray:
        """heads × queries × keys"""
        axes = self.make_axes(heads, queries, keys)
        parts, errors = [], []
        for head in heads:
            steps = self.compute_head(head, queries)
            parts.append(steps.weights[0, 0, :, keys])
            errors.append(self.error(head, queries, steps.mixed))
        return LabelledArray.from_tensor(
            torch.stack(parts), axes, title=f"attention of {self.title}", error=max(errors)
        )

    def formula(self, head: int, queries: slice) -> HeadFormula:
        _, query_axis, key_axis = self.make_axes([head], queries, ALL)
        q, k, v = (x[at] for x, at in zip(self.qkv(), self.head_indices(head), strict=True))
        steps = self.compute_head(head, queries)
        error = self.error(head, queries, steps.mixed)

        def step(name: str, x: Tensor, across: ArrayAxis = key_axis) -> LabelledArray:
            return LabelledArray.from_tensor(
                x[0, 0], [query_axis, across], title=f"{name} of head {head}, {self.title}", error=error
            )

        return HeadFormula(
            q=q[queries],
            k=k,
            v=v,
            scores=step("scores", steps.scores),
            mask=step("mask", self.added(head, queries)),
            masked=step("scores after the mask", steps.masked),
            weights=step("weights", steps.weights),
            mixed=step("mixed values", steps.mixed, v.axes[1]),
        )

    def make_axes(self, heads: Sequence[int], queries: slice, keys: slice) -> list[ArrayAxis]:
        """Labels of the selection; checks its size before anything is computed."""
        query_labels, key_labels = self.queries[queries], self.keys[keys]
        count = len(heads) * len(query_labels) * len(key_labels)
        if count > MAX_ARRAY_NUMBERS:
            raise InputError(
                f"{len(heads)} heads × {len(query_labels)} queries × {len(key_labels)} keys are {count:,} weights, "
                f"the limit is {MAX_ARRAY_NUMBERS:,}; use head=0, queries=slice(0, 100) or keys=slice(0, 100)"
            )
        if not count:
            raise InputError(f"{queries} of {len(self.queries)} queries and {keys} of {len(self.keys)} keys is empty")
        return [
            ArrayAxis("head", tuple(map(str, heads))),
            ArrayAxis("query", query_labels),
            ArrayAxis("key", key_labels),
        ]


def widen(x: Tensor) -> Tensor:
    """16-bit numbers in float32."""
    return x.float() if x.dtype.itemsize < 4 else x


@torch.no_grad()
def split_contributions(heads_output: Tensor, out: nn.Linear, *, head_width: int) -> Tensor:
    """head_j W_O[j] per head, then the bias: [H + 1, T, D], whose sum is the output projection."""
    heads = torch.unflatten(widen(heads_output), -1, (-1, head_width))  # [T, H, K]
    columns = torch.unflatten(widen(out.weight), -1, (-1, head_width))  # [D, H, K]
    added = torch.einsum("thk,dhk->htd", heads, columns)
    bias = torch.zeros_like(added[:1]) if out.bias is None else widen(out.bias).expand_as(added[:1])
    return torch.cat((added, bias))
