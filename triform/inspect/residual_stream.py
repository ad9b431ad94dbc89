"""The residual stream: what each part added to it, how long it is, where it turns, what it would say.

Arithmetic over tensors that a pass left behind, in float64; which pass it was is `view.py`'s business.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from triform.core.forms import Form
from triform.errors import InputError
from triform.inspect.taps import Record
from triform.shapes import BTD
from triform.spec import ModelSpec, Own, Tied, Transformed

CHUNK = 256  # positions whose scores over a whole vocabulary are held at once


class Entry(NamedTuple):
    """Who added what to the stream, [T, D]"""

    name: str
    added: Tensor


def ledger(record: Record, path: str, parts: Iterable[str], positions: slice) -> list[Entry]:
    """input + what each part added (+ what the norm after it did) = output of the block."""
    entries = [Entry("input", record.call(path).inputs[0][0, positions].double())]
    for part in parts:
        entries.append(Entry(part, record.call(f"{path}.{part}.drop").output[0, positions].double()))
        (entered, *_), left = record.call(f"{path}.{part}.outer")
        if left is not entered:  # a norm stands on the stream itself (post-norm): it rewrites, it does not add
            rewritten = left[0, positions].double() - entered[0, positions].double()
            entries.append(Entry(f"norm after {part}", rewritten))
    return entries


def angles(one: Tensor, other: Tensor) -> Tensor:
    """Degrees between vectors along the last axis; exactly 0 between equal ones (Kahan's formula)."""
    a, b = (x.double() / x.double().norm(dim=-1, keepdim=True) for x in (one, other))
    return torch.rad2deg(2 * torch.atan2((a - b).norm(dim=-1), (a + b).norm(dim=-1)))


def check_speaks(spec: ModelSpec) -> None:
    if not isinstance(spec.head, Tied | Own | Transformed):
        raise InputError(f"this model's head is {type(spec.head).__name__}: it says no words, so there is nothing next")


@torch.no_grad()
def said(network: Form, stack: str, x: BTD) -> Iterator[Tensor]:
    """What the final norm and the head would say if the stream ended here: logits, [T, V], some positions at a time."""
    final = network.get_submodule(stack).get_submodule("final")
    for part in torch.split(x, CHUNK, dim=1):
        yield network.head(final(part))[0]
