"""A copy of a network whose stacks and language-model head run on the native kernels, with the same interface.

It shares everything with its network except the packed matrices, has no hooks, and does not follow later changes of the
weights. Only for passes without gradients; looking inside uses the network itself.
"""

import copy
import sys
from typing import TypeVar, cast
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from triform.core import packed_linear
from triform.core.blocks import BothSides, EmbeddingLayer, NoSegments, PastOnly, Stack
from triform.core.build import Linear, WideLinear
from triform.core.cache import NO_CACHE, NO_MEMORY, AnyCache, Cache, CacheRows, SourceMemory
from triform.core.forms import Network
from triform.core.masks import QueryKeyView
from triform.core.output_heads import LanguageHead
from triform.core.positions import LearnedPositions, NoAddedPosition
from triform.core.quantized_network import is_quantized
from triform.core.texts import Text
from triform.errors import InputError
from triform.kernels.library import KernelLibrary, find_kernels
from triform.kernels.operations import PastFields
from triform.kernels.packed_matrix import NativeProduct, PackedMatrix
from triform.native.compile_stack import NoNativeTwin, compile_stack, find_weights
from triform.native.places import (
    find_spans_in_cache,
    find_spans_of_texts,
    place_rows,
    place_sources,
    split_chunks,
    split_into_pieces,
)
from triform.native.program import STREAM, PassTables, Places
from triform.shapes import BTD, VD, XD, XV

# Parameters: below, a network is so small that nobody waits for it, and its torch road shows every detail.
MIN_NATIVE_PARAMETERS = 2**17
AnyNetwork = TypeVar("AnyNetwork", bound=Network)
Module = TypeVar("Module", bound=nn.Module)


class NativeLinear(nn.Module):
    """x Wᵀ + b"""

    def __init__(self, matrix: PackedMatrix, bias: Tensor | None, library: KernelLibrary) -> None:
        super().__init__()
        self.out_features, self.in_features = matrix.shape
        self.product = NativeProduct(matrix, bias, library)

    def forward(self, x: XD) -> XV:
        return self.product.multiply(x.reshape(-1, self.in_features)).view(*x.shape[:-1], self.out_features)


class NativeHead(nn.Module):
    """logits = ready(x) Wᵀ + b"""

    def __init__(self, head: LanguageHead, table: VD, library: KernelLibrary) -> None:
        super().__init__()
        self.head = head
        self.linear = NativeLinear(find_head_matrix(head, table), head.bias(), library)

    def forward(self, x: XD, table: VD) -> XV:
        return self.linear(self.head.ready(x))


def find_head_matrix(head: LanguageHead, table: VD) -> PackedMatrix:
    """A head in few bits has its matrix packed already."""
    matrix = getattr(head, "matrix", None)
    return matrix if isinstance(matrix, PackedMatrix) else PackedMatrix.from_float(head.weight(table), kind="float32")


