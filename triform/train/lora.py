"""LoRA: a frozen linear layer plus a low-rank one that is trained; merged, it is one layer again.

The paths of the layer's own weight and bias do not change.
"""

import math
from fnmatch import fnmatch

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triform.core.build import Linear
from triform.core.output_heads import ReadHead
from triform.errors import TriformError, UnknownName
from triform.weights.low_rank import LowRank


class Adapted(nn.Linear):
    """y = W x + b + (scale / rank) · up down x; up begins as 0, so that nothing changes before the first step"""

    def __init__(self, linear: nn.Linear, *, rank: int, scale: float, generator: torch.Generator) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.factor = scale / rank
        first = torch.rand(rank, self.in_features, generator=generator, dtype=torch.float64)
        bound = 1 / math.sqrt(self.in_features)
        self.lora_down = nn.Parameter(((2 * first - 1) * bound).to(self.weight))
        self.lora_up = nn.Parameter(self.weight.new_zeros(self.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.factor * F.linear(F.linear(x, self.lora_down), self.lora_up)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        linear = Linear(self.in_features, self.out_features, bias=False, device="meta")
        linear.weight, linear.bias = self.weight, self.bias
        linear.weight += self.factor * self.lora_up @ self.lora_down
        return linear.train(self.training)


def adapt(network: nn.Module, *, paths: tuple[str, ...], rank: int, scale: float, seed: int = 0) -> list[str]:
    """LoRA on the linear layers with these paths (globs: `*.attention.f.qkv`); everything else is frozen.

    Except a classification head: it is new, so it is trained in full.
    """
    if rank < 1:
        raise TriformError(f"lora: rank={rank}; use a rank from 1 up")
    linears = {path: layer for path, layer in network.named_modules() if isinstance(layer, nn.Linear)}
    inside = {path: layer for path, layer in linears.items() if not path.startswith("readout.")}
    chosen = {path: layer for path, layer in inside.items() if any(fnmatch(path, glob) for glob in paths)}
    if not chosen:
        raise UnknownName("path of a linear layer", ", ".join(paths), {as_glob(path) for path in inside})
    new_head = isinstance(getattr(network, "readout", None), ReadHead)
    for path, p in network.named_parameters():
        p.requires_grad_(new_head and path.startswith("readout."))
    generator = torch.Generator().manual_seed(seed)
    for path, linear in chosen.items():
        _replace(network, path, Adapted(linear, rank=rank, scale=scale, generator=generator))
    return list(chosen)


def extract(network: nn.Module) -> dict[str, LowRank]:
    """What each adapted layer adds to its frozen one; nothing where a new head was trained with them."""
    if isinstance(getattr(network, "readout", None), ReadHead):
        return {}
    layers = {path: layer for path, layer in network.named_modules() if isinstance(layer, Adapted)}
    return {
        path: LowRank(layer.lora_down.detach().clone(), layer.lora_up.detach().clone(), layer.factor)
        for path, layer in layers.items()
    }


def merge(network: nn.Module) -> None:
    """Merges every adapted layer into a plain one that computes the same."""
    for path, layer in list(network.named_modules()):
        if isinstance(layer, Adapted):
            _replace(network, path, layer.merged())


def _replace(network: nn.Module, path: str, layer: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(network.get_submodule(parent), name, layer)


def as_glob(path: str) -> str:
    """One glob for all blocks: their numbers become *."""
    return ".".join("*" if part.isdigit() else part for part in path.split("."))
