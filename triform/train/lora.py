"""LoRA: a linear layer that stays as it is, and beside it a narrow one that learns; merged, it is one layer again.

The paths of the layer's own weight and bias do not change. Refuses to know which model it is in.
"""

import math
from fnmatch import fnmatch

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triform.core.build import Linear
from triform.core.output_heads import ReadHead
from triform.errors import TriformError, UnknownName


class Adapted(nn.Linear):
    """y = W x + b + (scale / rank) · up down x; up begins as 0, so that nothing has changed before the first step"""

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

    Except a head that tells labels: it is new for its task, so it learns in full.
    """
    if rank < 1:
        raise TriformError(f"lora: rank={rank}; use a rank from 1 up")
    linears = {path: each for path, each in network.named_modules() if isinstance(each, nn.Linear)}
    inside = {path: each for path, each in linears.items() if not path.startswith("readout.")}
    chosen = {path: each for path, each in inside.items() if any(fnmatch(path, glob) for glob in paths)}
    if not chosen:
        raise UnknownName("path of a linear layer", ", ".join(paths), {as_glob(path) for path in inside})
    new_head = isinstance(getattr(network, "readout", None), ReadHead)
    for path, p in network.named_parameters():
        p.requires_grad_(new_head and path.startswith("readout."))
    generator = torch.Generator().manual_seed(seed)
    for path, linear in chosen.items():
        _put(network, path, Adapted(linear, rank=rank, scale=scale, generator=generator))
    return list(chosen)


def merge(network: nn.Module) -> None:
    """Every adapted layer becomes a plain one that computes the same."""
    for path, each in list(network.named_modules()):
        if isinstance(each, Adapted):
            _put(network, path, each.merged())


def _put(network: nn.Module, path: str, layer: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(network.get_submodule(parent), name, layer)


def as_glob(path: str) -> str:
    """One path for all blocks: their numbers become *."""
    return ".".join("*" if part.isdigit() else part for part in path.split("."))
