"""The mean loss on examples that are not learned from: an evaluation that every objective has."""

import math

from triform.core.forms import Form
from triform.train.examples import E, Examples, Place
from triform.train.feed import Feed
from triform.train.loop import Score
from triform.train.objectives import B, Objective

SEED = 0  # what is drawn for validation (masks, spans) is the same in every run


def mean_loss(network: Form, *, objective: Objective[E, B], examples: Examples[E], batch_tokens: int = 4096) -> Score:
    """Σ losses / Σ targets, once over all examples; lower is better."""
    feed = Feed(examples.lengths, seed=SEED, batch_tokens=batch_tokens)
    total, targets = 0.0, 0
    for rows in feed.epoch(0):
        places = [Place(SEED, 0, row) for row in rows.tolist()]
        batch = objective.batch(
            [examples.at(place) for place in places], places=places, device=network.token.weight.device
        )
        loss = objective.loss(network, batch)
        total, targets = total + loss.total.item(), targets + loss.targets
    mean = total / max(1, targets)
    return Score("loss", mean, higher=False, others={"perplexity": math.exp(min(mean, 700.0)), "targets": targets})
