"""Texts as the core reads them: token ids without padding.

Owns the door where padding ends. Rows of one length go through as they are; rows of unequal length are packed one behind
another into a single row, so that nothing is computed on padding and no pad token can ever be seen. Refuses to know
strings and tokenizers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from triform.core import masks
from triform.core.masks import AnyView
from triform.errors import InputError
from triform.shapes import BT, BTD, Positions


@dataclass(frozen=True, eq=False)
class Text:
    """B texts of T tokens each."""

    ids: BT
    kinds: BT
    lengths: tuple[int, ...] = ()  # of the texts packed in one row; none here

    @staticmethod
    def of(ids: BT) -> "Text":
        return Text(ids, torch.zeros_like(ids))

    def positions(self, past: tuple[int, ...]) -> Positions:
        """Counted on from what each row has behind it."""
        starts = torch.tensor(past, device=self.ids.device)
        return starts[:, None] + masks.counting(self.ids.shape[1], self.ids.device)

    def both_sides(self) -> AnyView:
        length = self.ids.shape[1]
        return masks.whole(length, length, self.ids.device)

    def past_only(self, past: tuple[int, ...], window: int | None) -> AnyView:
        return masks.continued(past, self.ids.shape[1], self.ids.device, window=window)

    def seen_by(self, target: "Text") -> AnyView:
        """The view of a target on this source."""
        return masks.whole(target.ids.shape[1], self.ids.shape[1], self.ids.device)

    def in_rows(self) -> "Source":
        return self

    def to_rows(self, x: Tensor) -> Tensor:
        """[B, G, S, K] with one source a row"""
        return x

    def first(self, x: BTD) -> Tensor:
        return x[:, 0]

    def last(self, x: BTD) -> Tensor:
        return x[:, -1]

    def each(self, x: BTD) -> Tensor:
        return x


@dataclass(frozen=True, eq=False)
class PackedText(Text):
    """Texts of these lengths one behind another in a single row; each counts its positions from 0."""

    @staticmethod
    def join(texts: Sequence[Tensor]) -> "PackedText":
        ids = torch.cat(list(texts))[None]
        return PackedText(ids, torch.zeros_like(ids), tuple(len(text) for text in texts))

    def positions(self, past: tuple[int, ...]) -> Positions:
        device = self.ids.device
        return torch.cat([masks.counting(length, device) for length in self.lengths])[None]

    def both_sides(self) -> AnyView:
        device = self.ids.device
        return masks.documents(self.lengths, self.lengths, lambda t, s: masks.whole(t, s, device))

    def past_only(self, past: tuple[int, ...], window: int | None) -> AnyView:
        if past != (0,):
            raise InputError("packed texts have no cache; read each text into a row of the cache of its own")
        device = self.ids.device
        return masks.documents(self.lengths, self.lengths, lambda t, s: masks.triangle(t, device, window=window))

    def seen_by(self, target: Text) -> AnyView:
        if len(target.lengths) != len(self.lengths):
            raise InputError("a packed source needs a packed target of as many texts; or use memory.in_rows()")
        device = self.ids.device
        return masks.documents(target.lengths, self.lengths, lambda t, s: masks.whole(t, s, device))

    def in_rows(self) -> "Source":
        return UnequalRows(self.lengths)

    def to_rows(self, x: Tensor) -> Tensor:
        parts = x[0].transpose(0, 1).split(list(self.lengths))
        return torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True).transpose(1, 2).contiguous()

    def first(self, x: BTD) -> Tensor:
        return x[0, self.ends() - torch.tensor(self.lengths, device=x.device)]

    def last(self, x: BTD) -> Tensor:
        return x[0, self.ends() - 1]

    def ends(self) -> Tensor:
        return torch.tensor(self.lengths, device=self.ids.device).cumsum(0)


class UnequalRows(NamedTuple):
    """Sources of these lengths, one a row, filled with zeros up to the longest; the filling is never seen."""

    lengths: tuple[int, ...]

    def seen_by(self, target: Text) -> AnyView:
        return masks.ending(self.lengths, target.ids.shape[1], target.ids.device)

    def in_rows(self) -> "Source":
        return self

    def to_rows(self, x: Tensor) -> Tensor:
        return x


class NoSource(NamedTuple):
    """A model of one stack has no source."""

    def seen_by(self, target: Text) -> AnyView:
        return masks.whole(1, 1, target.ids.device)

    def in_rows(self) -> "Source":
        return self

    def to_rows(self, x: Tensor) -> Tensor:
        return x


Source = Text | UnequalRows | NoSource


class Pair(NamedTuple):
    """A source and its target, both packed or both in rows."""

    source: Text
    target: Text


class Unpack(NamedTuple):
    """Where each real token stood before packing: rows and columns of a [B, T] rectangle."""

    batch: int
    width: int
    rows: Tensor
    columns: Tensor

    def back(self, x: BTD) -> Tensor:
        """[1, N, D] → [B, T, D], zeros where there was padding."""
        full = x.new_zeros(self.batch, self.width, x.shape[-1])
        full[self.rows, self.columns] = x[0]
        return full


class Rows(NamedTuple):
    """Checked ids and which of them are real tokens, as a person gives them; padding anywhere."""

    ids: BT
    keep: Tensor
    kinds: BT

    @property
    def full(self) -> bool:
        return bool(self.keep.all())

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(self.keep.sum(1).tolist())

    def dense(self) -> Text:
        return Text(self.ids, self.kinds)

    def pack(self, order: Sequence[int]) -> tuple[PackedText, Unpack]:
        """The real tokens of the rows, in this order of rows."""
        picked = torch.tensor(list(order), device=self.ids.device)
        at, columns = self.keep[picked].nonzero(as_tuple=True)
        rows = picked[at]
        lengths = self.lengths
        text = PackedText(
            self.ids[rows, columns][None], self.kinds[rows, columns][None], tuple(lengths[row] for row in order)
        )
        return text, Unpack(*self.ids.shape, rows, columns)


def checked(
    ids: Tensor | Sequence[Sequence[int]],
    *,
    keep: Tensor | Sequence[Sequence[bool]] | None,
    kinds: Tensor | Sequence[Sequence[int]] | None,
    vocab: int,
    context: int,
    most_kinds: int,
    what: str,
) -> Rows:
    """Everything a person can get wrong about ids, said before any size is allocated for it."""
    tokens = whole_numbers(ids, what)
    kept = torch.ones_like(tokens, dtype=torch.bool) if keep is None else truths(keep, tokens, what)
    sides = torch.zeros_like(tokens) if kinds is None else whole_numbers(kinds, f"{what} kinds")
    if sides.shape != tokens.shape:
        raise InputError(f"{what}: kinds has shape {list(sides.shape)}, ids {list(tokens.shape)}; give one kind a token")
    lengths = kept.sum(1)
    if not bool((lengths > 0).all()):
        row = int((lengths == 0).nonzero()[0])
        raise InputError(f"{what}: row {row} is all padding; every row needs at least one real token")
    if int(lengths.max()) > context:
        row = int(lengths.argmax())
        raise InputError(f"{what}: row {row} has {int(lengths.max())} tokens, the model reads {context}; shorten or split it")
    _within(tokens, kept, vocab, f"{what}: token id", "the vocabulary")
    _within(sides, kept, max(most_kinds, 1), f"{what}: segment kind", "the kinds")
    return Rows(tokens, kept, sides)


def whole_numbers(values: Tensor | Sequence[Sequence[int]], what: str) -> Tensor:
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InputError(f"{what}: these are not rows of equal length of whole numbers; pad them and pass keep") from None
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool:
        if tensor.numel():
            raise InputError(f"{what}: ids are {tensor.dtype}; use whole numbers (torch.int64)")
    if tensor.dim() != 2:
        raise InputError(f"{what}: ids have {tensor.dim()} axes, shape {list(tensor.shape)}; use [batch, tokens]")
    if tensor.numel() == 0:
        raise InputError(f"{what}: shape {list(tensor.shape)} holds no token; give at least one row of one token")
    return tensor.long()


def truths(keep: Tensor | Sequence[Sequence[bool]], ids: Tensor, what: str) -> Tensor:
    try:
        tensor = torch.as_tensor(keep, device=ids.device)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{what}: keep is not a rectangle of True and False") from None
    if tensor.dtype != torch.bool:
        raise InputError(f"{what}: keep is {tensor.dtype}; use torch.bool, True at real tokens (e.g. keep != 0)")
    if tensor.shape != ids.shape:
        raise InputError(f"{what}: keep has shape {list(tensor.shape)}, ids {list(ids.shape)}; they must be the same")
    return tensor


def _within(values: Tensor, kept: Tensor, limit: int, name: str, of: str) -> None:
    real = values[kept]
    bad = (real < 0) | (real >= limit)
    if bool(bad.any()):
        raise InputError(f"{name} {int(real[bad][0])} is outside {of} of {limit}; use 0 to {limit - 1}")


def by_length(*lengths: Iterable[int]) -> list[int]:
    """An order of rows in which equal sizes are neighbours, so that attention takes them together."""
    sizes = list(zip(*lengths, strict=True))
    return sorted(range(len(sizes)), key=sizes.__getitem__)
