"""A program: the native operations of a stack in order, and the memory that a pass works in.

A program never changes once it is made, and belongs to no thread: each pass brings its own frame.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from triform.kernels.library import KernelLibrary
from triform.kernels.operations import (
    ACTIVATIONS,
    ATTENTION,
    KIND_NUMBERS,
    LINEAR,
    NO_NORM,
    NORM,
    BufferFields,
    FrameFields,
    NormFields,
    OperationFields,
    PastFields,
)
from triform.kernels.packed_matrix import PackedMatrix, pad_vector

# The buffers of a pass: the residual stream, projections of it, mixed values, inner numbers of the feed-forward, and
# what a norm reads before it is added to the stream.
STREAM, PROJECTED, MIXED, INNER, BRANCH = range(5)
BUFFERS = 5
Weights: TypeAlias = tuple[PackedMatrix, Tensor | None]  # and a bias
Places = npt.NDArray[np.int32]  # [rows, 5]: past, position, slot, first and last key seen
Pieces = npt.NDArray[np.int32]  # [pieces, 2]: first row and rows of a part of a text


class HeadCounts(NamedTuple):
    """Query heads, key/value heads, numbers per head."""

    heads: int
    kv_heads: int
    head_width: int


class ProgramBuilder:
    """Collects operations; keeps what they point to alive."""

    def __init__(self) -> None:
        self.operations: list[OperationFields] = []
        self.kept: list[object] = []
        self.weights: dict[nn.Module, Weights] = {}
        self.widths = [0] * BUFFERS
        self.pasts = 0  # of self-attention, one per layer
        self.source_pasts = 0
        self.rotated_width = 0  # of heads that are rotated
        self.heads = 0

    def find_once(self, find: Callable[[nn.Module], Weights], module: nn.Module) -> Weights:
        """What `find` makes of a module, made once for all layers that share it."""
        if module not in self.weights:
            self.weights[module] = find(module)
        return self.weights[module]

    def make_norm(self, kind: int, *, epsilon: float, gain: Tensor, shift: Tensor | None) -> NormFields:
        return NormFields(kind, epsilon, self._hold_vector(gain), None if shift is None else self._hold_vector(shift))

    def add_linear(
        self,
        matrix: PackedMatrix,
        bias: Tensor | None,
        *,
        source: int,
        target: int,
        norm: NormFields | None = None,
        activation: str = "identity",
        gated: bool = False,
        adds: bool = False,
    ) -> None:
        """target = act(W norm(source) + b); gated: W (act(first half of the source) · second half) + b"""
        outputs, inputs = matrix.shape
        self.kept.append(matrix)
        self._widen(source, 2 * inputs if gated else inputs)
        self._widen(target, outputs)
        self.operations.append(
            OperationFields(
                kind=LINEAR, source=source, target=target, adds=adds, weights=KIND_NUMBERS[matrix.kind], gated=gated,
                activation=ACTIVATIONS[activation], factor=1.0, outputs=outputs, inputs=inputs,
                matrix=matrix.data.data_ptr(), bias=None if bias is None else self._hold_vector(bias),
                norm=norm or NormFields(NO_NORM),
            )
        )  # fmt: skip

    def add_norm(self, norm: NormFields, width: int, *, source: int, target: int, adds: bool = False) -> None:
        self._widen(source, width)
        self.operations.append(
            OperationFields(kind=NORM, source=source, target=target, adds=adds, factor=1.0, inputs=width, norm=norm)
        )

    def add_attention(
        self,
        counts: HeadCounts,
        *,
        scale: float,
        rotates: bool = False,
        query_norm: NormFields | None = None,
        key_norm: NormFields | None = None,
        from_source: bool = False,
    ) -> None:
        """mixed = softmax(q kᵀ · scale + bias) v, over the past that the pass appends to, or over the source"""
        heads, kv_heads, width = counts
        self._widen(MIXED, heads * width)
        past = self.source_pasts if from_source else self.pasts
        if from_source:
            self.source_pasts += 1
        else:
            self.pasts += 1
        self.rotated_width = width if rotates else self.rotated_width
        self.heads = heads
        self.operations.append(
            OperationFields(
                kind=ATTENTION, source=PROJECTED, target=MIXED, heads=heads, kv_heads=kv_heads, head_width=width,
                past=past, writes=not from_source, rotary=rotates, from_source=from_source, score_scale=scale,
                query_norm=query_norm or NormFields(NO_NORM), key_norm=key_norm or NormFields(NO_NORM),
            )
        )  # fmt: skip

    def build(self, *, biased: bool) -> "Program":
        """`biased`: self-attention adds a score bias."""
        for operation in self.operations:
            if operation.kind == ATTENTION and operation.from_source:
                operation.past += self.pasts
            elif operation.kind == ATTENTION:
                operation.biased = biased
        return Program(self)

    def _widen(self, buffer: int, width: int) -> None:
        self.widths[buffer] = max(self.widths[buffer], width)

    def _hold_vector(self, x: Tensor) -> int:
        padded = pad_vector(x)
        self.kept.append(padded)
        return padded.data_ptr()


class PassTables:
    """Rotary angles and what is added to embeddings by position, and the score bias by distance."""

    def __init__(
        self, cosines: Tensor, sines: Tensor, *, bias: Tensor | None, bias_center: int, added: Tensor | None
    ) -> None:
        self.positions = len(cosines)
        self.added = added
        self.kept = (cosines, sines, bias)
        found = None if bias is None else bias.data_ptr()
        length = 0 if bias is None else bias.shape[-1]
        self.addresses = (cosines.data_ptr(), sines.data_ptr(), found, length, bias_center)


class Workspace:
    """The buffers of a pass but the stream, for so many rows, and the frame that says where they are."""

    def __init__(self, widths: Sequence[int], rows: int) -> None:
        self.rows = rows
        self.buffers = [torch.zeros(rows, max(width, 1)) for width in widths]
        own = (BufferFields(each.data_ptr(), each.stride(0)) for each in self.buffers)
        self.fields = (BufferFields * BUFFERS)(BufferFields(), *own)
        self.frame = FrameFields(buffers=ctypes.addressof(self.fields))


class Program:
    """Operations in order, as the library reads them."""

    def __init__(self, builder: ProgramBuilder) -> None:
        self.operations = (OperationFields * len(builder.operations))(*builder.operations)
        self.kept = tuple(builder.kept)
        self.widths = tuple(builder.widths)
        self.pasts, self.source_pasts = builder.pasts, builder.source_pasts
        self.heads, self.rotated_width = builder.heads, builder.rotated_width
        self._free: list[Workspace] = []  # that no pass uses now

    def run(
        self,
        library: KernelLibrary,
        x: Tensor,
        *,
        places: Places,
        pieces: Pieces | None,
        source_places: Places | None,
        pasts: Sequence[PastFields],
        sources: Sequence[PastFields],
        tables: PassTables,
    ) -> None:
        """Changes x [rows, width] in place. Texts that are read as a whole need no pasts."""
        rows = len(x)
        space = self._take_workspace(rows)
        try:
            space.fields[STREAM] = BufferFields(x.data_ptr(), x.stride(0))
            own_pasts = pasts or [PastFields()] * self.pasts
            past_array = (PastFields * (len(own_pasts) + len(sources)))(*own_pasts, *sources)
            frame = space.frame
            frame.pasts, frame.places = ctypes.addressof(past_array), places.ctypes.data
            frame.source_places = None if source_places is None else source_places.ctypes.data
            frame.pieces = None if pieces is None else pieces.ctypes.data
            frame.piece_count = 0 if pieces is None else len(pieces)
            frame.cosines, frame.sines, frame.bias, frame.bias_length, frame.bias_center = tables.addresses
            library.run(ctypes.addressof(self.operations), len(self.operations), frame, rows=rows)
        finally:
            self._free.append(space)

    def _take_workspace(self, rows: int) -> Workspace:
        """Of at least so many rows; kept for the next pass."""
        try:
            space = self._free.pop()
        except IndexError:
            return Workspace(self.widths[1:], rows)
        return space if space.rows >= rows else Workspace(self.widths[1:], rows)
