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

    def count_held(self, window: int | None) -> tuple[int, ...]:
        return self.lengths

    def open(self, count: int) -> "NoCache":
        return self

    def put(self, layer: int, k: BGTK, v: BGTK) -> KeysValues:
        return k, v

    def advance(self, count: int) -> None:
        pass


NO_CACHE = NoCache()
ROLL_BACK_POSITIONS = 16  # that can be removed from a row although a layer's window has gone on


class Cache:
    """Keys and values of every layer: [2, rows, G, slots, K], doubled when they are full.

    A layer that sees everything has a slot per position. One with a window has at most `window` + `spare` slots: where
    they are full, the oldest positions are dropped and the others move to the front.
    """

    def __init__(
        self,
        *,
        layers: int,
        kv_heads: int,
        head_width: int,
        rows: int = 1,
        capacity: int = 64,
        windows: Sequence[int | None] = (),
        spare: int = 0,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self._capacity, self._spare = capacity, spare
        self.windows = tuple(windows) or (None,) * layers  # of each layer
        self._lengths = [0] * rows
        self._dropped = {window: [0] * rows for window in self.windows}  # positions that rows no longer hold
        self._slots = {window: self.count_slots(window, capacity) for window in self.windows}
        self._store = [
            torch.zeros(2, rows, kv_heads, self._slots[window], head_width, dtype=dtype, device=device)
            for window in self.windows
        ]
        self.allocations = 0  # how often it has grown

    @property
    def rows(self) -> int:
        return len(self._lengths)

    @property
    def capacity(self) -> int:
        """The longest text that a row has space for."""
        return self._capacity

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(self._lengths)

    @property
    def store(self) -> list[Tensor]:
        """Keys and values of each layer, [2, rows, G, slots, K]."""
        return self._store

    @property
    def bytes(self) -> int:
        """Σ over layers: 2 · rows · G · slots · K · bytes per number"""
        return sum(kv.numel() * kv.element_size() for kv in self._store)

    def bytes_at(self, capacity: int) -> int:
        """What `bytes` is after growing to so many positions."""
        pairs = zip(self._store, self.windows, strict=True)
        return sum(kv[:, :, :, :1].nbytes * self.count_slots(window, capacity) for kv, window in pairs)

    def count_slots(self, window: int | None, capacity: int) -> int:
        return capacity if window is None else min(capacity, window + self._spare)

    def count_held(self, window: int | None) -> tuple[int, ...]:
        """How many positions, the last ones, layers with this window hold of each row: slot 0 is the first of them."""
        if window is None:
            return tuple(self._lengths)
        return tuple(length - gone for length, gone in zip(self._lengths, self._dropped[window], strict=True))

    def count_dropped(self, layer: int, row: int) -> int:
        """How many positions of a row, the first ones, this layer no longer holds."""
        return self._dropped[self.windows[layer]][row]

    def reserve(self, length: int) -> None:
        """Grow to `length` positions per row or more: at least doubled, so that n steps copy less than 2n positions."""
        if length <= self._capacity:
            return
        self._capacity = max(length, 2 * self._capacity)
        for window, slots in self._slots.items():
            self._grow(window, max(slots, self.count_slots(window, self._capacity)))

    def _grow(self, window: int | None, slots: int) -> None:
        if slots == self._slots[window]:
            return
        self._slots[window] = slots
        self.allocations += 1
        for layer, old in enumerate(self._store):
            if self.windows[layer] == window:
                new = old.new_zeros(*old.shape[:3], slots, old.shape[4])
                new[:, :, :, : old.shape[3]] = old
                self._store[layer] = new

    def open(self, count: int) -> "CacheWriter":
        """One pass of `count` new positions in every row."""
        return self.open_rows(0, self.rows, count)

    def open_rows(self, first: int, last: int, count: int) -> "CacheWriter":
        self.reserve_rows(first, last, count)
        return CacheWriter.at(self, first, last, count)

    def reserve_rows(self, first: int, last: int, count: int) -> None:
        """Slots for `count` new positions in each of these rows."""
        self.reserve(max(self._lengths[first:last]) + count)
        for window in self._dropped:
            if window is not None:
                self._make_space(window, range(first, last), count)

    def _make_space(self, window: int, rows: range, count: int) -> None:
        """Slots for new positions: rows that would have too many drop what their window has left behind. When a row
        does so depends on its own length alone, not on draft tokens and chunks of others."""
        kept, held = window - 1 + ROLL_BACK_POSITIONS, self.count_held(window)
        for row in rows:
            if held[row] > kept and held[row] + max(count, ROLL_BACK_POSITIONS) > window + self._spare:
                self._drop_first(window, row, held[row], kept)
        held = self.count_held(window)
        self._grow(window, max(self._slots[window], *(held[row] + count for row in rows)))

    def _drop_first(self, window: int, row: int, held: int, kept: int) -> None:
        """Moves the last positions of a row to the front."""
        self._dropped[window][row] += held - kept
        for layer, kv in enumerate(self._store):
            if self.windows[layer] == window:
                kv[:, row, :, :kept] = kv[:, row, :, held - kept : held].clone()
                kv[:, row, :, kept:held] = 0

    def advance(self, count: int) -> None:
        self.advance_rows(0, self.rows, count)

    def advance_rows(self, first: int, last: int, count: int) -> None:
        """Rows have so many positions more, or less: what is removed stays in its slots, unread."""
        for row in range(first, last):
            self._check_removal(row, max(0, -count))
            self._set_length(row, self._lengths[row] + count)

    def view_rows(self, first: int, last: int) -> "CacheRows":
        """A view of neighbouring rows that works like a cache; nothing is copied."""
        if not 0 <= first < last <= self.rows:
            raise InputError(f"rows {first} to {last} are not in a cache of {self.rows} rows")
        return CacheRows(self, first, last)

    def can_remove(self, row: int, count: int) -> bool:
        """Whether what is left of a row could go on; a row may always begin again."""
        return count in (0, self._lengths[row]) or count <= self._count_removable(row)

    def _count_removable(self, row: int) -> int:
        """How many of the last positions: layers with a window may have dropped what the rest would see."""
        gone = [(window, dropped[row]) for window, dropped in self._dropped.items() if window is not None]
        length = self._lengths[row]
        return min((length - dropped - window + 1 for window, dropped in gone if dropped), default=length)

    def _check_removal(self, row: int, count: int) -> None:
        length = self._lengths[row]
        if not 0 <= count <= length:
            raise InputError(f"cannot roll back {count} positions of row {row}, which has {length}")
        if not self.can_remove(row, count):
            raise InputError(
                f"cannot roll back {count} of {length} positions of row {row}: layers with a window have dropped what "
                f"the rest would see; roll back {self._count_removable(row)} at most, or all, and prefill again"
            )

    def _set_length(self, row: int, length: int) -> None:
        self._lengths[row] = length
        if length == 0:
            for dropped in self._dropped.values():
                dropped[row] = 0

    def roll_back(self, counts: int | Sequence[int]) -> None:
        """Remove the last positions of each row; their slots are set to 0."""
        per_row = [counts] * self.rows if isinstance(counts, int) else list(counts)
        for row, count in zip(range(self.rows), per_row, strict=True):
            self._check_removal(row, count)
        for window in self._dropped:
            first = 0
            for (count, held), same in groupby(zip(per_row, self.count_held(window), strict=True)):
                last = first + len(list(same))  # neighbours that remove the same slots
                for layer, kv in enumerate(self._store) if count else ():
                    if self.windows[layer] == window:
                        kv[:, first:last, :, max(0, held - count) : held] = 0
                first = last
        for row, count in enumerate(per_row):
            self._set_length(row, self._lengths[row] - count)

    def reorder(self, sources: Sequence[int]) -> None:
        """Row i becomes what row sources[i] was; rows that stay are not touched."""
        if len(sources) != self.rows or any(not 0 <= source < self.rows for source in sources):
            raise InputError(f"reorder needs one row number from 0 to {self.rows - 1} per row, got {list(sources)}")
        moved = [row for row, source in enumerate(sources) if row != source]
        origins = [sources[row] for row in moved]
        for window in self._dropped if moved else ():
            held = self.count_held(window)
            stores = [kv for kv, its in zip(self._store, self.windows, strict=True) if its == window]
            move_rows(stores, moved, origins, used=max(held[origin] for origin in origins))
        self._lengths = [self._lengths[source] for source in sources]
        self._dropped = {window: [gone[source] for source in sources] for window, gone in self._dropped.items()}


class CacheRows(NamedTuple):
    """Rows `first` to `last` of a cache."""

    cache: Cache
    first: int
    last: int

    @property
    def lengths(self) -> tuple[int, ...]:
        return self.cache.lengths[self.first : self.last]

    def count_held(self, window: int | None) -> tuple[int, ...]:
        return self.cache.count_held(window)[self.first : self.last]

    def open(self, count: int) -> "CacheWriter":
        return self.cache.open_rows(self.first, self.last, count)

    def advance(self, count: int) -> None:
        self.cache.advance_rows(self.first, self.last, count)


AnyCache = NoCache | Cache | CacheRows


class SlotPlan(NamedTuple):
    """The slots of a pass's new positions, in layers with one window."""

    slots: slice
    end: int
    scattered: tuple[Tensor, Tensor] | None  # row and slot of each new position, where rows have unequal pasts


class CacheWriter(NamedTuple):
    """Writes the new positions of one pass into a cache; the slots are computed once for all layers of a window."""

    store: list[Tensor]
    rows: slice
    plans: tuple[SlotPlan, ...]  # of each layer

    @staticmethod
    def at(cache: Cache, first: int, last: int, count: int) -> "CacheWriter":
        def plan(window: int | None) -> SlotPlan:
            starts = cache.count_held(window)[first:last]
            start, end = starts[0], max(starts) + count
            slots = slice(start, start + count)
            if min(starts) == max(starts):
                return SlotPlan(slots, end, None)
            device = cache.store[0].device
            slot = torch.tensor(starts, device=device)[:, None] + torch.arange(count, device=device)
            return SlotPlan(slots, end, (torch.arange(first, last, device=device)[:, None], slot))

        plans = {window: plan(window) for window in dict.fromkeys(cache.windows)}
        return CacheWriter(cache.store, slice(first, last), tuple(plans[window] for window in cache.windows))

    def put(self, layer: int, k: BGTK, v: BGTK) -> KeysValues:
        keys, values = self.store[layer]
        slots, end, scattered = self.plans[layer]
        if scattered is None:
            keys[self.rows, :, slots] = k
            values[self.rows, :, slots] = v
        else:
            row, slot = scattered
            keys[row, :, slot] = k.transpose(1, 2)
            values[row, :, slot] = v.transpose(1, 2)
        return keys[self.rows, :, :end], values[self.rows, :, :end]


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
