"""LayerNorm and RMSNorm, computed in float32 at least; the result has the dtype of the weight."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triform.precision import at_least_float32
from triform.shapes import BTHK, XD


class RmsNorm(nn.Module):
    """x / √(mean x² + eps) · γ"""

    def __init__(self, width: int, *, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    @property
    def factor(self) -> Tensor:
        return self.weight

    def forward(self, x: XD) -> XD:
        # Two passes over x; torch's own rms_norm has no fused CPU kernel and takes five.
        x = at_least_float32(x)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (x * (length.square() / x.shape[-1] + self.eps).rsqrt() * self.factor).to(self.weight.dtype)


class RmsNormFromOne(RmsNorm):
    """x / √(mean x² + eps) · (1 + w): the weight is stored as its distance from 1."""

    def __init__(self, width: int, *, eps: float) -> None:
        super().__init__(width, eps=eps)
        nn.init.zeros_(self.weight)

    @property
    def factor(self) -> Tensor:
        return 1.0 + at_least_float32(self.weight)


class LayerNorm(nn.LayerNorm):
    """(x − mean x) / √(variance of x + eps) · γ + β, by torch's fused kernel."""

    def forward(self, x: XD) -> XD:
        x, weight, bias = (at_least_float32(each) for each in (x, self.weight, self.bias))
        return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps).to(self.weight.dtype)


class LayerNormWithoutBias(nn.LayerNorm):
    """(x − mean x) / √(variance of x + eps) · γ"""

    def __init__(self, width: int, *, eps: float) -> None:
        super().__init__(width, eps=eps, bias=False)

    def forward(self, x: XD) -> XD:
        x, weight = at_least_float32(x), at_least_float32(self.weight)
        return F.layer_norm(x, self.normalized_shape, weight, None, self.eps).to(self.weight.dtype)


class OverAllHeads(nn.Module):
    """The heads of a position, normed together as one vector."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: BTHK) -> BTHK:
        return self.norm(x.flatten(2)).view(x.shape)
