"""How much each input of each matrix matters, from a text that the model reads: the mean square of what arrives there.

An error of a weight changes the output by the error times its input, so quantising spends its precision where inputs
are large.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from triform.core.forms import EncoderDecoder, Form
from triform.core.quantized_network import ENDING
from triform.core.texts import Pair, Text
from triform.errors import InputError
from triform.model import Model

MIN_TOKENS = 256  # fewer say little about hundreds of inputs
MAX_TOKENS = 32_768  # more change nothing
WINDOW = 256


@torch.no_grad()
def measure_importance(
    model: Model, text: str, *, what: str, said: Callable[[int, int], None] = lambda done, of: None
) -> dict[str, Tensor]:
    """By the path of a linear layer's weight; `what` names the text, `said` is called with tokens read and all."""
    ids = list(model.require_tokenizer().encode(text).ids)[:MAX_TOKENS]
    if len(ids) < MIN_TOKENS:
        raise InputError(f"{what} has {len(ids)} tokens; to calibrate, give a text of at least {MIN_TOKENS}")
    sums: dict[str, Tensor] = {}

    def listen(path: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def add(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            squares = inputs[0].flatten(0, -2).double().square().sum(0)
            sums[path] = sums[path] + squares if path in sums else squares

        return add

    layers = [(path, module) for path, module in model.network.named_modules() if isinstance(module, nn.Linear)]
    hooks = [module.register_forward_pre_hook(listen(path + ENDING)) for path, module in layers]
    try:
        window = min(WINDOW, model.spec.context)
        for at in range(0, len(ids), window):
            read_window(model.network, torch.tensor([ids[at : at + window]]))
            said(min(at + window, len(ids)), len(ids))
    finally:
        for hook in hooks:
            hook.remove()
    return {path: (total / len(ids)).float() for path, total in sums.items()}


def read_window(network: Form, ids: Tensor) -> None:
    """An encoder-decoder reads the text as its source, and again as its target."""
    text = Text.of(ids)
    network(Pair(text, text) if isinstance(network, EncoderDecoder) else text)
