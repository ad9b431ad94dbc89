"""Facts of the little world in a decoder, and their loss with some of its sublayers switched off."""

from collections.abc import Iterable
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import Tensor

from triform.core.texts import Text
from triform.inspect.taps import tap_outputs
from triform.model import Model
from triform_lectures.trained_models import end_token, load_world

# The last word is the fact.
FACTS = (
    "The European mole is a mammal",
    "The African elephant is a mammal",
    "Apple pie is sweet",
    "Apple phones are expensive",
    "One mole of carbon dioxide",
    "A sea lion cuddly toy",
)


class FactLosses(NamedTuple):
    """−log p of the fact's word: of the whole model, and with sublayers switched off."""

    facts: int
    whole: float
    feedforward: float
    attention: float
    layers: tuple[tuple[float, float], ...]  # feed-forward, attention
    sense: float  # the probability of the likeliest word, after the words in order
    nonsense: float  # and after the words backwards
    even: float  # were all words equally likely


@torch.no_grad()
def measure_fact_losses(model: Model) -> FactLosses:
    tokenizer, layers = load_world().tokenizer, model.spec.stacks["decoder"].layers
    texts = [[end_token(tokenizer), *tokenizer.encode(fact, special=False).ids] for fact in FACTS]

    def loss(*off: str) -> float:
        with ExitStack() as taps:
            for pattern in off:
                taps.enter_context(tap_outputs(model.network, pattern, replace_by_zeros))
            return sum(float(-next_word_probabilities(model, ids[:-1])[ids[-1]].log()) for ids in texts) / len(texts)

    def parts(name: str, which: Iterable[int]) -> list[str]:
        return [f"decoder.blocks.{layer}.{name}.drop" for layer in which]

    backwards = [[ids[0], *reversed(ids[1:-1])] for ids in texts]

    def likeliest(prompts: list[list[int]]) -> float:
        return sum(float(next_word_probabilities(model, ids).max()) for ids in prompts) / len(prompts)

    return FactLosses(
        len(texts),
        loss(),
        loss(*parts("feedforward", range(layers))),
        loss(*parts("attention", range(layers))),
        tuple((loss(*parts("feedforward", [i])), loss(*parts("attention", [i]))) for i in range(layers)),
        likeliest([ids[:-1] for ids in texts]),
        likeliest(backwards),
        1 / model.spec.vocab,
    )


def replace_by_zeros(path: str, inputs: tuple[object, ...], output: Tensor) -> Tensor:
    return torch.zeros_like(output)


def next_word_probabilities(model: Model, ids: list[int]) -> Tensor:
    """Probabilities of the next word."""
    logits: Tensor = model.network(Text.of(torch.tensor([ids])))
    return logits[0, -1].softmax(-1)
