"""Which examples each step uses: the batches of an epoch, shuffled, each divided into gradient accumulation passes.

Everything follows from the lengths, the seed and the position, so a run can resume at any batch.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from triform.data.batches import batch_by_tokens
from triform.data.shuffle import Indices, make_order
from triform.errors import TriformError


class Position(NamedTuple):
    """The number of a batch in an epoch."""

    epoch: int = 0
    batch: int = 0


class StepRows(NamedTuple):
    """The rows of each pass of a step, and the position of the next step."""

    epoch: int
    passes: tuple[Indices, ...]
    after: Position


class BatchSampler:
    """Yields steps without end, epoch after epoch."""

    def __init__(self, lengths: npt.NDArray[np.int64], *, seed: int, batch_tokens: int, passes: int = 1) -> None:
        if not len(lengths):
            raise TriformError("there are no examples to train on")
        self.lengths, self.seed, self.batch_tokens, self.passes = lengths, seed, batch_tokens, passes

    def iterate_steps(self, start: Position = Position()) -> Iterator[StepRows]:  # noqa: B008
        epoch, batch = start
        while True:
            for rows in self.iterate_epoch(epoch, batch):
                batch += 1
                yield StepRows(epoch, tuple(split_passes(rows, self.lengths, self.passes)), Position(epoch, batch))
            epoch, batch = epoch + 1, 0

    def count_steps(self, epochs: int) -> int:
        """The number of steps in the first `epochs` epochs."""
        return sum(1 for epoch in range(epochs) for _ in self.iterate_epoch(epoch))

    def count_tokens(self, step: StepRows) -> int:
        return sum(int(self.lengths[rows].sum()) for rows in step.passes)

    def mean_step_tokens(self) -> float:
        """The mean number of tokens per step."""
        return float(self.lengths.sum()) / self.count_steps(1)

    def iterate_epoch(self, epoch: int, start: int = 0) -> Iterator[Indices]:
        shuffled = make_order(len(self.lengths), seed=self.seed, epoch=epoch)
        return batch_by_tokens(self.lengths, batch_tokens=self.batch_tokens, order=shuffled, start=start)


def split_passes(rows: Indices, lengths: npt.NDArray[np.int64], passes: int) -> Iterator[Indices]:
    """Splits rows in order, about equally many tokens per pass; fewer passes if there are fewer rows."""
    sizes = np.maximum(lengths[rows], 1)
    middles = np.cumsum(sizes) - sizes / 2
    cuts = np.searchsorted(middles, sizes.sum() * np.arange(1, passes) / passes)
    yield from (part for part in np.split(rows, cuts) if len(part))
