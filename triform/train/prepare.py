"""A network made ready for a run: dropout, frozen weights, LoRA, blocks recomputed or compiled; what precision is real.

Paths of weights stay as they are. Refuses to know data and objectives.
"""

from contextlib import AbstractContextManager, nullcontext
from fnmatch import fnmatch
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from triform.core.blocks import Block, Dropout, Entry, Residual
from triform.errors import TriformError, UnknownName
from triform.train import lora
from triform.train.config import Config


def prepare(network: nn.Module, config: Config) -> None:
    """All that the config says of the network itself."""
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
    for block in [each for each in network.modules() if isinstance(each, Block)]:
        block.__dict__.pop("forward", None)
        block._compiled_call_impl = None
    network.requires_grad_(True).eval()


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
            raise UnknownName("path of weights to freeze", glob, named)
        for p in frozen:
            p.requires_grad_(False)


def precision(config: Config, device: torch.device) -> AbstractContextManager[object]:
    """float32, or bfloat16 where the machine computes it; an emulated one is slower and worse."""
    if config.precision == "float32":
        return nullcontext()
    if not has_bfloat16(device):
        raise TriformError(f"precision=bfloat16: {device.type} of this machine does not compute it; use float32")
    return torch.autocast(device.type, dtype=torch.bfloat16)


def has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
