"""The language head and its cross entropy in one step: the logits of all positions never exist at once.

Gradients of x, weight and bias are made in the forward pass, chunk by chunk, while a chunk's logits are at hand; the
backward pass only scales them. torch has such a step from 2.13 on, but without label smoothing.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

CHUNK = 1 << 23  # logits held at once: 32 MB in float32; matrices that large run at full speed


def head_loss(
    x: Tensor, weight: Tensor, targets: Tensor, *, bias: Tensor | None = None, smoothing: float = 0.0
) -> Tensor:
    """Σ over positions of −Σᵥ q(v) log softmax(x weightᵀ + bias)ᵥ, q = (1 − smoothing) [v = target] + smoothing / V."""
    with torch.autocast(x.device.type, enabled=False):
        total: Tensor = _HeadLoss.apply(x.to(weight.dtype), weight, bias, targets, smoothing)  # type: ignore[no-untyped-call]
    return total


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
        to_x, to_weight, to_bias = ctx.needs_input_grad[:3]
        dx = torch.empty_like(x) if to_x else None
        dw = torch.zeros_like(weight) if to_weight else None
        db = torch.zeros_like(bias) if bias is not None and to_bias else None
        total = x.new_zeros(())
        vocab, width = len(weight), max(1, CHUNK // len(weight))
        for at in range(0, len(x), width):
            part, goals = x[at : at + width], targets[at : at + width, None]
            log_p = F.log_softmax(F.linear(part, weight, bias), dim=-1)
            total -= (1 - smoothing) * log_p.gather(1, goals).sum()
            if smoothing:
                total -= smoothing / vocab * log_p.sum()
            # From here on the same memory holds d total / d logits = softmax − q.
            slope = log_p.exp_()
            if smoothing:
                slope -= smoothing / vocab
            slope.scatter_add_(1, goals, slope.new_full(goals.shape, smoothing - 1))
            if dx is not None:
                torch.mm(slope, weight, out=dx[at : at + width])
            if dw is not None:
                dw.addmm_(slope.T, part)
            if db is not None:
                db += slope.sum(0)
        ctx.slopes = dx, dw, db
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        slopes, ctx.slopes = ctx.slopes, None
        if slopes is None:
            raise RuntimeError("the gradients of this loss were used up by an earlier backward; compute the loss again")
        return (*(None if each is None else each.mul_(scale) for each in slopes), None, None)
