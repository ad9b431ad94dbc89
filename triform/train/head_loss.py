"""Language-model head and cross entropy fused: the logits of all positions never exist at once.

The forward pass computes the gradients of x, weight and bias chunk by chunk, while a chunk's logits are there; the
backward pass only scales them. torch has such a function from 2.13 on, but without label smoothing.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from triform.precision import at_least_float32

MAX_LOGITS = (
    1 << 24
)  # logits held at once, 64 MB in float32; with fewer, the weight's gradient is read and written too often
MATMUL_WORDS = 1024  # words per matmul: 126 GFLOP/s, against 104 with all 50,257 words
CACHE_LINE_NUMBERS = 16  # float32 numbers per cache line


def head_loss(
    x: Tensor, weight: Tensor, targets: Tensor, *, bias: Tensor | None = None, smoothing: float = 0.0
) -> Tensor:
    """Σ over positions of −Σᵥ q(v) log softmax(x weightᵀ + bias)ᵥ, q = (1 − smoothing) [v = target] + smoothing / V.

    In float32 at least; a 16-bit weight is widened one matmul at a time."""
    with torch.autocast(x.device.type, enabled=False):
        wide = at_least_float32(x.to(weight.dtype))
        total: Tensor = _HeadLoss.apply(wide, weight, bias, targets, smoothing)  # type: ignore[no-untyped-call]
    return total


def allocate_logits(x: Tensor, weight: Tensor) -> Tensor:
    """One buffer for the logits of all chunks, since the system clears memory of that size on each allocation. A row is
    an odd number of cache lines long: it never begins inside a line, as with an odd vocabulary (87 GFLOP/s instead of
    104), and rows do not fall on the same few cache sets, as with 2ⁿ words."""
    long = (-(-len(weight) // CACHE_LINE_NUMBERS) | 1) * CACHE_LINE_NUMBERS
    return x.new_empty(count_chunk_rows(len(x), long), long)


def count_chunk_rows(positions: int, long: int) -> int:
    """Positions per chunk; all chunks are about equal, without a small remainder."""
    most = max(1, MAX_LOGITS // long)
    chunks = math.ceil(positions / most) or 1
    return math.ceil(positions / chunks) or 1


def _log_softmax(buffer: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """log softmax(x weightᵀ + bias) in the buffer; the columns after the last word are padding."""
    vocab = len(weight)
    logits = buffer[:, :vocab]
    for at in range(0, vocab, MATMUL_WORDS):
        torch.mm(x, weight[at : at + MATMUL_WORDS].to(x.dtype).T, out=logits[:, at : at + MATMUL_WORDS])
    if bias is not None:
        logits += bias
    buffer[:, vocab:] = -math.inf
    torch.log_softmax(buffer, dim=-1, out=buffer)
    return logits


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
        to_x, to_weight, to_bias = ctx.needs_input_grad[:3]
        dx = torch.empty_like(x) if to_x else None
        dw = torch.zeros_like(weight, dtype=x.dtype) if to_weight else None
        db = torch.zeros_like(bias, dtype=x.dtype) if bias is not None and to_bias else None
        total = x.new_zeros(())
        vocab, buffer = len(weight), allocate_logits(x, weight)
        rows = len(buffer)
        for at in range(0, len(x), rows):
            part, target = x[at : at + rows], targets[at : at + rows, None]
            log_p = _log_softmax(buffer[: len(part)], part, weight, bias)
            total -= (1 - smoothing) * log_p.gather(1, target).sum()
            if smoothing:
                total -= smoothing / vocab * log_p.sum()
            # From here on the same memory holds d total / d logits = softmax − q.
            slope = log_p.exp_()
            if smoothing:
                slope -= smoothing / vocab
            slope.scatter_add_(1, target, slope.new_full(target.shape, smoothing - 1))
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
            raise RuntimeError("this loss was already used in a backward pass; compute it again")
        return (*(None if slope is None else slope.mul_(scale) for slope in slopes), None, None)
