"""A copy of a network with its matrices packed for oneDNN: faster, and bit-identical for any number of rows.

oneDNN's packed matmul sums each output in one fixed order, so a row has the same bits alone and in a batch; the plain
matmul (`F.linear`) is bit-identical only for multiples of `PLAIN_ROW_MULTIPLE` rows. Both are measured, and checked by
the tests. Knows no caches and texts. The packed copy shares everything with its network except the packed matrices,
which it holds a second time; it does not follow later changes of the weights.
"""

import copy
from typing import TypeVar, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import Tensor, nn

from triform.core.attention import CrossAttention, SelfAttention
from triform.core.blocks import ParallelResidual, Residual
from triform.core.build import Linear, WideLinear
from triform.core.feedforward import FeedForward
from triform.core.forms import Network
from triform.core.output_heads import LanguageHead
from triform.core.quantized_network import QuantizedHead, is_quantized
from triform.shapes import VD, XD, XV

PLAIN_ROW_MULTIPLE = 16
# Parameters: smaller networks fit into the processor's cache, where calls cost more than reading.
MIN_PACKED_PARAMETERS = 2**22


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


_PACKED_LAYERS: WeakValueDictionary[tuple[int, ...], PackedLinear] = WeakValueDictionary()


def pack_linear(weight: Tensor, bias: Tensor | None) -> PackedLinear:
    """One packed copy of a matrix, however many networks share it: a base and those with adapters."""
    tensors = (weight,) if bias is None else (weight, bias)
    key = tuple(n for x in tensors for n in (x.data_ptr(), 0 if x.is_inference() else x._version, *x.shape))
    known = _PACKED_LAYERS.get(key)
    if known is None:
        known = _PACKED_LAYERS[key] = PackedLinear(weight, bias)
    return known


class PackedHead(nn.Module):
    """logits = ready(x) Wᵀ + b"""

    def __init__(self, head: LanguageHead, table: VD) -> None:
        super().__init__()
        self.head = head
        self.linear = pack_linear(head.weight(table), head.bias())

    def forward(self, x: XD, table: VD) -> XV:
        return self.linear(self.head.ready(x))


def can_pack(network: Network) -> bool:
    """Whether this machine can pack weights of this dtype and device; matrices in few bits are packed already."""
    return torch._C._has_mkldnn and network.dtype == torch.float32 and network.device.type == "cpu"


def has_hooks(network: Network) -> bool:
    """Whether something reads or changes the pass inside: a copy for speed has no hooks and would pass them by."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


def is_worth_packing(network: Network) -> bool:
    """Large enough or quantised, and without hooks."""
    large = sum(p.numel() for p in network.parameters()) >= MIN_PACKED_PARAMETERS
    return not has_hooks(network) and can_pack(network) and (large or is_quantized(network))


_PACKED_COPIES: WeakKeyDictionary[Network, tuple[tuple[tuple[int, int], ...], Network]] = WeakKeyDictionary()
Module = TypeVar("Module", bound=nn.Module)
AnyNetwork = TypeVar("AnyNetwork", bound=Network)


def pack_network(network: AnyNetwork) -> AnyNetwork:
    """The packed copy, made once per state of the weights; it is freed with its network."""
    numbers = tuple((p.data_ptr(), 0 if p.is_inference() else p._version) for p in network.parameters())
    known = _PACKED_COPIES.get(network)
    if known is None or known[0] != numbers:
        known = _PACKED_COPIES[network] = (numbers, _pack(network))
    return cast(AnyNetwork, known[1])


def free_packed_copy(network: Network) -> None:
    """Free the packed copy before the weights change: it is as large as its network."""
    _PACKED_COPIES.pop(network, None)


def _pack(network: Network) -> Network:
    copied = _copy_packed(network)
    if isinstance(network.readout, LanguageHead) and not isinstance(network.readout, QuantizedHead):
        copied.readout = PackedHead(_copy_packed(network.readout), network.token.table)
    return copied


# A packed copy has no hooks, so these modules call the `forward` of their parts directly. A decoding step of twelve
# layers is about 270 such calls, and calling a module costs more than many of them compute.
CALL_FORWARD_OF = (Residual, ParallelResidual, SelfAttention, CrossAttention, FeedForward)


def _copy_packed(module: Module) -> Module:
    """The same module with the same tensors, except linear layers, which are packed."""
    same = copy.copy(module)
    same._modules = {name: None if child is None else _copy_child(child) for name, child in module._modules.items()}
    if isinstance(module, CALL_FORWARD_OF):
        parts = {name: child for name, child in same._modules.items() if child is not None}
        # An encoder-decoder finds its cross-attention by path, to project the source: that one stays a module.
        forwards = {name: part.forward for name, part in parts.items() if not isinstance(part, CrossAttention)}
        same.__dict__ |= forwards
    return same


def _copy_child(child: nn.Module) -> nn.Module:
    if type(child) is Linear or type(child) is WideLinear:
        return pack_linear(child.weight, child.bias)
    return _copy_packed(child)
