"""Rows that each have a past of their own: every query is answered by itself, from exactly the keys it may see.

One attention call a query is what makes a row independent of its neighbours: it is the very same call, on the same
numbers, whoever else is in the pass. It needs no mask and copies no past. Rows of equal length may be answered
together where nobody compares bits (beam search).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from triform.core.batch import Text, UnequalRows
from triform.core.masks import AnyView, Documents, DocumentViews, Door, Kernel, Sight, View, counting
from triform.shapes import BGSK, BHTK


class Part(NamedTuple):
    """So many queries from `at` on, in row order; each sees keys `first` to `last` of its row."""

    at: int
    queries: int
    first: int
    last: int
    sight: Sight


class EachRow(Documents):
    """Every query looks at its own keys; rows behind the last part are filling and get zeros."""

    parts: tuple[Part, ...]

    def __new__(cls, parts: tuple[Part, ...]) -> "EachRow":
        self = super().__new__(cls, (), ())
        self.parts = parts
        return self

    def over(self, kernel: Kernel, q: BHTK, k: BGSK, v: BGSK) -> BHTK:
        rows, heads, each, width = q.shape
        queries = q.transpose(1, 2).reshape(rows * each, heads, 1, width)
        answers = []
        for at, count, first, last, sight in self.parts:
            row = slice(at // each, at // each + count)
            answers.append(kernel(queries[at : at + count], k[row, :, first:last], v[row, :, first:last], sight))
        if (filling := rows * each - sum(part.queries for part in self.parts)) > 0:
            answers.append(queries.new_zeros(filling, heads, 1, width))
        x = answers[0] if len(answers) == 1 else torch.cat(answers)
        return x.reshape(rows, each, heads, width).transpose(1, 2)


class Spans(NamedTuple):
    """Which keys each query sees, row by row."""

    spans: tuple[tuple[int, int], ...]
    together: bool  # neighbours that see the same keys' places are one call

    def parts(self, sights: Sequence[Sight]) -> tuple[Part, ...]:
        if not self.together:
            return tuple(
                Part(at, 1, first, last, sight)
                for at, ((first, last), sight) in enumerate(zip(self.spans, sights, strict=True))
            )
        parts, at = [], 0
        for (first, last), same in groupby(self.spans):
            count = len(list(same))
            parts.append(Part(at, count, first, last, sights[at]))
            at += count
        return tuple(parts)


class Biases:
    """The third door by distance: made once for rows of up to `length` keys, read as slices at each step."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.tables: dict[Door, Tensor | None] = {}

    def sights(self, door: Door, spans: Spans, dtype: torch.dtype, device: torch.device) -> list[Sight]:
        if door not in self.tables:
            keys = counting(self.length, device)
            self.tables[door] = View(keys[None, -1:], keys).through(door, dtype).added
        table = self.tables[door]
        if table is None:
            return [Sight(causal=False, added=None)] * len(spans.spans)
        return [Sight(causal=False, added=table[..., self.length - last + first :]) for first, last in spans.spans]


class EachView(DocumentViews):
    """Spans before the third door."""

    spans: Spans
    biases: Biases
    device: torch.device

    def __new__(cls, spans: Spans, biases: Biases, device: torch.device) -> "EachView":
        self = super().__new__(cls, (), ())
        self.spans, self.biases, self.device = spans, biases, device
        return self

    def through(self, door: Door, dtype: torch.dtype) -> EachRow:
        return EachRow(self.spans.parts(self.biases.sights(door, self.spans, dtype, self.device)))


@dataclass(frozen=True, eq=False, kw_only=True)
class NextTokens(Text):
    """The next tokens of many rows, [rows, T]; rows from `real` on are filling."""

    real: int
    together: bool  # rows of equal length in one call; for one token a row
    biases: Biases

    def past_only(self, past: tuple[int, ...], window: int | None) -> AnyView:
        ends = [length + t for length in past[: self.real] for t in range(1, self.ids.shape[1] + 1)]
        spans = tuple((0 if window is None else max(0, end - window), end) for end in ends)
        return EachView(Spans(spans, self.together), self.biases, self.ids.device)


class SourceRows(UnequalRows):
    """Sources of these lengths, one a row; every query looks at its own row's source and nothing else."""

    def seen_by(self, target: Text) -> AnyView:
        if not isinstance(target, NextTokens):
            return super().seen_by(target)
        each = target.ids.shape[1]
        spans = tuple((0, length) for length in self.lengths[: target.real] for _ in range(each))
        return EachView(Spans(spans, target.together), target.biases, target.ids.device)
