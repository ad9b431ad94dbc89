"""Networks changed in ways a spec cannot say: small modules put in the place of a network's own. For experiments
only."""

from typing import cast

import torch
from torch import Tensor, nn

from triform.core.attention import Attend
from triform.core.blocks import Block, Residual
from triform.core.forms import Form
from triform.core.masks import Sight
from triform.core.positions import Sinusoid


class MaskAfter(Attend):
    """softmax over all keys, then 0 where a query may not look; `divided`: the rest divided by its sum"""

    def __init__(self, scale: float, *, divided: bool) -> None:
        super().__init__(scale)
        self.divided = divided

    def kernel(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        allowed = sight.matrix(q.shape[2], k.shape[2]).to(q) == 0
        weights = (q @ k.transpose(-1, -2) * self.scale).softmax(-1) * allowed
        if self.divided:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights @ v


class Nothing(nn.Module):
    """0: a part that adds nothing"""

    def forward(self, x: Tensor, flow: object) -> Tensor:
        return torch.zeros_like(x)


class Bare(nn.Module):
    """f(x) without the x +: a part whose residual connection is cut"""

    def __init__(self, part: Residual) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor, flow: object) -> Tensor:
        part = self.part
        return part.outer(part.after(part.f(part.before(x), flow)))


class Joined(nn.Module):
    """W [x; PE(pos)]: positions concatenated and projected, instead of added"""

    def __init__(self, width: int, *, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.table = Sinusoid()
        self.weight = nn.Parameter(torch.randn(width, 2 * width, generator=generator) * (2 * width) ** -0.5)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        place = self.table(torch.zeros_like(x[:1]), positions).expand_as(x)
        return torch.cat((x, place), dim=-1) @ self.weight.T


def blocks(network: Form) -> list[Block]:
    return [module for module in network.modules() if isinstance(module, Block)]


def mask_after_softmax(network: Form, *, divided: bool) -> Form:
    for block in blocks(network):
        attention = block.get_submodule("attention.f")
        attention.attend = MaskAfter(cast(Attend, attention.attend).scale, divided=divided)
    return network


def without_feedforward(network: Form) -> Form:
    for block in blocks(network):
        block.get_submodule("feedforward").f = Nothing()
    return network


def without_residuals(network: Form) -> Form:
    for block in blocks(network):
        for name, part in list(block.named_children()):
            setattr(block, name, Bare(cast(Residual, part)))
    return network


def without_norms(network: Form) -> Form:
    for block in blocks(network):
        for part in block.children():
            part.before, part.outer = nn.Identity(), nn.Identity()
    return network


def joined_positions(network: Form, *, width: int) -> Form:
    for stack in ("encoder", "decoder"):
        if hasattr(network, stack):
            network.get_submodule(f"{stack}.entry").position = Joined(width)
    return network
