"""Tiny models with numbers that differ from head to head, and two texts for them."""

from functools import cache

import torch
from tiny_models import EVERY, word_tokenizer
from torch import Tensor

from triform.core import inputs
from triform.core.initial_weights import build_network
from triform.inspect.view import View, look
from triform.model import Model
from triform.text.tokenizer import Tokenizer

SOURCE = (3, 4, 5, 3, 9, 11, 2)
TARGET = (1, 5, 6, 2)
HOSTILE = '</script><img/src=x/onerror="alert(1)">&\u202e\x1b[31m'


@cache
def model_of(name: str, dtype: torch.dtype = torch.float32) -> Model:
    """Every number moved a little, so that norms and biases are not the 1 and 0 they begin with."""
    model = Model(EVERY[name], build_network(EVERY[name], dtype=dtype))
    dice = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=dice, dtype=torch.float64).to(dtype)
    return model


def seen(model: Model, ids: tuple[int, ...] = SOURCE) -> View:
    return look(model, ids, TARGET) if model.spec.form == "encoder-decoder" else look(model, ids)


@torch.no_grad()
def logits(
    model: Model, ids: tuple[int, ...] = SOURCE, *, target: tuple[int, ...] = TARGET, keep: object = None
) -> Tensor:
    """Without a tap: through the front door."""
    goal = [target] if model.spec.form == "encoder-decoder" else None
    rows = [ids] if isinstance(ids[0], int) else ids
    return inputs.compute_logits(model.network, model.spec, rows, target=goal, keep=keep)  # type: ignore[arg-type]


def kernels(model: Model) -> list[dict[str, object]]:
    """Where there is attention: arguments for `view.attention` and its like."""
    cross = model.spec.form == "encoder-decoder"
    return [
        {"layer": layer, "kind": kind, "stack": stack}
        for stack, spec in model.spec.stacks.items()
        for kind in (("self", "cross") if cross and stack == "decoder" else ("self",))
        for layer in range(spec.layers)
    ]


def hostile_tokenizer() -> Tokenizer:
    """The second word of the vocabulary is an attack on every screen; the last is the end."""
    return word_tokenizer(["the", HOSTILE, *(f"w{i}" for i in range(26)), "<end>"], eos="<end>")
