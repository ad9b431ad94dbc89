"""Which head attends from nouns to adjectives, measured on sentences whose grammar is known."""

from typing import NamedTuple

import torch

from little_world import sentences
from triform.inspect.module_paths import StackName
from triform.model import Model
from triform_lectures.trained_models import look_at_text


class HeadShare(NamedTuple):
    """The best head: the mean weight of a noun's adjective in the noun's attention."""

    layer: int
    head: int
    share: float
    chance: float  # with uniform attention
    pairs: int
    all: tuple[tuple[float, ...], ...]  # layers × heads


@torch.no_grad()
def find_best_head(model: Model, *, count: int = 150, seed: int = 3) -> HeadShare:
    """Over unseen sentences, noun by noun."""
    side: StackName = "encoder" if model.spec.encoder is not None else "decoder"
    stack = model.spec.stacks[side]
    shift = 1 if model.spec.form == "decoder" else 0  # a decoder's text begins with the end of the one before
    on_adjective: list[torch.Tensor] = []
    chances: list[float] = []
    for sentence in sentences(split="test", seed=seed, count=count):
        view = look_at_text(model, sentence.english)
        if len(view.texts[side].ids) != shift + len(sentence.tokens) + 1:
            continue  # a word in pieces: places of words and tokens would differ
        layers = [view.attention(layer, stack=side) for layer in range(stack.layers)]
        weights = torch.stack([torch.tensor(each.values) for each in layers])
        for adjective, noun in sentence.adjective_of:
            on_adjective.append(weights[:, :, noun + shift, adjective + shift])
            seen = noun + shift + 1 if shift else weights.shape[-1]
            chances.append(1 / seen)
    share = torch.stack(on_adjective).mean(0)
    layer, head = divmod(int(share.argmax()), stack.attention.heads)
    return HeadShare(
        layer,
        head,
        float(share[layer, head]),
        sum(chances) / len(chances),
        len(on_adjective),
        tuple(tuple(row) for row in share.tolist()),
    )
