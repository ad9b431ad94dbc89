"""Keys and values of a decoder: of its own past (`Cache`, the KV cache) and of the source (`SourceMemory`).

Owned by the caller; the network has no state between calls. A decoding step never copies the past: keys and values are
written in place and read as slices. Every slot after the end of a row holds a finite number, so that a weight of
exactly 0 times that slot is 0.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from triform.core.texts import DecoderSource, NoSource
from triform.errors import InputError
from triform.kernels.move_rows import move_rows
from triform.shapes import BGTK

KeysValues = tuple[Tensor, Tensor]


class NoCache:
    """No cache, for training or a single pass: the past is empty, nothing is stored."""

    lengths: tuple[int, ...] = (0,)

    def open(self, count: int) -> "NoCache":
        return self

    def put(self, layer: int, k: BGTK, v: BGTK) -> KeysValues:
        return k, v

    def advance(self, count: int) -> None:
        pass


NO_CACHE = NoCache()


class Cache:
    """Keys and values of every layer: [2, rows, G, capacity, K], capacity doubling when it is full."""

    def __init__(
        self,
        *,
        layers: int,
        kv_heads: int,
        head_width: int,
        rows: int = 1,
        capacity: int = 64,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self._store = [
            torch.zeros(2, rows, kv_heads, capacity, head_width, dtype=dtype, device=device) for _ in range(layers)
        ]
        self._lengths = [0] * rows

    @property
    def rows(self) -> int:
        return len(self._lengths)

    @property
    def capacity(self) -> int:
        return self._store[0].shape[3]

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(self._lengths)

    @property
    def bytes(self) -> int:
        """2 · L · rows · G · capacity · K · bytes per number"""
        return sum(kv.numel() * kv.element_size() for kv in self._store)

    def reserve(self, length: int) -> None:
        """Grow to `length` positions per row or more: at least doubled, so that n steps copy less than 2n positions."""
        if length <= self.capacity:
            return
        capacity = max(length, 2 * self.capacity)
        for layer, old in enumerate(self._store):
            new = old.new_zeros(*old.shape[:3], capacity, old.shape[4])
            new[:, :, :, : old.shape[3]] = old
            self._store[layer] = new

    def open(self, count: int) -> "CacheWriter":
        """One pass of `count` new positions in every row."""
        return self.open_rows(0, self.rows, count)

    def open_rows(self, first: int, last: int, count: int) -> "CacheWriter":
        starts = tuple(self._lengths[first:last])
        self.reserve(max(starts) + count)
        return CacheWriter.at(self._store, first, last, starts, count)

    def advance(self, count: int) -> None:
        self.advance_rows(0, self.rows, count)

    def advance_rows(self, first: int, last: int, count: int) -> None:
        for row in range(first, last):
            self._lengths[row] += count

    def view_rows(self, first: int, last: int) -> "CacheRows":
        """A view of neighbouring rows that works like a cache; nothing is copied."""
        if not 0 <= first < last <= self.rows:
            raise InputError(f"rows {first} to {last} are not in a cache of {self.rows} rows")
        return CacheRows(self, first, last)

    def roll_back(self, counts: int | Sequence[int]) -> None:
        """Remove the last positions of each row; their slots are set to 0."""
        per_row = [counts] * self.rows if isinstance(counts, int) else list(counts)
        for row, (count, length) in enumerate(zip(per_row, self._lengths, strict=True)):
            if not 0 <= count <= length:
                raise InputError(f"cannot roll back {count} positions of row {row}, which has {length}")
        ends = [(length - count, length) for count, length in zip(per_row, self._lengths, strict=True)]
        first = 0
        for (start, end), same in groupby(ends):  # neighbours that remove the same positions
            last = first + len(list(same))
            for kv in self._store if start < end else ():
                kv[:, first:last, :, start:end] = 0
            first = last
        self._lengths = [start for start, _ in ends]

    def reorder(self, sources: Sequence[int]) -> None:
        """Row i becomes what row sources[i] was; rows that stay are not touched."""
        if len(sources) != self.rows or any(not 0 <= source < self.rows for source in sources):
            raise InputError(f"reorder needs one row number from 0 to {self.rows - 1} per row, got {list(sources)}")
        moved = [row for row, source in enumerate(sources) if row != source]
        origins = [sources[row] for row in moved]
        used = max((self._lengths[origin] for origin in origins), default=0)
        if moved:
            move_rows(self._store, moved, origins, used=used)
        self._lengths = [self._lengths[source] for source in sources]


class CacheRows(NamedTuple):
    """Rows `first` to `last` of a cache."""

    cache: Cache
    first: int
    last: int

    @property
    def lengths(self) -> tuple[int, ...]:
        return self.cache.lengths[self.first : self.last]

    def open(self, count: int) -> "CacheWriter":
        return self.cache.open_rows(self.first, self.last, count)

    def advance(self, count: int) -> None:
        self.cache.advance_rows(self.first, self.last, count)


AnyCache = NoCache | Cache | CacheRows


class CacheWriter(NamedTuple):
    """Writes the new positions of one pass into a cache; the slots are computed once for all layers."""

    store: list[Tensor]
    rows: slice
    slots: slice
    end: int
    scattered: tuple[Tensor, Tensor] | None  # row and slot of each new position, where rows have unequal pasts

    @staticmethod
    def at(store: list[Tensor], first: int, last: int, starts: tuple[int, ...], count: int) -> "CacheWriter":
        start, end = starts[0], max(starts) + count
        rows, slots = slice(first, last), slice(start, start + count)
        if min(starts) == max(starts):
            return CacheWriter(store, rows, slots, end, None)
        device = store[0].device
        slot = torch.tensor(starts, device=device)[:, None] + torch.arange(count, device=device)
        return CacheWriter(store, rows, slots, end, (torch.arange(first, last, device=device)[:, None], slot))

    def put(self, layer: int, k: BGTK, v: BGTK) -> KeysValues:
        keys, values = self.store[layer]
        if self.scattered is None:
            keys[self.rows, :, self.slots] = k
            values[self.rows, :, self.slots] = v
        else:
            row, slot = self.scattered
            keys[row, :, slot] = k.transpose(1, 2)
            values[row, :, slot] = v.transpose(1, 2)
        return keys[self.rows, :, : self.end], values[self.rows, :, : self.end]


# --- the source -----------------------------------------------------------------------------------------------------


class SourceMemory(NamedTuple):
    """The source's keys and values for every decoder layer, projected once for all steps."""

    layers: tuple[KeysValues, ...]
    source: DecoderSource

    def in_rows(self) -> "SourceMemory":
        """One row per source, as generation needs it."""
        rows = self.source.to_rows
        return SourceMemory(tuple((rows(k), rows(v)) for k, v in self.layers), self.source.in_rows())

    @property
    def bytes(self) -> int:
        return sum(x.numel() * x.element_size() for pair in self.layers for x in pair)


NO_MEMORY = SourceMemory((), NoSource())
