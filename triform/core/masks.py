"""Attention masks, all made here: which key a query may see, in one pass through one stack.

A `QueryKeyView` is one rectangle of queries and keys. The kernel gets a `Sight`: its own causal triangle, or numbers
added to the scores (−inf where a query may not see a key), or nothing. Padding never comes here: texts of unequal
length are packed into one row, and `Documents` separates them by slicing, which is exact and wastes no computation.
"""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from triform.shapes import BGSK, BHTK, RGSK, Added, Allowed, KeyPositions, Positions


@runtime_checkable
class AnySight(Protocol):
    """The mask of a pass: runs the kernel on each rectangle and joins the results."""

    def over(self, kernel: "Kernel", q: BHTK, k: RGSK, v: RGSK) -> BHTK: ...


@runtime_checkable
class AnyView(Protocol):
    """Which key a query may see, before a score bias is added."""

    def through(self, bias: "ScoreBiasFunction", dtype: torch.dtype) -> AnySight: ...


class Sight(NamedTuple):
    """The mask of one rectangle; `added` is None where nothing is added to the scores."""

    causal: bool  # the kernel's own triangle, valid only where query 0 and key 0 are the same position
    added: Added | None

    def over(self, kernel: "Kernel", q: BHTK, k: BGSK, v: BGSK) -> BHTK:
        return kernel(q, k, v, self)

    def matrix(self, queries: int, keys: int) -> Tensor:
        """All that is added to the scores, as a matrix: for inspection and checks, not for the fast path."""
        if self.added is not None:
            return self.added
        allowed = torch.ones(queries, keys, dtype=torch.bool)
        return to_additive_mask(allowed.tril() if self.causal else allowed, torch.float64)[None, None]


Kernel: TypeAlias = Callable[[Tensor, Tensor, Tensor, Sight], Tensor]


class QueryKeyView(NamedTuple):
    """One rectangle: positions of queries and keys, and which keys a query may see (`allowed` is None: all)."""

    queries: Positions
    keys: KeyPositions
    causal: bool = False
    allowed: Allowed | None = None

    def sight(self, dtype: torch.dtype) -> Sight:
        if self.allowed is None:
            return Sight(self.causal, None)
        return Sight(False, to_additive_mask(self.allowed, dtype))

    def sight_with(self, bias: Tensor, dtype: torch.dtype) -> Sight:
        """The score bias, and −inf where a query may not see a key."""
        allowed = allow_past(self.queries, self.keys, window=None) if self.causal else self.allowed
        if allowed is None:
            return Sight(False, bias.to(dtype))
        return Sight(False, bias.to(dtype).masked_fill(~allowed, float("-inf")))

    def through(self, bias: "ScoreBiasFunction", dtype: torch.dtype) -> Sight:
        return bias(self, dtype)


ScoreBiasFunction: TypeAlias = Callable[[QueryKeyView, torch.dtype], Sight]


class Group(NamedTuple):
    """Neighbouring texts that all have this many queries and keys."""

    texts: int
    queries: int
    keys: int


class Documents(NamedTuple):
    """Texts packed one after another: each sees only itself. Neighbours of equal size are one batch."""

    groups: tuple[Group, ...]
    sights: tuple[Sight, ...]

    def over(self, kernel: Kernel, q: BHTK, k: BGSK, v: BGSK) -> BHTK:
        parts = [
            fold(sight.over(kernel, *rectangle))
            for sight, rectangle in zip(self.sights, self.cut(q, k, v), strict=True)
        ]
        return torch.cat(parts, dim=2)

    def cut(self, q: BHTK, k: BGSK, v: BGSK) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """All groups in one split: the gradient of a single slice would be as large as the whole tensor."""
        queries = [group.texts * group.queries for group in self.groups]
        keys = [group.texts * group.keys for group in self.groups]
        parts = (torch.split(x[0], sizes, dim=1) for x, sizes in ((q, queries), (k, keys), (v, keys)))
        for (_, t, s), own_q, own_k, own_v in zip(self.groups, *parts, strict=True):
            yield unfold(own_q, t), unfold(own_k, s), unfold(own_v, s)

    def matrix(self, queries: int, keys: int) -> Tensor:
        full = torch.full((queries, keys), float("-inf"), dtype=torch.float64)[None, None]
        at_query = at_key = 0
        for (count, t, s), sight in zip(self.groups, self.sights, strict=True):
            own = sight.matrix(t, s).to(full)
            full = full.expand(1, max(full.shape[1], own.shape[1]), -1, -1).clone()
            for _ in range(count):
                full[:, :, at_query : at_query + t, at_key : at_key + s] = own
                at_query, at_key = at_query + t, at_key + s
        return full


