"""Output heads: hidden states to logits or labels, per position. They know no mask, text or loss.

A language-model head is three things, so that a loss can compute logits in chunks: `ready(x)`, a weight, and a bias;
logits = ready(x) weightᵀ + bias. `table` is the token embedding; a tied head uses it, an own head ignores it.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triform.shapes import VE, XD, XE, XV


class LanguageHead(nn.Module):
    """logits = ready(x) weightᵀ + bias"""

    def ready(self, x: XD) -> XE:
        return x

    def weight(self, table: VE) -> VE:
        return table

    def bias(self) -> Tensor | None:
        return None

    def forward(self, x: XD, table: VE) -> XV:
        return F.linear(self.ready(x), self.weight(table), self.bias())


class TiedHead(LanguageHead):
    """logits = (x · scale) Eᵀ"""

    def __init__(self, *, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def ready(self, x: XD) -> XE:
        return x * self.scale


class ShiftedHead(TiedHead):
    """logits = (x · scale) Eᵀ + shift, a fixed number per token"""

    shift: Tensor

    def __init__(self, vocab: int, *, scale: float) -> None:
        super().__init__(scale=scale)
        self.register_buffer("shift", torch.zeros(vocab))

    def bias(self) -> Tensor:
        return self.shift


class OwnHead(LanguageHead):
    """logits = x Wᵀ"""

    def __init__(self, vocab: int, width: int) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.empty(vocab, width))

    def weight(self, table: VE) -> VE:
        return self.own


class ScaledOwnHead(OwnHead):
    """logits = (x · scale) Wᵀ"""

    def __init__(self, vocab: int, width: int, *, scale: float) -> None:
        super().__init__(vocab, width)
        self.scale = scale

    def ready(self, x: XD) -> XD:
        return x * self.scale


class TransformedHeadWithoutShift(LanguageHead):
    """logits = norm(act(dense x)) Eᵀ"""

    def __init__(self, dense: nn.Linear, norm: nn.Module, *, act: Callable[[Tensor], Tensor], vocab: int) -> None:
        super().__init__()
        self.dense = dense
        self.act = act
        self.norm = norm

    def ready(self, x: XD) -> XE:
        return self.norm(self.act(self.dense(x)))


class TransformedHead(TransformedHeadWithoutShift):
    """logits = norm(act(dense x)) Eᵀ + b"""

    def __init__(self, dense: nn.Linear, norm: nn.Module, *, act: Callable[[Tensor], Tensor], vocab: int) -> None:
        super().__init__(dense, norm, act=act, vocab=vocab)
        self.free = nn.Parameter(torch.zeros(vocab))

    def bias(self) -> Tensor:
        return self.free


class ReadHead(nn.Module):
    """out(norm(act(dense x))): labels, spans, BERT's pooler; absent steps are identities"""

    def __init__(
        self, dense: nn.Module, out: nn.Module, *, act: Callable[[Tensor], Tensor], norm: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.dense = dense
        self.act = act
        self.norm = nn.Identity() if norm is None else norm
        self.out = out

    def forward(self, x: XD, table: VE) -> Tensor:
        return self.out(self.norm(self.act(self.dense(x))))
