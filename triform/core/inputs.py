"""Checks the ids of a caller and removes padding.

Every error about ids is raised here, before anything is allocated. Rows of equal length are passed on as they are; rows
of unequal length are packed one after another into a single row, so that nothing is computed on padding and no pad
token is ever seen.
"""

from collections.abc import Iterable, Iterator, Sequence
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


def compute_logits(
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
        raise InputError(f"this model has the form {spec.form!r}; use {way}")
    rows = check_inputs(ids, spec, keep=keep, kinds=kinds, what="ids" if target is None else "source")
    rows = rows.to(network.device)
    if target is not None:
        goal = check_inputs(target, spec, keep=target_keep, kinds=None, what="target")
        return compute_pair_logits(network, rows, goal.to(rows.ids.device))
    if rows.full:
        return network(rows.dense())
    order = sort_by_length(rows.lengths)
    text, unpack = rows.pack(order)
    scores = network(text)
    return unpack.restore(scores) if scores.dim() == 3 else unpack.restore_order(scores, order)


def compute_pair_logits(network: Form, source: "TokenRows", target: "TokenRows") -> Tensor:
    """Logits of an encoder-decoder, for rows of any lengths."""
    if len(source.ids) != len(target.ids):
        raise InputError(f"source has {len(source.ids)} rows, target has {len(target.ids)}; give one target per source")
    if source.full and target.full:
        return network(Pair(source.dense(), target.dense()))
    order = sort_by_length(source.lengths, target.lengths)
    packed, (text, unpack) = source.pack(order)[0], target.pack(order)
    return unpack.restore(network(Pair(packed, text)))


class Unpack(NamedTuple):
    """Where each real token was before packing: rows and columns of [B, T]."""

    batch: int
    width: int
    rows: Tensor
    columns: Tensor

    def restore(self, x: BTD) -> Tensor:
        """[1, N, D] → [B, T, D], zeros where there was padding."""
        full = x.new_zeros(self.batch, self.width, x.shape[-1])
        full[self.rows, self.columns] = x[0]
        return full

    def restore_order(self, x: Tensor, order: Sequence[int]) -> Tensor:
        """[B, labels] in the order of the caller's rows."""
        return x[torch.tensor(order, device=x.device).argsort()]


class TokenRows(NamedTuple):
    """Checked ids, which of them are real tokens (`keep`), and their segment ids; padding anywhere."""

    ids: BT
    keep: Tensor
    segment_ids: BT

    @property
    def full(self) -> bool:
        return bool(self.keep.all())

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(self.keep.sum(1).tolist())

    def to(self, device: torch.device) -> "TokenRows":
        return TokenRows(self.ids.to(device), self.keep.to(device), self.segment_ids.to(device))

    def dense(self) -> Text:
        return Text(self.ids, self.segment_ids)

    def pack(self, order: Sequence[int]) -> tuple[PackedText, Unpack]:
        """The real tokens of the rows, in this order of rows."""
        picked = torch.tensor(list(order), device=self.ids.device)
        at, columns = self.keep[picked].nonzero(as_tuple=True)
        rows = picked[at]
        lengths = self.lengths
        text = PackedText(
            self.ids[rows, columns][None], self.segment_ids[rows, columns][None], tuple(lengths[row] for row in order)
        )
        return text, Unpack(len(self.ids), self.ids.shape[1], rows, columns)


def check_inputs(ids: Ids, spec: ModelSpec, *, keep: Keep | None, kinds: Ids | None, what: str) -> TokenRows:
    """The rows, or an InputError that says what is wrong, where, and the way out."""
    tokens = to_ids(ids, what)
    real = torch.ones_like(tokens, dtype=torch.bool) if keep is None else to_mask(keep, tokens, what)
    segments = torch.zeros_like(tokens) if kinds is None else to_ids(kinds, f"{what} segment ids")
    if segments.shape != tokens.shape:
        raise InputError(
            f"{what}: kinds has shape {list(segments.shape)}, ids {list(tokens.shape)}; give one segment id per token"
        )
    lengths = real.sum(1)
    if not bool((lengths > 0).all()):
        row = int((lengths == 0).nonzero()[0])
        raise InputError(f"{what}: row {row} is all padding; every row needs at least one real token")
    if int(lengths.max()) > spec.context:
        row = int(lengths.argmax())
        raise InputError(
            f"{what}: row {row} has {int(lengths.max())} tokens, the model reads {spec.context}; shorten or split it"
        )
    _check_range(tokens, real, spec.vocab, f"{what}: token id", "the vocabulary")
    _check_range(segments, real, max(spec.embedding.kinds, 1), f"{what}: segment id", "the segments")
    return TokenRows(tokens, real, segments)


def to_ids(values: Ids, what: str) -> Tensor:
    """Token ids as a checked tensor [rows, tokens]."""
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InputError(f"{what}: ids are not rows of equal length of integers; pad them and pass keep") from None
    whole = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool)
    if tensor.numel() and not whole:
        raise InputError(f"{what}: ids are {tensor.dtype}; use integers (torch.int64)")
    if tensor.dim() != 2:
        raise InputError(f"{what}: ids have {tensor.dim()} axes, shape {list(tensor.shape)}; use [batch, tokens]")
    if tensor.numel() == 0:
        raise InputError(f"{what}: shape {list(tensor.shape)} holds no token; give at least one row of one token")
    return tensor.long()


def to_mask(keep: Keep, ids: Tensor, what: str) -> Tensor:
    """`keep` as a checked boolean tensor of the same shape as the ids."""
    try:
        tensor = torch.as_tensor(keep, device=ids.device)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{what}: keep is not rows of equal length of True and False") from None
    if tensor.dtype != torch.bool:
        raise InputError(f"{what}: keep is {tensor.dtype}; use torch.bool, True at real tokens (e.g. keep != 0)")
    if tensor.shape != ids.shape:
        raise InputError(f"{what}: keep has shape {list(tensor.shape)}, ids {list(ids.shape)}; they must be the same")
    return tensor


def _check_range(values: Tensor, real: Tensor, limit: int, name: str, of: str) -> None:
    found = values[real]
    bad = (found < 0) | (found >= limit)
    if bool(bad.any()):
        raise InputError(f"{name} {int(found[bad][0])} is outside {of} of {limit}; use 0 to {limit - 1}")


def sort_by_length(*lengths: Iterable[int]) -> list[int]:
    """An order in which rows of equal length are neighbours, so that attention batches them."""
    sizes = list(zip(*lengths, strict=True))
    return sorted(range(len(sizes)), key=sizes.__getitem__)


def split_by_tokens(*lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Rows of like lengths, about `most` tokens together; the longest first, so that memory is known at once."""
    some: list[int] = []
    tokens = 0
    for at in reversed(sort_by_length(*lengths)):
        size = sum(each[at] for each in lengths)
        if some and tokens + size > most:
            yield some
            some, tokens = [], 0
        some.append(at)
        tokens += size
    if some:
        yield some
