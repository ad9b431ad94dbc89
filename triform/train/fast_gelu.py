"""GELU in its tanh form, for training on a CPU: value and slope from one sigmoid, where torch takes two tanh.

½ x (1 + tanh(√(2/π) (x + 0.044715 x³))) = x σ(w) with w = √(8/π) (x + 0.044715 x³). What is kept for the backward pass
is the slope instead of x: the value takes x's place in memory, the gradient the slope's. `F.gelu` is the slow twin.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

RATE, CUBE = math.sqrt(8 / math.pi), 0.044715
PIECE = 1 << 19  # numbers worked on at once: eight passes over 2 MB stay in the cache


def gelu_tanh(x: Tensor) -> Tensor:
    """x σ(w), where x was: for what a linear layer has just made, and nobody else reads."""
    if not x.requires_grad:
        return F.gelu(x, approximate="tanh")
    made: Tensor = _Gelu.apply(x.contiguous())  # type: ignore[no-untyped-call]
    return made


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        slope, room = torch.empty_like(x), x.new_empty(min(PIECE, x.numel()))
        for a, d in zip(*(torch.split(each.view(-1), PIECE) for each in (x, slope)), strict=True):
            b = room[: len(a)]
            w = torch.addcmul(a, a, torch.mul(a, a, out=b), value=CUBE, out=b).mul_(RATE)
            torch.sub(w, a, alpha=2 / 3 * RATE, out=d)  # x w′ / 3
            s = w.sigmoid_()
            torch.addcmul(s, d.addcmul_(d, s, value=-1), s, value=3, out=d)  # σ + x w′ σ (1 − σ)
            a.mul_(s)
        ctx.mark_dirty(x)
        ctx.save_for_backward(slope)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, wanted: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        return slope.mul_(wanted)