class NativeStack(nn.Module):
    """x → embedding layer (torch) → blocks and final norm, in one native call"""

    def __init__(self, stack: Stack, library: KernelLibrary, *, width: int) -> None:
        super().__init__()
        self.stack = stack
        self.entry = copy_with_native_linears(stack.entry, library)
        self.library = library
        self.causal, self.window = read_pattern(stack)
        self.embeds = type(stack.entry.kinds) is NoSegments and type(stack.entry.project) is nn.Identity
        self.program = compile_stack(stack, width=width)
        self.blocks = nn.ModuleList(copy_cross_projection(block, library) for block in stack.blocks)
        self.tables: PassTables | None = None
        self._pasts: tuple[ref[Cache] | None, int, list[PastFields]] = (None, 0, [])  # of the cache last used
        self._extend_tables(64)

    def forward(self, x: BTD, text: Text, memory: SourceMemory = NO_MEMORY, cache: AnyCache = NO_CACHE) -> BTD:
        cached = self.causal and cache is not NO_CACHE
        pasts = self._find_pasts(cache, x.shape[1]) if cached else ()
        spans = find_spans_in_cache(text, cache, window=self.window) if cached else find_spans_of_texts(text)
        places = place_rows(spans, causal=self.causal, window=self.window)
        tables = self._extend_tables(max((span.start + span.tokens for span in spans), default=0))
        rows = self._embed(x, text, cache, places, tables)
        source_places = place_sources(text, memory, [span.tokens for span in spans]) if memory.layers else None
        self.program.run(
            self.library,
            rows,
            places=places,
            pieces=split_chunks(spans) if cached else split_into_pieces(spans),
            source_places=source_places,
            pasts=pasts,
            sources=[make_past_fields(layer) for layer in memory.layers],
            tables=tables,
        )
        cache.advance(x.shape[1])
        return rows.view(*x.shape[:2], -1)

    def _embed(self, x: BTD, text: Text, cache: AnyCache, places: Places, tables: PassTables) -> Tensor:
        """The embedding layer; the rows that the blocks read and change, [rows, D]. x is nobody else's."""
        entry = self.entry
        if not self.embeds:
            stream = entry(x, text.segment_ids, text.positions(cache.lengths))
            return stream.reshape(-1, stream.shape[-1]).contiguous()
        rows = x.view(-1, x.shape[-1])
        if entry.scale != 1.0:
            rows = rows * entry.scale
        if tables.added is not None:
            rows = rows + tables.added[torch.from_numpy(places[:, 1])]
        return entry.norm(rows)

    def _find_pasts(self, cache: AnyCache, count: int) -> list[PastFields]:
        """Keys and values of every layer where the cache holds them now; it grows here if it must."""
        owner = cache if isinstance(cache, Cache) else cast(CacheRows, cache).cache
        if isinstance(cache, CacheRows | Cache):
            first = cache.first if isinstance(cache, CacheRows) else 0
            owner.reserve_rows(first, first + len(cache.lengths), count)
        else:
            cache.open(count)
        known, allocations, fields = self._pasts
        if known is None or known() is not owner or allocations != owner.allocations:
            fields = [make_past_fields((keys, values)) for keys, values in owner.store]
            self._pasts = (ref(owner), owner.allocations, fields)
        return fields

    def _extend_tables(self, positions: int) -> PassTables:
        """Angles, biases and added positions, of at least so many positions."""
        if self.tables is not None and positions <= self.tables.positions:
            return self.tables
        count = max(positions, 64 if self.tables is None else 2 * self.tables.positions)
        counted = torch.arange(count)
        (angles,) = self.stack.angles(counted[None], torch.float32)
        cosines, sines = (part[0, :, 0].contiguous() for part in angles)
        if self.program.rotated_width and cosines.shape[-1] != self.program.rotated_width // 2:
            raise NoNativeTwin(f"{type(self.stack.angles).__name__} of part of a head")
        middle = QueryKeyView(counted[None, -1:], torch.arange(2 * count - 1))
        added = self.stack.score_bias(middle, torch.float32).added
        bias = None if added is None else added[0, :, 0].contiguous()
        self.tables = PassTables(
            cosines,
            sines,
            bias=bias,
            bias_center=count - 1,
            added=find_added(self.stack.entry, count, width=self.program.widths[STREAM]),
        )
        return self.tables


def find_added(entry: EmbeddingLayer, count: int, *, width: int) -> Tensor | None:
    """What is added to the embeddings at each position; learned ones have as many as they were trained for."""
    if isinstance(entry.position, NoAddedPosition):
        return None
    if isinstance(entry.position, LearnedPositions):
        return entry.position.weight.detach()[entry.position.reserved :]
    return entry.position(torch.zeros(1, count, width), torch.arange(count)[None])[0]


def make_past_fields(layer: tuple[Tensor, Tensor]) -> PastFields:
    """Where the keys and values of a layer lie: [rows, G, positions, K]"""
    keys, values = layer
    return PastFields(keys.data_ptr(), values.data_ptr(), *keys.stride()[:3])


def find_width(stack: Stack, table: VD) -> int:
    """Of the residual stream; embeddings may be narrower and are projected to it."""
    project = stack.entry.project
    return table.shape[1] if type(project) is nn.Identity else cast(nn.Linear, project).out_features


