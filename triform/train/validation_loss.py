"""The result of an evaluation, and the evaluation that every objective has: the mean loss on validation examples."""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch

from triform.cooperative import pause
from triform.core.forms import Form
from triform.train.batch_sampler import Feed
from triform.train.examples import E, Examples, Place
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

SEED = 0  # of validation (masks, spans): the same in every run


@torch.no_grad()
def mean_loss(network: Form, *, objective: Objective[E, B], examples: Examples[E], batch_tokens: int = 4096) -> Score:
    """Σ losses / Σ targets over all examples; lower is better."""
    feed, device = Feed(examples.lengths, seed=SEED, batch_tokens=batch_tokens), network.token.weight.device
    total, targets = 0.0, 0
    for rows in feed.epoch(0):
        places = [Place(SEED, 0, row) for row in rows.tolist()]
        batch = objective.batch([examples.at(place) for place in places], places=places, device=device)
        pause()
        loss = objective.loss(network, batch)
        total, targets = total + loss.total.item(), targets + loss.targets
    return Score("loss", total / max(1, targets), higher=False, others={"targets": targets})
