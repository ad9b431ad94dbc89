"""Rows that each have a past of their own: every query is answered by itself, from exactly the keys it may see.

One attention call a query is what makes a row independent of its neighbours: it is the very same call, on the same
numbers, whoever else is in the pass. It needs no mask and copies no past. Rows of equal length may be answered
together where nobody compares bits (beam search).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from triform.core.batch import Text, UnequalRows
from triform.core.cache import Cache, KeysValues, Uncached
from triform.core.masks import AnyView, Door, Kernel, Sight, View, counting
from triform.shapes import BGSK, BGTK, BHTK


class Span(NamedTuple):
    """So many queries, one behind another, that see keys `first` to `last` of their rows."""

    queries: int
    first: int
    last: int


def spans(seen: Iterable[tuple[int, int]], *, together: bool) -> tuple[Span, ...]:
    """One span a query, or one for all neighbours that see as much."""
    if not together:
        return tuple(Span(1, first, last) for first, last in seen)
    return tuple(Span(len(list(same)), *keys) for keys, same in groupby(seen))


class EachRow(NamedTuple):
    """Every query looks at its own keys; rows behind the last span are filling and get zeros."""

    parts: tuple[tuple[Span, Sight], ...]

    def over(self, kernel: Kernel, q: BHTK, k: BGSK, v: BGSK) -> BHTK:
        rows, heads, each, width = q.shape
        if each > 1:
            q = q.transpose(1, 2).reshape(rows * each, heads, 1, width)
        answers, at = [], 0
        for (count, first, last), sight in self.parts:
            row = slice(at // each, at // each + count)
            answers.append(kernel(q[at : at + count], k[row, :, first:last], v[row, :, first:last], sight))
            at += count
        if at < len(q):
            answers.append(q.new_zeros(len(q) - at, heads, 1, width))
        x = answers[0] if len(answers) == 1 else torch.cat(answers)
        return x if each == 1 else x.reshape(rows, each, heads, width).transpose(1, 2)


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
    together: bool  # rows of equal length in one call; for one token a row
    biases: Biases

    def past_only(self, past: tuple[int, ...], window: int | None) -> AnyView:
        ends = [length + t for length in past[: self.real] for t in range(1, self.ids.shape[1] + 1)]
        return self.view([(0 if window is None else max(0, end - window), end) for end in ends])

    def view(self, seen: Iterable[tuple[int, int]]) -> AnyView:
        return EachView(spans(seen, together=self.together), self.biases, self.ids.device)


class SourceRows(UnequalRows):
    """Sources of these lengths, one a row; every query looks at its own row's source and nothing else."""

    def seen_by(self, target: Text) -> AnyView:
        if not isinstance(target, NextTokens):
            return super().seen_by(target)
        return target.view([(0, n) for n in self.lengths[: target.real] for _ in range(target.ids.shape[1])])


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
