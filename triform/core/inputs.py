"""The door where a person's ids come in and padding ends.

Everything that can be wrong about ids is said here, before any size is allocated for it. Rows of one length go through
as they are; rows of unequal length are packed one behind another into a single row, so that nothing is computed on
padding and no pad token can ever be seen, whatever it is.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from triform.core.forms import Form
from triform.core.texts import PackedText, Pair, Text
from triform.errors import InputError
from triform.shapes import BT, BTD
from triform.spec import ModelSpec

Ids: TypeAlias = Tensor | Sequence[Sequence[int]]
Keep: TypeAlias = Tensor | Sequence[Sequence[bool]]


def logits(
    network: Form,
    spec: ModelSpec,
    ids: Ids,
    *,
    target: Ids | None = None,
    keep: Keep | None = None,
    target_keep: Keep | None = None,
    kinds: Ids | None = None,
) -> Tensor:
    """Scores for every position, [B, T, V]; [B, labels] where the head reads one token. Scores of padding are 0."""
    if (target is not None) != (network.sides == 2) or (target is None and target_keep is not None):
        way = "logits(source, target=target)" if network.sides == 2 else "logits(ids)"
        raise InputError(f"this model is the form {spec.form!r}; use {way}")
    rows = checked(ids, spec, keep=keep, kinds=kinds, what="ids" if target is None else "source")
    rows = rows.to(network.token.weight.device)
    if target is not None:
        goal = checked(target, spec, keep=target_keep, kinds=None, what="target")
        return pair_logits(network, rows, goal.to(rows.ids.device))
    if rows.full:
        return network(rows.dense())
    order = by_length(rows.lengths)
    text, unpack = rows.pack(order)
    scores = network(text)
    return unpack.back(scores) if scores.dim() == 3 else unpack.back_rows(scores, order)


def pair_logits(network: Form, source: "Rows", target: "Rows") -> Tensor:
    if len(source.ids) != len(target.ids):
        raise InputError(f"source has {len(source.ids)} rows, target {len(target.ids)}; give one target a source")
    if source.full and target.full:
        return network(Pair(source.dense(), target.dense()))
    order = by_length(source.lengths, target.lengths)
    packed, (text, unpack) = source.pack(order)[0], target.pack(order)
    return unpack.back(network(Pair(packed, text)))


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

    def back_rows(self, x: Tensor, order: Sequence[int]) -> Tensor:
        """[B, labels] in the order the rows came in."""
        return x[torch.tensor(order, device=x.device).argsort()]


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

    def to(self, device: torch.device) -> "Rows":
        return Rows(self.ids.to(device), self.keep.to(device), self.kinds.to(device))

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
        return text, Unpack(len(self.ids), self.ids.shape[1], rows, columns)


def checked(ids: Ids, spec: ModelSpec, *, keep: Keep | None, kinds: Ids | None, what: str) -> Rows:
    """One clear sentence for each thing that can be wrong."""
    tokens = whole_numbers(ids, what)
    kept = torch.ones_like(tokens, dtype=torch.bool) if keep is None else truths(keep, tokens, what)
    sides = torch.zeros_like(tokens) if kinds is None else whole_numbers(kinds, f"{what} kinds")
    if sides.shape != tokens.shape:
        raise InputError(
            f"{what}: kinds has shape {list(sides.shape)}, ids {list(tokens.shape)}; give one kind a token"
        )
    lengths = kept.sum(1)
    if not bool((lengths > 0).all()):
        row = int((lengths == 0).nonzero()[0])
        raise InputError(f"{what}: row {row} is all padding; every row needs at least one real token")
    if int(lengths.max()) > spec.context:
        row = int(lengths.argmax())
        raise InputError(
            f"{what}: row {row} has {int(lengths.max())} tokens, the model reads {spec.context}; shorten or split it"
        )
    _within(tokens, kept, spec.vocab, f"{what}: token id", "the vocabulary")
    _within(sides, kept, max(spec.embedding.kinds, 1), f"{what}: segment kind", "the kinds")
    return Rows(tokens, kept, sides)


def whole_numbers(values: Ids, what: str) -> Tensor:
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InputError(
            f"{what}: these are not rows of equal length of whole numbers; pad them and pass keep"
        ) from None
    whole = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool)
    if tensor.numel() and not whole:
        raise InputError(f"{what}: ids are {tensor.dtype}; use whole numbers (torch.int64)")
    if tensor.dim() != 2:
        raise InputError(f"{what}: ids have {tensor.dim()} axes, shape {list(tensor.shape)}; use [batch, tokens]")
    if tensor.numel() == 0:
        raise InputError(f"{what}: shape {list(tensor.shape)} holds no token; give at least one row of one token")
    return tensor.long()


def truths(keep: Keep, ids: Tensor, what: str) -> Tensor:
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
