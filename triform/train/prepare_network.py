"""A network made ready for a run: dropout, frozen weights, LoRA, blocks recomputed or compiled; what precision is real.
And an ordinary one again after it.

Paths of weights stay as they are. Refuses to know data and objectives.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from fnmatch import fnmatch
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from triform.core import build
from triform.core.blocks import Block, Dropout, Entry, Residual
from triform.core.feedforward import FeedForward
from triform.errors import TriformError, UnknownName
from triform.files.errors import one_line
from triform.train import fast_gelu, lora
from triform.train.run_config import Config

Act: TypeAlias = Callable[[Tensor], Tensor]


def prepare(network: nn.Module, config: Config) -> None:
    """All that the config says of the network itself, once it is known that this machine can do it; and the faster
    GELU where that is for it."""
    device = next(network.parameters()).device
    check_machine(config, device)
    if device.type == "cpu" and config.precision == "float32" and not config.compile:
        change_act(network, build.gelu_tanh, fast_gelu.gelu_tanh)
    if config.dropout is not None:
        set_dropout(network, config.dropout)
    if config.lora:
        lora.adapt(network, paths=config.lora, rank=config.lora_rank, scale=config.lora_scale, seed=config.seed)
    freeze(network, config.freeze)
    for block in [each for each in network.modules() if isinstance(each, Block)]:
        if config.recompute:
            # Kept: only what enters the block. Everything inside is computed again when its gradient is needed.
            block.__dict__["forward"] = partial(checkpoint, block.forward, use_reentrant=False)
        if config.compile:
            block.compile()


def finish(network: nn.Module) -> None:
    """An ordinary network again."""
    lora.merge(network)
    change_act(network, fast_gelu.gelu_tanh, build.gelu_tanh)
    for block in [each for each in network.modules() if isinstance(each, Block)]:
        block.__dict__.pop("forward", None)
        block._compiled_call_impl = None
    network.requires_grad_(True).eval()


def change_act(network: nn.Module, old: Act, new: Act) -> None:
    """Not of gated ones: they hold what enters the act anyway, as half of a matrix, and the slope would come on top."""
    for each in network.modules():
        if type(each) is FeedForward and each.act is old:
            each.act = new


def set_dropout(network: nn.Module, share: float) -> None:
    for each in network.modules():
        if isinstance(each, Residual | Entry):
            each.drop = Dropout(share) if share else nn.Identity()


def freeze(network: nn.Module, globs: tuple[str, ...]) -> None:
    """Weights whose path fits one of these globs (`token.weight`, `encoder.blocks.0.*`) do not learn."""
    named = dict(network.named_parameters())
    for glob in globs:
        frozen = [p for path, p in named.items() if fnmatch(path, glob)]
        if not frozen:
            raise UnknownName("path of weights to freeze", glob, {lora.as_glob(path) for path in named})
        for p in frozen:
            p.requires_grad_(False)


def check_machine(config: Config, device: torch.device) -> None:
    """An emulated bfloat16 is slower and worse; without a compiler the first step would fail."""
    if config.precision == "bfloat16" and not has_bfloat16(device):
        raise TriformError(f"precision=bfloat16: {device.type} of this machine does not compute it; use float32")
    if config.compile:
        try:
            torch.compile(_tried)(torch.ones(2, device=device))
        except Exception as error:  # of whatever is missing: a compiler, its headers, a kernel language
            said = str(error).partition("\n")[0]
            raise TriformError(
                f"compile=true: torch cannot compile on this machine; leave it out ({one_line(said)})"
            ) from error


def _tried(x: Tensor) -> Tensor:
    return x.sin() + 1


def precision(config: Config, device: torch.device) -> AbstractContextManager[object]:
    """float32, or bfloat16 where `check_machine` allows it."""
    if config.precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
