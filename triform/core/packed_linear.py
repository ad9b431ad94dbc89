"""A twin of a network whose matrices lie as the machine likes to read them: faster, and alike for any number of rows.

oneDNN's packed product adds up each output in one fixed order, so a row's answer has the same bits alone and beside
others; the plain product (`F.linear`) keeps that promise only for whole multiples of `PLAIN_ROWS` rows. Both are
measured facts, proven again by the tests. Refuses to know caches and texts. The twin shares everything with its network
but the packed matrices, which it holds a second time, and it does not follow later changes of them.
"""

import copy
from typing import TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from triform.core.attention import CrossAttention, SelfAttention
from triform.core.blocks import Residual
from triform.core.build import Linear, WideLinear
from triform.core.feedforward import FeedForward
from triform.core.forms import Network
from triform.core.output_heads import LanguageHead
from triform.shapes import VD, XD, XV

PLAIN_ROWS = 4
# Numbers: smaller networks live in the machine's own cache, where calling costs more than reading.
WORTH_PACKING = 2**22


class PackedLinear(nn.Module):
    """x Wᵀ + b"""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
        self.bias = None if bias is None else bias.detach()
        self.product = torch.ops.mkldnn._linear_pointwise.default

    def forward(self, x: XD) -> XV:
        return self.product(x, self.packed, self.bias, "none", [], "")


class PackedHead(nn.Module):
    """logits = ready(x) Wᵀ + b"""

    def __init__(self, head: LanguageHead, table: VD) -> None:
        super().__init__()
        self.head = head
        self.linear = PackedLinear(head.weight(table), head.bias())

    def forward(self, x: XD, table: VD) -> XV:
        return self.linear(self.head.ready(x))


def can_pack(network: Network) -> bool:
    """Whether this machine packs numbers of this kind."""
    weight = network.token.weight
    return torch._C._has_mkldnn and weight.dtype == torch.float32 and weight.device.type == "cpu"


def worth_packing(network: Network) -> bool:
    return can_pack(network) and sum(p.numel() for p in network.parameters()) >= WORTH_PACKING


_TWINS: WeakKeyDictionary[Network, tuple[tuple[tuple[int, int], ...], Network]] = WeakKeyDictionary()
Module = TypeVar("Module", bound=nn.Module)
AnyNetwork = TypeVar("AnyNetwork", bound=Network)


def packed(network: AnyNetwork) -> AnyNetwork:
    """The twin, made once while the numbers stay as they are; it goes when its network goes."""
    numbers = tuple((p.data_ptr(), 0 if p.is_inference() else p._version) for p in network.parameters())
    known = _TWINS.get(network)
    if known is None or known[0] != numbers:
        known = _TWINS[network] = (numbers, _packed(network))
    return cast(AnyNetwork, known[1])


def forget_twin(network: Network) -> None:
    """For those whose numbers are about to change: a twin is as large as its network."""
    _TWINS.pop(network, None)


def _packed(network: Network) -> Network:
    twin = _twin(network)
    if isinstance(network.readout, LanguageHead):
        twin.readout = PackedHead(_twin(network.readout), network.token.weight)
    return twin


# Nobody taps a twin: where these call their parts, the calls go straight to `forward`. A decoding step of twelve
# layers is some 270 such calls, and finding and calling a module costs more than many of them compute.
STRAIGHT = (Residual, SelfAttention, CrossAttention, FeedForward)


def _twin(module: Module) -> Module:
    """The same module with the same tensors, but for linear layers, which are packed."""
    same = copy.copy(module)
    same._modules = {name: None if child is None else _child(child) for name, child in module._modules.items()}
    if isinstance(module, STRAIGHT):
        parts = {name: child for name, child in same._modules.items() if child is not None}
        # An encoder-decoder finds its cross-attention by path, to project the source: that one stays a module.
        straight = {name: part.forward for name, part in parts.items() if not isinstance(part, CrossAttention)}
        same.__dict__ |= straight
    return same


def _child(child: nn.Module) -> nn.Module:
    return (
        PackedLinear(child.weight, child.bias) if type(child) is Linear or type(child) is WideLinear else _twin(child)
    )
