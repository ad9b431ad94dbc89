"""Rows that each have a past of their own: every query is answered by itself, from exactly the keys it may see.

One attention call a query is what makes a row independent of its neighbours: it is the very same call, on the same
numbers, whoever else is in the pass. It needs no mask and copies no past. Where nobody compares bits (beam search),
rows of equal length are answered in one call, and the beams of a prompt look at one copy of its source.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from triform.core.cache import Cache, KeysValues, Uncached
from triform.core.masks import AnyView, Door, Kernel, Sight, View, counting
from triform.core.texts import Text, UnequalRows
from triform.shapes import BGTK, BHTK, RGSK


class Span(NamedTuple):
    """Rows of keys from `row` on, so many; so many queries look at each, and see its keys `first` to `last`."""

    row: int
    rows: int
    queries: int
    first: int
    last: int


def joined(spans: Iterable[Span]) -> Iterator[Span]:
    """Of spans of one row each, those of neighbours of which as much is seen become one."""
    for seen, same in groupby(spans, key=lambda span: span[2:]):
        some = list(same)
        yield Span(some[0].row, len(some), *seen)


class EachRow(NamedTuple):
    """Every query looks at its own keys; rows behind the last span are filling and get zeros."""

    parts: tuple[tuple[Span, Sight], ...]

    def over(self, kernel: Kernel, q: BHTK, k: RGSK, v: RGSK) -> BHTK:
        rows, heads, each, width = q.shape
        if each > 1:
            q = q.transpose(1, 2).reshape(rows * each, heads, 1, width)
        answers, at = [], 0
        for (row, count, queries, first, last), sight in self.parts:
            own, end = slice(row, row + count), at + count * queries
            asked = q[at:end] if queries == 1 else side_by_side(q[at:end], queries)
            answer = kernel(asked, k[own, :, first:last], v[own, :, first:last], sight)
            answers.append(answer if queries == 1 else one_by_one(answer))
            at = end
        if at < len(q):
            answers.append(q.new_zeros(len(q) - at, heads, 1, width))
        x = answers[0] if len(answers) == 1 else torch.cat(answers)
        return x if each == 1 else x.reshape(rows, each, heads, width).transpose(1, 2)


def side_by_side(x: Tensor, queries: int) -> Tensor:
    """[rows · queries, H, 1, K] → [rows, H, queries, K]"""
    return x.reshape(-1, queries, x.shape[1], x.shape[3]).transpose(1, 2)


def one_by_one(x: Tensor) -> Tensor:
    """[rows, H, queries, K] → [rows · queries, H, 1, K]"""
    return x.transpose(1, 2).flatten(0, 1)[:, :, None]


class Biases:
    """The third door by distance: made once for rows of up to `length` keys, read as slices at each step."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.tables: dict[Door, Tensor | None] = {}

    def sight(self, door: Door, span: Span, dtype: torch.dtype, device: torch.device) -> Sight:
        if door not in self.tables:
            keys = counting(self.length, device)
            self.tables[door] = door(View(keys[None, -1:], keys), dtype).added
        table = self.tables[door]
        if table is None:
            return Sight(causal=False, added=None)
        return Sight(causal=False, added=table[..., self.length - span.last + span.first :])


class EachView(NamedTuple):
    """Spans before the third door."""

    spans: tuple[Span, ...]
    biases: Biases
    device: torch.device

    def through(self, door: Door, dtype: torch.dtype) -> EachRow:
        return EachRow(tuple((span, self.biases.sight(door, span, dtype, self.device)) for span in self.spans))


@dataclass(frozen=True, eq=False, kw_only=True)
class NextTokens(Text):
    """The next tokens of many rows, [rows, T]; rows from `real` on are filling."""

    real: int
    biases: Biases

    def past_only(self, past: tuple[int, ...], window: int | None) -> AnyView:
        each = self.ids.shape[1]
        ends = [(row, length + t) for row, length in enumerate(past[: self.real]) for t in range(1, each + 1)]
        return self.view(Span(row, 1, 1, 0 if window is None else max(0, end - window), end) for row, end in ends)

    def seeing(self, lengths: tuple[int, ...]) -> AnyView:
        """One source a row."""
        each = range(self.ids.shape[1])
        return self.view(Span(row, 1, 1, 0, end) for row, end in enumerate(lengths[: self.real]) for _ in each)

    def view(self, spans: Iterable[Span]) -> AnyView:
        return EachView(tuple(spans), self.biases, self.ids.device)


@dataclass(frozen=True, eq=False, kw_only=True)
class NextOfBeams(NextTokens):
    """The next token of every beam; so many of them, side by side, belong to each prompt."""

    beams: tuple[int, ...]

    def seeing(self, lengths: tuple[int, ...]) -> AnyView:
        """One source a prompt."""
        both = zip(self.beams, lengths, strict=True)
        return self.view(Span(row, 1, beams, 0, end) for row, (beams, end) in enumerate(both))

    def view(self, spans: Iterable[Span]) -> AnyView:
        return super().view(joined(spans))


class SourceRows(UnequalRows):
    """Sources of these lengths, one a row or one a prompt; a query looks at its own source and nothing else."""

    def seen_by(self, target: Text) -> AnyView:
        return target.seeing(self.lengths) if isinstance(target, NextTokens) else super().seen_by(target)


@dataclass(frozen=True)
class FreshRows(Uncached):
    """Free rows of a cache, from `first` on, that read texts of these lengths; the texts come packed in a single row.

    Nothing is behind them, so keys and values are used as they come and only kept besides.
    """

    cache: Cache
    first: int
    counts: tuple[int, ...]

    def put(self, layer: int, k: BGTK, v: BGTK) -> KeysValues:
        keys, values = self.cache.open(0).store[layer]
        for row, (own_k, own_v) in enumerate(zip(self.apart(k), self.apart(v), strict=True), self.first):
            keys[row, :, : own_k.shape[1]] = own_k
            values[row, :, : own_v.shape[1]] = own_v
        return k, v

    def advance(self, count: int) -> None:
        for row, each in enumerate(self.counts, self.first):
            self.cache.advance_rows(row, row + 1, each)

    def apart(self, x: BGTK) -> tuple[Tensor, ...]:
        """[1, G, T, K] of all texts → [G, T, K] of each"""
        return torch.split(x[0], list(self.counts), dim=1)
