"""Training without a mask: a decoder that may read the word it is to say."""

from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple

import torch

from triform.core.forms import Form
from triform.core.texts import Text
from triform.inspect.interventions import with_mask
from triform.train.run_config import Config
from triform_lectures import trained_models
from triform_lectures.experiments.run_trial import Trial, fresh, learn, writing_loss

CONFIG = Config(seed=0, steps=200, batch_tokens=1024, learning_rate=3e-3, dropout=0.0, weight_decay=0.01)


class Learned(NamedTuple):
    """How a model learned; its loss where the next word cannot be read; what it writes."""

    trial: Trial
    writing: float
    text: str


class Copies(NamedTuple):
    masked: Learned
    unmasked: Learned


def copies() -> Copies:
    recipe = trained_models.decoder()
    return trained_models.remembered("unmasked", recipe.name(CONFIG), make=trained_twice, kind=Copies)


def trained_twice() -> Copies:
    return Copies(learned("past"), learned("all"))


def learned(mask: Literal["past", "all"]) -> Learned:
    def setting(network: Form) -> AbstractContextManager[Any]:
        return with_mask(network, mask)

    network = fresh(trained_models.decoder().spec)
    trial = learn(network, config=CONFIG, setting=setting)
    with setting(network):
        return Learned(trial, writing_loss(network), written(network))


@torch.no_grad()
def written(network: Form, most: int = 12) -> str:
    """The likeliest word, again and again, from an empty beginning."""
    tokenizer = trained_models.world().tokenizer
    end = trained_models.end_of(tokenizer)
    ids = [end]
    for _ in range(most):
        ids.append(int(network(Text.of(torch.tensor([ids])))[0, -1].argmax()))
        if ids[-1] == end:
            break
    return tokenizer.decode(ids[1:]) or "(nothing: it ends at once)"
