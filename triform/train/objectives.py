"""Objectives: an objective makes a batch of examples and computes the loss of a network on it.

A loss is a *sum* and the exact number of targets in it, so that the loop can normalise by all targets of a step however
many passes it takes. Texts of one length are stacked, others are packed one after another, equal lengths as
neighbours: nothing is computed on padding.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from triform.core.forms import Form
from triform.core.inputs import sort_by_length
from triform.core.texts import PackedText, Text
from triform.errors import InputError
from triform.precision import at_least_float32
from triform.train.examples import ExamplePlace, Ids

IGNORED = -100  # a target that is ignored
Device: TypeAlias = torch.device | str


class Loss(NamedTuple):
    """The sum of the losses, and the number of targets."""

    total: Tensor
    targets: int


E_contra = TypeVar("E_contra", contravariant=True)
B = TypeVar("B")


class Objective(Protocol[E_contra, B]):
    """`batch` may draw random numbers, of the places only; `loss` is a function of the network and the batch."""

    def batch(self, examples: Sequence[E_contra], *, places: Sequence[ExamplePlace], device: Device) -> B: ...

    def loss(self, network: Form, batch: B) -> Loss: ...


class WholeBatchObjective:
    """An objective that compares the examples of a pass with one another: gradient accumulation would change it."""


def zero_loss(network: Form) -> Loss:
    return Loss(at_least_float32(torch.zeros((), dtype=network.dtype, device=network.device)), 0)


# --- batches --------------------------------------------------------------------------------------------------------


def to_tensor(values: Ids, *, device: Device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(device)


def sort_order(*rows: Sequence[Ids]) -> list[int]:
    """An order in which texts of equal length are neighbours."""
    return sort_by_length(*([len(row) for row in each] for each in rows))


def batch_texts(rows: Sequence[Ids], *, device: Device, segment_ids: Sequence[Ids | None] = ()) -> Text:
    """One text per row if all have one length; else packed, in this order."""
    ids = to_tensor(np.concatenate(rows), device=device)
    segments = torch.zeros_like(ids)
    if any(kind is not None for kind in segment_ids):
        filled = [
            np.zeros(len(row), np.int64) if kind is None else kind for row, kind in zip(rows, segment_ids, strict=True)
        ]
        segments = to_tensor(np.concatenate(filled), device=device)
        if segments.shape != ids.shape:
            raise InputError(f"{len(segments)} segment ids for {len(ids)} tokens; give one segment id per token")
    lengths = tuple(len(row) for row in rows)
    if len(set(lengths)) == 1:
        return Text(ids.view(len(rows), -1), segments.view(len(rows), -1))
    return PackedText(ids[None], segments[None], lengths)


def pack_texts(rows: Sequence[Ids], *, device: Device) -> Text:
    return PackedText.join([to_tensor(row, device=device) for row in rows])


def mean_vectors(text: Text, x: Tensor) -> Tensor:
    """[B, D]: the mean vector per text, in float32 at least; added up in one order, however many texts there are."""
    flat = at_least_float32(x).flatten(0, 1)
    lengths = torch.tensor(text.lengths or [x.shape[1]] * len(x), device=x.device)
    order = torch.arange(len(flat), device=x.device)
    sums = F.embedding_bag(order, flat, lengths.cumsum(0) - lengths, mode="sum")
    return sums / lengths[:, None]


def split_by_text(text: Text, x: Tensor) -> list[Tensor]:
    """The part of x per text, [T, …] each."""
    return list(torch.split(x[0], list(text.lengths))) if text.lengths else list(x)
