"""Attention of cache rows of different lengths: one call per query, on exactly the keys that it may see.

The call of a query is the same whatever else is in the batch, so a row's results are bit-identical alone and batched.
It needs no mask and copies no keys. In beam search, rows of equal length share a call, and the beams of a prompt share
one copy of its source.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from triform.core.cache import Cache, KeysValues, NoCache
from triform.core.masks import AnyView, Kernel, QueryKeyView, ScoreBiasFunction, Sight, count_up
from triform.core.texts import Text, UnequalRows
from triform.shapes import BGTK, BHTK, RGSK


class KeySpan(NamedTuple):
    """`rows` cache rows from `row` on; each has `queries` queries, which see its keys `first` to `last`."""

    row: int
    rows: int
    queries: int
    first: int
    last: int


def merge_spans(spans: Iterable[KeySpan]) -> Iterator[KeySpan]:
    """Merges neighbouring one-row spans that see the same keys."""
    for seen, same in groupby(spans, key=lambda span: span[2:]):
        group = list(same)
        yield KeySpan(group[0].row, len(group), *seen)


class PerRowSight(NamedTuple):
    """Every query sees its own keys; padding rows after the last span get zeros."""

    parts: tuple[tuple[KeySpan, Sight], ...]

    def over(self, kernel: Kernel, q: BHTK, k: RGSK, v: RGSK) -> BHTK:
        rows, heads, each, width = q.shape
        if each > 1:
            q = q.transpose(1, 2).reshape(rows * each, heads, 1, width)
        outputs, at = [], 0
        for (row, count, queries, first, last), sight in self.parts:
            own, end = slice(row, row + count), at + count * queries
            own_q = q[at:end] if queries == 1 else group_queries(q[at:end], queries)
            output = kernel(own_q, k[own, :, first:last], v[own, :, first:last], sight)
            outputs.append(output if queries == 1 else split_queries(output))
            at = end
        if at < len(q):
            outputs.append(q.new_zeros(len(q) - at, heads, 1, width))
        x = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return x if each == 1 else x.reshape(rows, each, heads, width).transpose(1, 2)


def group_queries(x: Tensor, queries: int) -> Tensor:
    """[rows · queries, H, 1, K] → [rows, H, queries, K]"""
    return x.reshape(-1, queries, x.shape[1], x.shape[3]).transpose(1, 2)


def split_queries(x: Tensor) -> Tensor:
    """[rows, H, queries, K] → [rows · queries, H, 1, K]"""
    return x.transpose(1, 2).flatten(0, 1)[:, :, None]


class DistanceBiases:
    """Position biases by distance: computed once for up to `length` keys, sliced at each step."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.tables: dict[ScoreBiasFunction, Tensor | None] = {}

    def make_sight(self, door: ScoreBiasFunction, span: KeySpan, dtype: torch.dtype, device: torch.device) -> Sight:
        if door not in self.tables:
            keys = count_up(self.length, device)
            self.tables[door] = door(QueryKeyView(keys[None, -1:], keys), dtype).added
        table = self.tables[door]
        if table is None:
            return Sight(causal=False, added=None)
        return Sight(causal=False, added=table[..., self.length - span.last + span.first :])


class PerRowView(NamedTuple):
    """Spans, to which the position bias is still to be added."""

    spans: tuple[KeySpan, ...]
    biases: DistanceBiases
    device: torch.device

    def through(self, door: ScoreBiasFunction, dtype: torch.dtype) -> PerRowSight:
        return PerRowSight(tuple((span, self.biases.make_sight(door, span, dtype, self.device)) for span in self.spans))


@dataclass(frozen=True, eq=False, kw_only=True)
class NextTokens(Text):
    """The next tokens of many rows, [rows, T]; rows from `real` on are padding."""

    real: int
    biases: DistanceBiases

    def past_only(self, past: tuple[int, ...], window: int | None) -> AnyView:
        each = self.ids.shape[1]
        ends = [(row, length + t) for row, length in enumerate(past[: self.real]) for t in range(1, each + 1)]
        return self.make_view(
            KeySpan(row, 1, 1, 0 if window is None else max(0, end - window), end) for row, end in ends
        )

    def see_sources(self, lengths: tuple[int, ...]) -> AnyView:
        """One source per row."""
        each = range(self.ids.shape[1])
        return self.make_view(KeySpan(row, 1, 1, 0, end) for row, end in enumerate(lengths[: self.real]) for _ in each)

    def make_view(self, spans: Iterable[KeySpan]) -> AnyView:
        return PerRowView(tuple(spans), self.biases, self.ids.device)


@dataclass(frozen=True, eq=False, kw_only=True)
class NextOfBeams(NextTokens):
    """The next token of every beam; prompt i has beams[i] neighbouring rows."""

    beams: tuple[int, ...]

    def see_sources(self, lengths: tuple[int, ...]) -> AnyView:
        """One source per prompt."""
        sources = enumerate(zip(self.beams, lengths, strict=True))
        return self.make_view(KeySpan(row, 1, beams, 0, end) for row, (beams, end) in sources)

    def make_view(self, spans: Iterable[KeySpan]) -> AnyView:
        return super().make_view(merge_spans(spans))


class SourceRows(UnequalRows):
    """Sources of these lengths, one per row or per prompt; a query sees its own source only."""

    def seen_by(self, target: Text) -> AnyView:
        return target.see_sources(self.lengths) if isinstance(target, NextTokens) else super().seen_by(target)


@dataclass(frozen=True)
class FreshRows(NoCache):
    """Free cache rows from `first` on, filled from packed prompts with `counts` tokens each.

    The rows are empty, so attention uses the new keys and values directly; they are stored besides.
    """

    cache: Cache
    first: int
    counts: tuple[int, ...]

    def open(self, count: int) -> "FreshRows":
        self.cache.reserve_rows(self.first, self.first + len(self.counts), max(self.counts))
        return self

    def put(self, layer: int, k: BGTK, v: BGTK) -> KeysValues:
        keys, values = self.cache.store[layer]
        for row, (own_k, own_v) in enumerate(zip(self._split(k), self._split(v), strict=True), self.first):
            keys[row, :, : own_k.shape[1]] = own_k
            values[row, :, : own_v.shape[1]] = own_v
        return k, v

    def advance(self, count: int) -> None:
        for row, each in enumerate(self.counts, self.first):
            self.cache.advance_rows(row, row + 1, each)

    def _split(self, x: BGTK) -> tuple[Tensor, ...]:
        """[1, G, T, K] of all prompts → [G, T, K] per prompt"""
        return torch.split(x[0], list(self.counts), dim=1)
