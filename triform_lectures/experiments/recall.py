"""Recall against distance: one coloured letter in the middle of grey ones; its colour is to be named at the end.

There are `distance` grey letters on either side. A network that compresses the text into one vector must carry the
colour over all of them; one with attention can look back.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch

from triform import families
from triform.core.forms import Form, Network
from triform.core.initial_weights import build_network
from triform.core.texts import Pair, Text
from triform.spec import replace
from triform.train.examples import ExampleList, SourceTarget
from triform.train.loop import train
from triform.train.run_config import Config
from triform.train.token_objectives import SequenceToSequence
from triform_lectures.rnn import Recurrent
from triform_lectures.trained_models import remember

COLOURS, GREYS = 16, 16  # ids 0 … 15 and 16 … 31
START = COLOURS + GREYS
WIDTH = 48
DISTANCES = (1, 4, 16, 64)


class RecallByDistance(NamedTuple):
    """The share of colours named correctly, by distance; chance is 1/16."""

    parameters: int
    accuracy: dict[int, float]


def random_text(distance: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    row = rng.integers(COLOURS, COLOURS + GREYS, 2 * distance + 1)
    row[distance] = rng.integers(0, COLOURS)
    return row


def make_examples(distance: int, count: int, seed: int) -> ExampleList[SourceTarget]:
    rng = np.random.default_rng(seed)
    made = [random_text(distance, rng) for _ in range(count)]
    found = [SourceTarget(row, [int(row[len(row) // 2])]) for row in made]
    return ExampleList(found, lengths=[len(row) + 1 for row in made], fingerprint=f"recall {distance} {count} {seed}")


def build_networks() -> dict[str, Network]:
    spec = families.vaswani(vocab=START + 1, width=WIDTH, layers=1, heads=2, ff_width=WIDTH, context=512)
    first = replace(
        spec.stacks["encoder"], norm_at="pre", final_norm=True
    )  # post-norm stayed at chance at this learning rate
    return {
        "RNN": Recurrent(vocab=START + 1, width=WIDTH, attention=False),
        "RNN with attention": Recurrent(vocab=START + 1, width=WIDTH, attention=True),
        "Transformer": build_network(replace(spec, encoder=first, decoder=first), seed=0),
    }


STEPS, ROWS = 200, 32


def measure_recall(
    *, distances: Sequence[int] = DISTANCES, steps: int = STEPS, seed: int = 0
) -> dict[str, RecallByDistance]:
    parts = distances, steps, seed, ROWS, COLOURS, GREYS, WIDTH
    return remember("recall", *parts, make=lambda: train_all(distances, steps, seed), kind=dict[str, RecallByDistance])


def train_all(distances: Sequence[int], steps: int, seed: int) -> dict[str, RecallByDistance]:
    """New networks for each distance, all trained for the same number of steps."""
    found: dict[str, RecallByDistance] = {}
    for distance in distances:
        for name, network in build_networks().items():
            size = sum(p.numel() for p in network.parameters())
            train_network(network, distance, steps=steps, seed=seed)
            share = measure_accuracy(network, distance, seed=seed + 1)
            known = found.get(name, RecallByDistance(size, {}))
            found[name] = known._replace(accuracy=known.accuracy | {distance: share})
    return found


def train_network(network: Network, distance: int, *, steps: int, seed: int) -> None:
    config = Config(
        seed=seed,
        steps=steps,
        batch_tokens=ROWS * (2 * distance + 2),
        learning_rate=3e-3,
        weight_decay=0.0,
        dropout=0.0,
    )
    # The loop needs hidden, readout and token, which all these networks have.
    train(
        cast(Form, network),
        objective=SequenceToSequence(start=START),
        examples=make_examples(distance, 2000, seed),
        config=config,
    )


@torch.no_grad()
def measure_accuracy(network: Network, distance: int, *, seed: int, count: int = 200) -> float:
    rng = np.random.default_rng((seed, distance))
    source = torch.from_numpy(np.stack([random_text(distance, rng) for _ in range(count)]))
    logits = network(Pair(Text.of(source), Text.of(torch.full((count, 1), START))))
    return float((logits[:, -1].argmax(-1) == source[:, distance]).double().mean())
