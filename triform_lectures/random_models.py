"""Small networks with random weights, in float64: what holds for them follows from the architecture, not from
training."""

from functools import lru_cache
from typing import cast

import torch
from torch import Tensor

from triform import families
from triform.core.forms import DecoderOnly, EncoderDecoder, EncoderOnly
from triform.core.initial_weights import build_network
from triform.core.texts import Text
from triform.model import Model
from triform.spec import ModelSpec, NoHead, NoPosition, Position, Tied, replace

VOCAB, WIDTH, HEADS, LAYERS = 40, 32, 4, 2


@lru_cache(maxsize=32)
def build_model(spec: ModelSpec, *, seed: int = 0) -> Model:
    return Model(spec, build_network(spec, seed=seed, dtype=torch.float64))


def decoder(*, layers: int = LAYERS, heads: int = HEADS) -> Model:
    return build_model(families.gpt2(vocab=VOCAB, width=WIDTH, layers=layers, heads=heads, context=64))


def encoder(*, layers: int = LAYERS, position: Position | None = None) -> Model:
    spec = families.bert(vocab=VOCAB, width=WIDTH, layers=layers, heads=HEADS, context=64, kinds=0, head=NoHead())
    return build_model(spec if position is None else replace(spec, position=position))


def pair(*, layers: int = LAYERS) -> Model:
    return build_model(families.vaswani(vocab=VOCAB, width=WIDTH, layers=layers, heads=HEADS, context=64))


def decoder_without_positions() -> Model:
    spec = families.gpt2(vocab=VOCAB, width=WIDTH, layers=LAYERS, heads=HEADS, context=64)
    return build_model(replace(spec, position=NoPosition(), head=Tied()))


def ids(*numbers: int) -> Text:
    return Text.of(torch.tensor([numbers]))


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def same(one: Tensor, other: Tensor, *, within: float = 1e-9) -> bool:
    return one.shape == other.shape and bool((one - other).abs().max() <= within)


def compare(one: Tensor, other: Tensor, *, within: float = 1e-9) -> tuple[bool, str]:
    """Whether they are equal, and a sentence about it: the last two arguments of a claim."""
    if one.shape != other.shape:
        return False, f"shapes {tuple(one.shape)} and {tuple(other.shape)}"
    if same(one, other, within=within):
        return True, f"equal within {within:.0e}".replace("e-0", "e-")
    return False, f"differ by up to {float((one - other).abs().max()):.2g}"


def count_true(cells: Tensor) -> str:
    """How many cells of a table are true."""
    return f"{int(cells.sum())} of {cells.numel()}"


@torch.no_grad()
def hidden(model: Model, *tokens: int) -> Tensor:
    """The output of the stack for one text, [T, D]"""
    return cast(EncoderOnly | DecoderOnly, model.network).hidden(ids(*tokens))[0]


def translator_network(*, layers: int = LAYERS) -> EncoderDecoder:
    return cast(EncoderDecoder, pair(layers=layers).network)


def decoder_network() -> DecoderOnly:
    return cast(DecoderOnly, decoder().network)
