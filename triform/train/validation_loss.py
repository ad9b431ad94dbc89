"""The result of an evaluation, and the evaluation that every objective has: the mean loss on validation examples."""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from triform.cluster.shared_evaluation import map_batches
from triform.cooperative import pause
from triform.core.forms import Form
from triform.data.shuffle import Indices
from triform.train.batch_sampler import BatchSampler
from triform.train.examples import E, ExamplePlace, Examples
from triform.train.objectives import B, Objective


class Score(NamedTuple):
    """The main value, which decides what is best, and others for information."""

    name: str
    value: float
    higher: bool = True  # whether higher is better
    others: dict[str, float] = {}  # noqa: RUF012

    def beats(self, best: float | None) -> bool:
        if not math.isfinite(self.value):  # JSON has no infinity or NaN
            return False
        return best is None or (self.value > best if self.higher else self.value < best)


Evaluate: TypeAlias = Callable[[Form], Score]

VALIDATION_SEED = 0  # of validation (masks, spans): the same in every run


@torch.no_grad()
def mean_loss(network: Form, *, objective: Objective[E, B], examples: Examples[E], batch_tokens: int = 4096) -> Score:
    """Σ losses / Σ targets over all examples; lower is better."""
    sampler = BatchSampler(examples.lengths, seed=VALIDATION_SEED, batch_tokens=batch_tokens)
    device = network.device

    def compute_loss(rows: Indices) -> tuple[Tensor, Tensor]:
        places = [ExamplePlace(VALIDATION_SEED, 0, row) for row in rows.tolist()]
        batch = objective.batch([examples.at(place) for place in places], places=places, device=device)
        pause()
        loss = objective.loss(network, batch)
        return loss.total, torch.tensor(loss.targets)

    total, targets = 0.0, 0
    for loss, count in map_batches(compute_loss, list(sampler.iterate_epoch(0))):
        total, targets = total + float(loss), targets + int(count)
    return Score("loss", total / max(1, targets), higher=False, others={"targets": targets})