class DocumentViews(NamedTuple):
    """Views of packed texts, before a score bias is added."""

    groups: tuple[Group, ...]
    views: tuple[QueryKeyView, ...]

    def through(self, bias: ScoreBiasFunction, dtype: torch.dtype) -> Documents:
        return Documents(self.groups, tuple(view.through(bias, dtype) for view in self.views))


def unfold(x: Tensor, length: int) -> Tensor:
    """[H, texts · length, K] → [texts, H, length, K], a view: no copy."""
    heads, tokens, width = x.shape
    return x.view(heads, tokens // length, length, width).transpose(0, 1)


def fold(x: Tensor) -> Tensor:
    """[count, H, length, K] → [1, H, count · length, K]"""
    return x.transpose(0, 1).flatten(1, 2)[None]


def to_additive_mask(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a query may see a key, −inf where not: added, never multiplied (a negative score times −inf is +inf)."""
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill(~allowed, float("-inf"))


def allow_past(queries: Positions, keys: KeyPositions, *, window: int | None) -> Allowed:
    """query i sees key j where i − window < j ≤ i"""
    ahead = keys - queries[:, None, :, None]
    allowed = ahead <= 0
    return allowed if window is None else allowed & (ahead > -window)


# --- the patterns, one for each situation ---------------------------------------------------------------------------


def count_up(length: int, device: torch.device) -> Tensor:
    return torch.arange(length, device=device)


def full_view(queries: int, keys: int, device: torch.device) -> QueryKeyView:
    """Every query sees every key: an encoder, or cross-attention."""
    return QueryKeyView(count_up(queries, device)[None], count_up(keys, device))


def two_sided_view(length: int, device: torch.device, *, window: int | None) -> QueryKeyView:
    """An encoder: each query sees the keys less than `window` positions away, on both sides."""
    if window is None or length <= window:
        return full_view(length, length, device)
    positions = count_up(length, device)
    allowed = (positions - positions[:, None]).abs() < window
    return QueryKeyView(positions[None], positions, allowed=allowed[None, None])


def causal_view(length: int, device: torch.device, *, window: int | None) -> QueryKeyView:
    """Each query sees itself and the past: a decoder without a cache."""
    positions = count_up(length, device)
    if window is None or length <= window:
        return QueryKeyView(positions[None], positions, causal=True)
    return QueryKeyView(positions[None], positions, allowed=allow_past(positions[None], positions, window=window))


def cached_view(past: tuple[int, ...], length: int, device: torch.device, *, window: int | None) -> QueryKeyView:
    """A decoder with a cache: row b has past[b] positions in the cache and `length` new ones.

    A slot of the cache is a position, so "no key after the query" also hides the slots after the end of a shorter row.
    """
    longest = max(past)
    if longest == 0:
        return causal_view(length, device, window=window)
    level = min(past) == longest
    keys = count_up(longest + length, device)
    starts = torch.tensor(past[:1] if level else past, device=device)
    queries = starts[:, None] + count_up(length, device)
    if level and length == 1 and (window is None or longest < window):
        return QueryKeyView(queries, keys)
    return QueryKeyView(queries, keys, allowed=allow_past(queries, keys, window=window))


def padded_view(lengths: tuple[int, ...], queries: int, device: torch.device) -> QueryKeyView:
    """Rows of sources of unequal length, padded to the longest: the padding is not seen."""
    keys = count_up(max(lengths), device)
    within = keys < torch.tensor(lengths, device=device)[:, None]
    return QueryKeyView(count_up(queries, device)[None], keys, allowed=within[:, None, None, :])


def packed_views(
    lengths: tuple[int, ...], keys: tuple[int, ...], view: Callable[[int, int], QueryKeyView]
) -> DocumentViews:
    """Packed texts; `view(queries, keys)` is the pattern within each of them."""
    groups = tuple(Group(len(list(same)), *size) for size, same in groupby(zip(lengths, keys, strict=True)))
    return DocumentViews(groups, tuple(view(group.queries, group.keys) for group in groups))


def draw(view: QueryKeyView, queries: int) -> str:
    """● where a query (row) sees a key (column)"""
    matrix = view.sight(torch.float64).matrix(queries, len(view.keys))[0, 0].expand(queries, -1)
    return "\n".join(" ".join("●" if cell == 0 else "·" for cell in row) for row in matrix.tolist())


if __name__ == "__main__":
    cpu = torch.device("cpu")
    for name, view in {
        "encoder: every query sees every key": full_view(5, 5, cpu),
        "encoder with a window of 2": two_sided_view(5, cpu, window=2),
        "decoder: itself and the past": causal_view(5, cpu, window=None),
        "decoder with a window of 2": causal_view(5, cpu, window=2),
        "decoder with 3 tokens in its cache and 2 new ones": cached_view((3,), 2, cpu, window=None),
        "cross-attention: target of 2, source of 5": full_view(2, 5, cpu),
    }.items():
        print(f"{name}\n{draw(view, view.queries.shape[1])}\n")
