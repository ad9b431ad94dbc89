"""What the processes of a run do together: share work out, compare facts, add tensors up in one fixed order.

`Team` is one process alone: it shares and sends nothing. `ProcessTeam` is one of several. What travels is
tensors and JSON, never a pickle.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor

from triform.cluster.ordered_sum import sum_in_order
from triform.cluster.peer_watch import PeerWatch
from triform.cluster.rank import ALONE, Rank
from triform.errors import TriformError
from triform.precision import DTYPES

T = TypeVar("T")


class TensorPlan(msgspec.Struct, frozen=True, array_like=True):
    """What the bytes of a tensor mean."""

    dtype: str
    shape: tuple[int, ...]


DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()} | {torch.int64: "int64"}
NAMED_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


def unpack(data: Tensor, plans: Sequence[TensorPlan]) -> Iterator[Tensor]:
    """Tensors from their bytes, one behind another."""
    first = 0
    for plan in plans:
        dtype = NAMED_DTYPES[plan.dtype]
        last = first + math.prod(plan.shape) * dtype.itemsize
        yield data[first:last].clone().view(dtype).view(plan.shape)
        first = last


class DifferentRanks(TriformError):
    """The processes of a run do not agree about what they compute."""


class Team:
    """One process alone."""

    rank: Rank = ALONE

    @property
    def leads(self) -> bool:
        """The first process writes files and shows progress."""
        return self.rank.leads

    @property
    def size(self) -> int:
        return self.rank.size

    def share(self, count: int, *, of: int) -> range:
        """Which of `count` pieces this process computes: neighbours, where the work may have up to `of` pieces."""
        return self.share_of(self.rank.number, count, of=of)

    def share_of(self, number: int, count: int, *, of: int) -> range:
        first, last = (of * each // self.size for each in (number, number + 1))
        return range(min(first, count), min(last, count))

    def gather(self, value: T, *, type: Any, room: int = 0) -> list[T]:
        """The values of all processes, by rank; they travel as JSON. With `room`, the most bytes that any may need, in
        one message instead of two."""
        return [value]

    def gather_numbers(self, numbers: Sequence[float]) -> list[list[float]]:
        """Equally many numbers of every process, by rank."""
        return [list(numbers)]

    def gather_tensors(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """The tensors of all processes, by rank, of any shapes."""
        return [list(tensors)]

    def add_up(self, passes: Sequence[Sequence[Tensor]], *, counts: Sequence[int], into: Sequence[Tensor]) -> None:
        """`into` ← the sums over the passes of all processes, in their order; `counts` are passes by rank."""
        for total, first, *others in zip(into, *passes, strict=True):
            total.copy_(first)
            for other in others:
                total += other

    def check_alike(self, facts: Mapping[str, str]) -> None:
        """Raises `DifferentRanks` with the first fact that differs, and the ranks."""
        first, *others = self.gather(dict(facts), type=dict[str, str])
        for number, other in enumerate(others, start=1):
            for name, value in first.items():
                if other.get(name) != value:
                    raise DifferentRanks(
                        f"rank {number} has another {name} than rank 0: {other.get(name)} instead of {value}; "
                        "give all processes the same files and options"
                    )


class ProcessTeam(Team):
    """One of several processes, in a process group of torch."""

    def __init__(self, rank: Rank, watch: PeerWatch) -> None:
        self.rank, self.watch = rank, watch

    def gather(self, value: T, *, type: Any, room: int = 0) -> list[T]:
        data = bytearray(msgspec.json.encode(value).ljust(room))
        own = torch.frombuffer(data, dtype=torch.uint8)
        rows = self._collect(own) if room else self._collect_bytes(own)
        return [msgspec.json.decode(row.numpy().tobytes(), type=type) for row in rows]

    def gather_tensors(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        plans = self.gather(
            [TensorPlan(DTYPE_NAMES[each.dtype], tuple(each.shape)) for each in tensors], type=list[TensorPlan]
        )
        flat = [each.detach().cpu().contiguous().view(-1).view(torch.uint8) for each in tensors]
        rows = self._collect_bytes(torch.cat(flat) if flat else torch.empty(0, dtype=torch.uint8))
        return [[*unpack(row, plan)] for row, plan in zip(rows, plans, strict=True)]

    def _collect_bytes(self, own: Tensor) -> list[Tensor]:
        sizes = [int(size) for (size,) in self.gather_numbers([len(own)])]
        padded = own.new_zeros(max(sizes))
        padded[: len(own)] = own
        return [row[:size] for row, size in zip(self._collect(padded), sizes, strict=True)]

    def gather_numbers(self, numbers: Sequence[float]) -> list[list[float]]:
        rows = self._collect(torch.tensor(numbers, dtype=torch.float64))  # exact for Python's floats
        return [row.tolist() for row in rows]

    def _collect(self, own: Tensor) -> list[Tensor]:
        rows = [torch.empty_like(own) for _ in range(self.size)]
        with self._naming_losses():
            dist.all_gather(rows, own)
        return rows

    def add_up(self, passes: Sequence[Sequence[Tensor]], *, counts: Sequence[int], into: Sequence[Tensor]) -> None:
        with self._naming_losses():
            sum_in_order(passes, counts=counts, into=into)

    @contextmanager
    def _naming_losses(self) -> Iterator[None]:
        """A collective that fails does not know which process was lost; the watch does."""
        try:
            yield
        except RuntimeError as error:
            raise self.watch.explain(error) from None
