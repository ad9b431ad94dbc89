"""Training without a mask: a decoder that may read the word it is to say."""

from typing import Literal, NamedTuple

import torch

from triform.core.batch import Text
from triform.core.build import build
from triform.core.forms import Form
from triform.lecture import trained
from triform.observe.interventions import with_mask
from triform.train.config import Config
from triform.train.events import AnyEvent, Stepped
from triform.train.loop import train

CONFIG = Config(seed=0, steps=200, batch_tokens=1024, learning_rate=3e-3, dropout=0.0, weight_decay=0.01)


class Copies(NamedTuple):
    """Losses in training; losses of the next word where it cannot be read; what each writes."""

    steps: tuple[int, ...]
    masked_loss: tuple[float, ...]
    open_loss: tuple[float, ...]
    masked_writing: float
    open_writing: float
    masked_text: str
    open_text: str


def copies() -> Copies:
    recipe = trained.decoder()
    return trained.remembered("unmasked", recipe.name(CONFIG), make=trained_twice, kind=Copies)


def trained_twice() -> Copies:
    masked, masked_curve = learned("past")
    opened, open_curve = learned("all")
    every = tuple(range(0, len(masked_curve), 10))
    return Copies(
        tuple(step + 1 for step in every),
        tuple(masked_curve[step] for step in every),
        tuple(open_curve[step] for step in every),
        writing_loss(masked, "past"),
        writing_loss(opened, "all"),
        written(masked, "past"),
        written(opened, "all"),
    )


def learned(mask: Literal["past", "all"]) -> tuple[Form, list[float]]:
    recipe = trained.decoder()
    network = build(recipe.spec, seed=0)
    losses: list[float] = []

    def watch(event: AnyEvent) -> None:
        if isinstance(event, Stepped):
            losses.append(event.loss)

    with with_mask(network, mask):
        train(network, objective=recipe.objective, examples=recipe.examples, config=CONFIG, watch=watch)
    return network, losses


@torch.no_grad()
def writing_loss(network: Form, mask: Literal["past", "all"], count: int = 40) -> float:
    """−log p of each word from the words before it alone: what a writer has."""
    recipe = trained.decoder()
    total, targets = 0.0, 0
    with with_mask(network, mask):
        for ids in [recipe.examples.at(trained.place(row)).ids for row in range(count)]:
            for t in range(1, len(ids)):
                logits = network(Text.of(torch.tensor([ids[:t]])))[0, -1]
                total, targets = total - float(logits.log_softmax(-1)[ids[t]]), targets + 1
    return total / targets


@torch.no_grad()
def written(network: Form, mask: Literal["past", "all"], most: int = 12) -> str:
    """The likeliest word, again and again, from an empty beginning."""
    tokenizer = trained.world().tokenizer
    end = trained.end_of(tokenizer)
    ids = [end]
    with with_mask(network, mask):
        for _ in range(most):
            ids.append(int(network(Text.of(torch.tensor([ids])))[0, -1].argmax()))
            if ids[-1] == end:
                break
    return tokenizer.decode(ids[1:]) or "(nothing: it ends at once)"
