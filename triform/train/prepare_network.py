"""Prepares a network for training (dropout, frozen weights, LoRA, recomputed or compiled blocks) and undoes it.

Paths of weights stay as they are.
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
from triform.core.blocks import Addition, Block, Dropout, EmbeddingLayer
from triform.core.feedforward import FeedForward
from triform.errors import TriformError, UnknownName
from triform.files.errors import to_one_line
from triform.train import fast_gelu, lora
from triform.train.run_config import Config

Act: TypeAlias = Callable[[Tensor], Tensor]


def prepare_network(network: nn.Module, config: Config) -> None:
    """Applies the config to the network if this machine supports it; and the faster GELU on a CPU."""
    device = next(network.parameters()).device
    check_machine(config, device)
    if device.type == "cpu" and config.precision == "float32" and not config.compile:
        change_act(network, build.gelu_tanh, fast_gelu.gelu_tanh)
    if config.dropout is not None:
        set_dropout(network, config.dropout)
    choose_trained(network, config)
    for block in _blocks(network):
        if config.recompute:
            # Stores only the input of the block; everything inside is computed again for the backward pass.
            block.__dict__["forward"] = partial(checkpoint, block.forward, use_reentrant=False)
        if config.compile:
            block.compile()


def choose_trained(network: nn.Module, config: Config) -> None:
    """Adds LoRA and freezes weights, as the config says."""
    if config.lora:
        lora.adapt(network, paths=config.lora, rank=config.lora_rank, scale=config.lora_scale, seed=config.seed)
    freeze(network, config.freeze)


def restore_network(network: nn.Module) -> None:
    """Undoes `prepare`, and merges LoRA into the weights."""
    lora.merge(network)
    change_act(network, fast_gelu.gelu_tanh, build.gelu_tanh)
    for block in _blocks(network):
        block.__dict__.pop("forward", None)
        block._compiled_call_impl = None
    network.requires_grad_(True).eval()


def _blocks(network: nn.Module) -> list[Block]:
    return [module for module in network.modules() if isinstance(module, Block)]


def change_act(network: nn.Module, old: Act, new: Act) -> None:
    """Not in gated layers: they store the input anyway, as half of a matrix, and the slope would be added to it."""
    for module in network.modules():
        if type(module) is FeedForward and module.act is old:
            module.act = new


def set_dropout(network: nn.Module, share: float) -> None:
    for module in network.modules():
        if isinstance(module, Addition | EmbeddingLayer):
            module.drop = Dropout(share) if share else nn.Identity()


def freeze(network: nn.Module, globs: tuple[str, ...]) -> None:
    """Freezes weights whose path matches one of these globs (`token.weight`, `encoder.blocks.0.*`)."""
    named = dict(network.named_parameters())
    for glob in globs:
        frozen = [p for path, p in named.items() if fnmatch(path, glob)]
        if not frozen:
            raise UnknownName("path of weights to freeze", glob, {lora.as_glob(path) for path in named})
        for p in frozen:
            p.requires_grad_(False)


def check_machine(config: Config, device: torch.device) -> None:
    """Refuses emulated bfloat16, which is slower and worse, and compile without a compiler."""
    if config.precision == "bfloat16" and not has_bfloat16(device):
        raise TriformError(f"precision=bfloat16: the {device.type} of this machine does not support it; use float32")
    if config.compile:
        try:
            torch.compile(lambda x: x.sin() + 1)(torch.ones(2, device=device))
        except Exception as error:  # a compiler, its headers or a kernel language is missing
            reason = to_one_line(str(error).partition("\n")[0])
            raise TriformError(f"compile=true: torch cannot compile here ({reason}); leave it out") from error


def make_autocast(config: Config, device: torch.device) -> AbstractContextManager[object]:
    """float32, or bfloat16 where `check_machine` allows it."""
    if config.precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
