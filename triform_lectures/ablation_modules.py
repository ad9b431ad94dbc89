"""Changed networks for experiments: small modules that replace a network's own where a spec has no such setting."""

from typing import cast

import torch
from torch import Tensor, nn

from triform.core.attention import Attend
from triform.core.blocks import Block, Residual
from triform.core.forms import Form
from triform.core.masks import Sight
from triform.core.positions import SinusoidalPositions


class MaskAfterSoftmax(Attend):
    """softmax over all keys, then 0 at masked keys; `divided`: the rest divided by its sum"""

    def __init__(self, scale: float, *, divided: bool) -> None:
        super().__init__(scale)
        self.divided = divided

    def kernel(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        allowed = sight.matrix(q.shape[2], k.shape[2]).to(q) == 0
        weights = (q @ k.transpose(-1, -2) * self.scale).softmax(-1) * allowed
        if self.divided:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights @ v


class ZeroOutput(nn.Module):
    """0: a sublayer that adds nothing"""

    def forward(self, x: Tensor, flow: object) -> Tensor:
        return torch.zeros_like(x)


class WithoutResidual(nn.Module):
    """f(x) without the x +: a sublayer without its residual connection"""

    def __init__(self, part: Residual) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor, flow: object) -> Tensor:
        part = self.part
        return part.outer(part.after(part.f(part.before(x), flow)))


class ConcatenatedPositions(nn.Module):
    """W [x; PE(pos)]: positions concatenated and projected, instead of added"""

    def __init__(self, width: int, *, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.table = SinusoidalPositions()
        self.weight = nn.Parameter(torch.randn(width, 2 * width, generator=generator) * (2 * width) ** -0.5)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        place = self.table(torch.zeros_like(x[:1]), positions).expand_as(x)
        return torch.cat((x, place), dim=-1) @ self.weight.T


def find_blocks(network: Form) -> list[Block]:
    return [module for module in network.modules() if isinstance(module, Block)]


def move_mask_after_softmax(network: Form, *, divided: bool) -> Form:
    for block in find_blocks(network):
        attention = block.get_submodule("attention.f")
        attention.attend = MaskAfterSoftmax(cast(Attend, attention.attend).scale, divided=divided)
    return network


def remove_feedforward(network: Form) -> Form:
    for block in find_blocks(network):
        block.get_submodule("feedforward").f = ZeroOutput()
    return network


def remove_residuals(network: Form) -> Form:
    for block in find_blocks(network):
        for name, part in list(block.named_children()):
            setattr(block, name, WithoutResidual(cast(Residual, part)))
    return network


def remove_norms(network: Form) -> Form:
    for block in find_blocks(network):
        for part in block.children():
            part.before, part.outer = nn.Identity(), nn.Identity()
    return network


def concatenate_positions(network: Form, *, width: int) -> Form:
    for stack in ("encoder", "decoder"):
        if hasattr(network, stack):
            network.get_submodule(f"{stack}.entry").position = ConcatenatedPositions(width)
    return network
