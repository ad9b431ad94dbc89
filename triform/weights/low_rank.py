"""Low-rank adapters: y = W x + b + Σ factor · up (down x), beside weights that belong to the base alone.

An adapted network has modules of its own and the tensors of its base: several adapters of one base need its weights
once. Refuses to know files.
"""

import copy
import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triform.core.forms import Form
from triform.shapes import XD, XV

AnyForm = TypeVar("AnyForm", bound=Form)


class LowRank(NamedTuple):
    """What is added to a matrix: factor · up · down, [out, R] times [R, in]."""

    down: Tensor
    up: Tensor
    factor: float

    def matrix(self) -> Tensor:
        """The same as one matrix, in float32 at least."""
        wide = torch.promote_types(self.up.dtype, torch.float32)
        return self.factor * self.up.to(wide) @ self.down.to(wide)


class AdaptedLinear(nn.Linear):
    """A linear layer, of which weight and bias are those of the base, and what adapters add to it."""

    def __init__(self, linear: nn.Linear, parts: Sequence[LowRank]) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.parts = tuple(parts)
        self.base = (linear,)  # in a tuple, so that it is no module of its own

    def forward(self, x: XD) -> XV:
        y = self.base[0].forward(x)
        for part in self.parts:
            y = y + part.factor * F.linear(F.linear(x, part.down), part.up)
        return y

    def merge(self) -> Tensor:
        """One matrix that computes the same."""
        wide = torch.promote_types(self.weight.dtype, torch.float32)
        return (self.weight.to(wide) + sum(part.matrix() for part in self.parts)).to(self.weight.dtype)


def adapt_network(network: AnyForm, adapters: Sequence[Mapping[str, LowRank]]) -> AnyForm:
    """Modules of its own, with the tensors of this network, and at these paths what all adapters add."""
    tensors = (*network.parameters(), *network.buffers())
    adapted = copy.deepcopy(network, {id(tensor): tensor for tensor in tensors})
    for path in sorted({path for adapter in adapters for path in adapter}):
        parent, _, name = path.rpartition(".")
        holder = adapted.get_submodule(parent)
        linear = getattr(holder, name)
        parts = [adapter[path] for adapter in adapters if path in adapter]
        kept = linear.parts if isinstance(linear, AdaptedLinear) else ()
        base = linear.base[0] if isinstance(linear, AdaptedLinear) else linear
        setattr(holder, name, AdaptedLinear(base, [*kept, *parts]))
    return adapted


def find_adapted(network: nn.Module) -> dict[str, AdaptedLinear]:
    """The adapted layers of a network by their paths."""
    return {path: layer for path, layer in network.named_modules() if isinstance(layer, AdaptedLinear)}


def hash_weights_of(network: nn.Module) -> str:
    """SHA-256 of the weights as float32: the same in every precision that holds them exactly; adapters do not count."""
    made = hashlib.sha256()
    for path, p in sorted(network.named_parameters()):
        if not path.endswith((".lora_down", ".lora_up")):
            made.update(path.encode())
            made.update(p.detach().cpu().float().contiguous().view(torch.uint8).numpy().data)
    return made.hexdigest()


@torch.no_grad()
def merge_adapters(network: AnyForm) -> AnyForm:
    """A network that computes the same with plain layers; only the matrices that were adapted are its own."""
    tensors = (*network.parameters(), *network.buffers())
    merged = copy.deepcopy(network, {id(tensor): tensor for tensor in tensors})
    for path, layer in find_adapted(merged).items():
        parent, _, name = path.rpartition(".")
        plain = copy.copy(layer.base[0])
        plain._parameters = dict(plain._parameters) | {"weight": nn.Parameter(layer.merge())}
        setattr(merged.get_submodule(parent), name, plain)
    return merged
