"""LayerNorm and RMSNorm, computed in float32 at least; the result has the dtype of the weight."""

import torch
from torch import nn
from torch.nn import functional as F

from triform.precision import at_least_float32
from triform.shapes import XD


class RmsNorm(nn.Module):
    """x / √(mean x² + eps) · γ"""

    def __init__(self, width: int, *, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: XD) -> XD:
        # Two passes over x; torch's own rms_norm has no fused CPU kernel and takes five.
        x = at_least_float32(x)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (x * (length.square() / x.shape[-1] + self.eps).rsqrt() * self.weight).to(self.weight.dtype)


class LayerNorm(nn.LayerNorm):
    """(x − mean x) / √(variance of x + eps) · γ + β, by torch's fused kernel."""

    def forward(self, x: XD) -> XD:
        x, weight, bias = (at_least_float32(each) for each in (x, self.weight, self.bias))
        return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps).to(self.weight.dtype)
