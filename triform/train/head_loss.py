"""The language head and its cross entropy in one step: the logits of all positions never exist at once.

Gradients of x, weight and bias are made in the forward pass, chunk by chunk, while a chunk's logits are at hand; the
backward pass only scales them. torch has such a step from 2.13 on, but without label smoothing.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from triform.precision import at_least_float32

CHUNK = 1 << 24  # logits held at once: 64 MB in float32. Fewer, and the weight's gradient is read and written too often
WORDS = 1024  # a product is made for so many words at once: 126 GFLOP/s where one for 50,257 words makes 104
LINE = 16  # numbers of float32 that a cache line holds


def head_loss(
    x: Tensor, weight: Tensor, targets: Tensor, *, bias: Tensor | None = None, smoothing: float = 0.0
) -> Tensor:
    """Σ over positions of −Σᵥ q(v) log softmax(x weightᵀ + bias)ᵥ, q = (1 − smoothing) [v = target] + smoothing / V.

    In float32 at least; of a weight of 16 bits so much is widened at a time as a product is made of."""
    with torch.autocast(x.device.type, enabled=False):
        wide = at_least_float32(x.to(weight.dtype))
        total: Tensor = _HeadLoss.apply(wide, weight, bias, targets, smoothing)  # type: ignore[no-untyped-call]
    return total


def room_for(x: Tensor, weight: Tensor) -> Tensor:
    """One for the logits of every chunk: the system clears memory of that size each time it is got. Its rows are an odd
    number of cache lines long: none begins inside a line, as nearly all rows of an odd vocabulary would (87 GFLOP/s
    instead of 104), and they do not all fall on the same few places of the cache, as those of 2ⁿ words would."""
    long = (-(-len(weight) // LINE) | 1) * LINE
    return x.new_empty(rows_at_once(len(x), long), long)


def rows_at_once(positions: int, long: int) -> int:
    """Positions whose rows of logits fit; all chunks alike, none a remainder of a few."""
    most = max(1, CHUNK // long)
    chunks = math.ceil(positions / most) or 1
    return math.ceil(positions / chunks) or 1


def fill(room: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """log softmax(x weightᵀ + bias), where the room is; what is behind the last word has no part in it."""
    vocab = len(weight)
    logits = room[:, :vocab]
    for at in range(0, vocab, WORDS):
        torch.mm(x, weight[at : at + WORDS].to(x.dtype).T, out=logits[:, at : at + WORDS])
    if bias is not None:
        logits += bias
    room[:, vocab:] = -math.inf
    torch.log_softmax(room, dim=-1, out=room)
    return logits


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
        to_x, to_weight, to_bias = ctx.needs_input_grad[:3]
        dx = torch.empty_like(x) if to_x else None
        dw = torch.zeros_like(weight, dtype=x.dtype) if to_weight else None
        db = torch.zeros_like(bias, dtype=x.dtype) if bias is not None and to_bias else None
        total = x.new_zeros(())
        vocab, room = len(weight), room_for(x, weight)
        rows = len(room)
        for at in range(0, len(x), rows):
            part, goals = x[at : at + rows], targets[at : at + rows, None]
            log_p = fill(room[: len(part)], part, weight, bias)
            total -= (1 - smoothing) * log_p.gather(1, goals).sum()
            if smoothing:
                total -= smoothing / vocab * log_p.sum()
            # From here on the same memory holds d total / d logits = softmax − q.
            slope = log_p.exp_()
            if smoothing:
                slope -= smoothing / vocab
            slope.scatter_add_(1, goals, slope.new_full(goals.shape, smoothing - 1))
            if dx is not None:
                torch.mm(slope, weight.to(x.dtype), out=dx[at : at + rows])
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
