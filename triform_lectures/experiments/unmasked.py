"""Training without a mask: a decoder that can read the word it is to predict."""

from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple

import torch

from triform.core.forms import Form
from triform.core.texts import Text
from triform.inspect.interventions import with_mask
from triform.train.run_config import Config
from triform_lectures import trained_models
from triform_lectures.experiments.run_trial import Trial, build_fresh, decoding_loss, run_trial

CONFIG = Config(seed=0, steps=200, batch_tokens=1024, learning_rate=3e-3, dropout=0.0, weight_decay=0.01)


class MaskTrial(NamedTuple):
    """The training run; the loss if the next word cannot be read; a text written by the model."""

    trial: Trial
    writing: float
    text: str


class MaskedAndUnmasked(NamedTuple):
    masked: MaskTrial
    unmasked: MaskTrial


def compare_masks() -> MaskedAndUnmasked:
    recipe = trained_models.decoder_recipe()
    return trained_models.remember(
        "unmasked",
        recipe.name(CONFIG),
        make=lambda: MaskedAndUnmasked(train_with_mask("past"), train_with_mask("all")),
        kind=MaskedAndUnmasked,
    )


def train_with_mask(mask: Literal["past", "all"]) -> MaskTrial:
    def setting(network: Form) -> AbstractContextManager[Any]:
        return with_mask(network, mask)

    network = build_fresh(trained_models.decoder_recipe().spec)
    trial = run_trial(network, config=CONFIG, setting=setting)
    with setting(network):
        return MaskTrial(trial, decoding_loss(network), decode_greedily(network))


@torch.no_grad()
def decode_greedily(network: Form, most: int = 12) -> str:
    """Greedy decoding from an empty prompt."""
    tokenizer = trained_models.load_world().tokenizer
    end = trained_models.end_token(tokenizer)
    ids = [end]
    for _ in range(most):
        ids.append(int(network(Text.of(torch.tensor([ids])))[0, -1].argmax()))
        if ids[-1] == end:
            break
    return tokenizer.decode(ids[1:]) or "(nothing: it ends at once)"