def read_pattern(stack: Stack) -> tuple[bool, int | None]:
    """Whether a token sees only the past, and how many positions of it."""
    if len(stack.patterns) > 1:
        raise NoNativeTwin("layers of different kinds")
    (pattern,) = stack.patterns
    if isinstance(pattern, PastOnly):
        return True, pattern.window
    if isinstance(pattern, BothSides) and pattern.window is None:
        return False, None
    raise NoNativeTwin("this pattern of keys that are seen")


def copy_with_native_linears(module: Module, library: KernelLibrary) -> Module:
    """The same module with the same tensors, except its own linear layers: torch's give a row other bits in a batch."""
    same = copy.copy(module)
    same._modules = {
        name: NativeLinear(*find_weights(child), library)
        if isinstance(child, Linear) and type(child) in (Linear, WideLinear)
        else child
        for name, child in module._modules.items()
    }
    return same


def copy_cross_projection(block: nn.Module, library: KernelLibrary) -> nn.Module:
    """Of a block only the projection of the source, which an encoder-decoder finds by its path `cross.f`."""
    same = nn.Module()
    if "cross" in block._modules:
        cross = block.get_submodule("cross.f")
        projection = copy.copy(cross)
        projection._modules = cross._modules | {"kv": NativeLinear(*find_weights(cross.get_submodule("kv")), library)}
        same.add_module("cross", nn.ModuleDict({"f": projection}))
    return same


# --- choosing ---------------------------------------------------------------------------------------------------------

_NATIVE_COPIES: WeakKeyDictionary[Network, tuple[object, Network | None]] = WeakKeyDictionary()
_REPORTED: set[str] = set()


def choose_network(network: AnyNetwork, *, pack: bool | None = None) -> tuple[AnyNetwork, bool]:
    """The fastest network with the same answers, and whether its rows have the same bits in any number: native kernels,
    matrices packed by oneDNN, or the network as it is. `pack` None: where that is faster; False: as it is. A network
    with hooks stays as it is: its copies have none."""
    if packed_linear.has_hooks(network):
        return network, False
    if pack or (pack is None and is_worth_native(network)):
        native = native_network(network)
        if native is not None:
            return native, True
    pack = packed_linear.is_worth_packing(network) if pack is None else pack
    if pack and not packed_linear.can_pack(network):
        raise InputError(f"pack=True is for float32 on the CPU; this model is {network.dtype}")
    return (packed_linear.pack_network(network), True) if pack else (network, False)


def is_worth_native(network: Network) -> bool:
    """Whether a network is large enough, or in few bits, to be used for its answers."""
    large = sum(parameter.numel() for parameter in network.parameters()) >= MIN_NATIVE_PARAMETERS
    return large or is_quantized(network)


def native_network(network: AnyNetwork) -> AnyNetwork | None:
    """The native copy, made once per state of the weights and freed with its network; None where torch must compute:
    without kernels, for other dtypes and devices than float32 on the CPU, and for modules without a native twin."""
    library, weights = find_kernels(), [*network.parameters()]
    if library is None or any(each.dtype != torch.float32 or each.device.type != "cpu" for each in weights):
        return None
    state = (library.path, [(each.data_ptr(), 0 if each.is_inference() else each._version) for each in weights])
    known = _NATIVE_COPIES.get(network)
    if known is None or known[0] != state:
        known = _NATIVE_COPIES[network] = (state, _copy_native(network, library))
    return cast(AnyNetwork | None, known[1])


def free_native_copy(network: Network) -> None:
    """Frees the native copy before the weights change: it is as large as its network."""
    _NATIVE_COPIES.pop(network, None)


def _copy_native(network: Network, library: KernelLibrary) -> Network | None:
    try:
        stacks = {
            name: NativeStack(module, library, width=find_width(module, network.token.table))
            for name, module in network._modules.items()
            if isinstance(module, Stack)
        }
    except NoNativeTwin as error:
        if str(error) not in _REPORTED:
            _REPORTED.add(str(error))
            print(f"no native kernel for {error}: torch computes this model (slower)", file=sys.stderr)
        return None
    copied = copy.copy(network)
    copied._modules = network._modules | stacks
    copied.readout = copy_with_native_linears(network.readout, library)
    if isinstance(copied.readout, LanguageHead):
        copied.readout = NativeHead(copied.readout, network.token.table, library)
    return copied
