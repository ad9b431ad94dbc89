"""GELU in its tanh form, for training on a CPU: value and slope from one sigmoid, where torch computes two tanh.

½ x (1 + tanh(√(2/π) (x + 0.044715 x³))) = x σ(w) with w = √(8/π) (x + 0.044715 x³). The backward pass needs the slope
instead of x: the value overwrites x, the gradient overwrites the slope. `F.gelu` is the slow twin.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

SCALE, CUBE = math.sqrt(8 / math.pi), 0.044715
CHUNK_NUMBERS = 1 << 19  # computed at a time: eight passes over 2 MB stay in the CPU cache


def gelu_tanh(x: Tensor) -> Tensor:
    """x σ(w), in place: only for a tensor that no other operation reads."""
    if not x.requires_grad:
        return F.gelu(x, approximate="tanh")
    value: Tensor = _Gelu.apply(x.contiguous())  # type: ignore[no-untyped-call]
    return value


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        slope, scratch = torch.empty_like(x), x.new_empty(min(CHUNK_NUMBERS, x.numel()))
        for a, d in zip(*(torch.split(each.view(-1), CHUNK_NUMBERS) for each in (x, slope)), strict=True):
            b = scratch[: len(a)]
            w = torch.addcmul(a, a, torch.mul(a, a, out=b), value=CUBE, out=b).mul_(SCALE)
            torch.sub(w, a, alpha=2 / 3 * SCALE, out=d)  # x w′ / 3
            s = w.sigmoid_()
            torch.addcmul(s, d.addcmul_(d, s, value=-1), s, value=3, out=d)  # σ + x w′ σ (1 − σ)
            a.mul_(s)
        ctx.mark_dirty(x)
        ctx.save_for_backward(slope)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        return slope.mul_(gradient)
