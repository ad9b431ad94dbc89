"""`PackedMatrix`: a matrix in one of the kinds of weights, laid out as the native products read it.

    matrix = PackedMatrix.from_float(weight, kind="q8")
    y = matrix.matmul(x, bias)                          # x Wᵀ + b
    same = PackedMatrix(matrix.data, shape=matrix.shape, kind="q8")

`data` is one row of bytes: it can be written to a file, and mapped from one. It holds blocks of 16 outputs, each from
the first input to the last (`native/layout.h`); without the native library torch computes with the same numbers. A row
of x gives the same bits alone and among others.
"""

import ctypes

import torch
from torch import Tensor
from torch.nn import functional as F

from triform.errors import InputError
from triform.kernels.library import KernelLibrary, find_kernels
from triform.kernels.operations import KIND_NUMBERS, LINEAR, BufferFields, FrameFields, OperationFields
from triform.kernels.quantize import Codes, count_groups, dequantize, quantize, round_activations
from triform.weight_kinds import GROUP, WeightKind

LAYOUT = 2  # changes with the order of the bytes in `data`
WIDTH = 16  # outputs of a block
NUMBERS_AT_ONCE = 2**22  # that the torch road makes float32 at a time


class PackedMatrix:
    """W, [out, in]"""

    def __init__(self, data: Tensor, *, shape: tuple[int, int], kind: WeightKind) -> None:
        if data.dtype != torch.uint8 or data.shape != (count_bytes(shape, kind),):
            raise InputError(f"{kind} {list(shape)} takes {count_bytes(shape, kind)} bytes, not {list(data.shape)}")
        self.data = data
        self.shape = shape
        self.kind = kind

    @staticmethod
    def from_float(weight: Tensor, *, kind: WeightKind, importance: Tensor | None = None) -> "PackedMatrix":
        """Of numbers; `importance` says for each input how much an error there matters."""
        if kind in ("q8", "q4"):
            return PackedMatrix.from_codes(*quantize(weight, kind=kind, importance=importance), kind=kind)
        numbers = weight.detach().to(torch.float32 if kind == "float32" else torch.bfloat16)
        return PackedMatrix(pack_numbers(numbers), shape=find_shape(weight), kind=kind)

    @staticmethod
    def from_codes(
        codes: Tensor, scales: Tensor, minimums: Tensor | None = None, *, kind: WeightKind
    ) -> "PackedMatrix":
        """Of whole numbers [out, in] with a scale, and for q4 a minimum, per 32 of them."""
        if (kind == "q4") != (minimums is not None) or kind not in ("q8", "q4"):
            raise InputError(f"codes of {kind}: q8 has scales alone, q4 scales and minimums; other kinds have no codes")
        return PackedMatrix(pack_codes(Codes(codes, scales, minimums)), shape=find_shape(codes), kind=kind)

    @property
    def bytes(self) -> int:
        return self.data.numel()

    def codes(self) -> Codes:
        """The codes and scales of a q8 or q4 matrix."""
        if self.kind not in ("q8", "q4"):
            raise InputError(f"a {self.kind} matrix has no codes; use to_float()")
        codes, scales, minimums = self._codes_of(self._blocks())
        outputs = self.shape[0]  # behind them, the last block has zeros
        return Codes(codes[:outputs], scales[:outputs], None if minimums is None else minimums[:outputs])

    def rows(self, ids: Tensor) -> Tensor:
        """Some rows in float32, [..., in]: what an embedding looks up."""
        flat, library = ids.flatten(), find_kernels()
        if library is not None and self.data.device.type == "cpu" and len(flat):
            return self._look_up_natively(library, flat.long().contiguous()).view(*ids.shape, -1)
        blocks, lanes = self._blocks()[flat // WIDTH], flat % WIDTH
        found = self._floats_of(blocks).view(len(flat), WIDTH, -1)[torch.arange(len(flat)), lanes]
        return found.view(*ids.shape, -1)

    def to_float(self) -> Tensor:
        """All numbers in float32."""
        return self._floats_of(self._blocks())[: self.shape[0]].contiguous()

    # --- products -----------------------------------------------------------------------------------------------------

    def matmul(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x Wᵀ + b in float32; with q8 and q4, x is rounded to 8 bits in groups of 32 inputs."""
        library = find_kernels()
        rows = x.detach().float().reshape(-1, self.shape[1])
        if library is None or rows.device.type != "cpu" or self.data.device.type != "cpu":
            product = self.matmul_in_torch(rows, bias)
        else:
            product = NativeProduct(self, bias, library).multiply(rows)
        return product.view(*x.shape[:-1], self.shape[0])

    def matmul_in_torch(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """The same for rows [rows, in] by torch, some blocks of outputs at a time."""
        if not len(x):
            return torch.empty(0, self.shape[0])
        rounded = round_activations(x) if self.kind in ("q8", "q4") else x
        step = max(1, NUMBERS_AT_ONCE // (WIDTH * max(1, self.shape[1])))
        parts = [multiply_rows(rounded, self._floats_of(blocks)) for blocks in torch.split(self._blocks(), step)]
        product = torch.cat(parts, dim=1)[:, : self.shape[0]]
        return product if bias is None else product + bias

    def _look_up_natively(self, library: KernelLibrary, ids: Tensor) -> Tensor:
        wanted = ids.tolist()
        if min(wanted) < 0 or max(wanted) >= self.shape[0]:
            raise IndexError(f"rows {min(wanted)} to {max(wanted)} are asked for; the matrix has {self.shape[0]}")
        found = torch.empty(len(ids), self.shape[1])
        library.look_up(
            KIND_NUMBERS[self.kind], self.data.data_ptr(), self.shape[1], ids.data_ptr(), len(ids), found.data_ptr()
        )
        return found

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _blocks(self) -> Tensor:
        """The bytes of every block of 16 outputs, [blocks, bytes]"""
        return self.data.view(count_blocks(self.shape[0]), -1)

    def _floats_of(self, blocks: Tensor) -> Tensor:
        """The numbers of some blocks, [blocks · 16, in]"""
        if self.kind in ("q8", "q4"):
            return dequantize(self._codes_of(blocks))
        numbers = blocks.contiguous().view(torch.float32 if self.kind == "float32" else torch.bfloat16)
        each = 1 if self.kind == "float32" else 2
        numbers = numbers.view(len(blocks), -1, WIDTH, each).transpose(1, 2).reshape(len(blocks) * WIDTH, -1)
        return numbers[:, : self.shape[1]].float().contiguous()

    def _codes_of(self, blocks: Tensor) -> Codes:
        """The codes of all outputs of some blocks."""
        groups, halves = count_groups(self.shape[1]), 1 if self.kind == "q8" else 2
        parts = blocks.view(len(blocks), groups, -1)
        head, packed = parts[..., : 2 * WIDTH * halves], parts[..., 2 * WIDTH * halves :]
        of_groups = head.contiguous().view(torch.float16).view(len(blocks), groups, halves, WIDTH)
        of_groups = of_groups.permute(2, 0, 3, 1).reshape(halves, -1, groups)
        packed = packed.reshape(len(blocks), groups, -1, WIDTH, 4)
        if self.kind == "q4":
            packed = torch.cat((packed & 15, packed >> 4), dim=2)
        codes = packed.permute(0, 3, 1, 2, 4).reshape(len(blocks) * WIDTH, -1)[:, : self.shape[1]].contiguous()
        return Codes(codes.view(torch.int8) if self.kind == "q8" else codes, *of_groups)


class NativeProduct:
    """x Wᵀ + b by the native library, prepared once for many calls."""

    def __init__(self, matrix: PackedMatrix, bias: Tensor | None, library: KernelLibrary) -> None:
        self.shape, self.library = matrix.shape, library
        self.kept = (matrix, None if bias is None else pad_vector(bias))
        (outputs, inputs), padded = matrix.shape, self.kept[1]
        self.operation = OperationFields(
            kind=LINEAR, source=0, target=1, factor=1.0, matrix=matrix.data.data_ptr(),
            weights=KIND_NUMBERS[matrix.kind], outputs=outputs, inputs=inputs,
            bias=None if padded is None else padded.data_ptr(),
        )  # fmt: skip

    def multiply(self, rows: Tensor) -> Tensor:
        """Of rows [rows, in] in float32: [rows, out]."""
        (outputs, inputs), x = self.shape, rows.detach().contiguous()
        product = torch.empty(len(x), outputs)
        buffers = (BufferFields * 2)(BufferFields(x.data_ptr(), inputs), BufferFields(product.data_ptr(), outputs))
        frame = FrameFields(buffers=ctypes.addressof(buffers))
        self.library.run(ctypes.addressof(self.operation), 1, frame, rows=len(x))
        return product


def pack_numbers(numbers: Tensor) -> Tensor:
    """float32 [blocks, in, 16], bfloat16 [blocks, in / 2, 16, 2]"""
    outputs, inputs = numbers.shape
    each = 4 // numbers.element_size()
    padded = F.pad(numbers, (0, -inputs % each, 0, -outputs % WIDTH))
    blocks = padded.view(count_blocks(outputs), WIDTH, -1, each).transpose(1, 2)
    return blocks.contiguous().view(torch.uint8).flatten()


def pack_codes(matrix: Codes) -> Tensor:
    """[blocks, groups] of: 16 scales, 16 minimums (q4), codes [in / 4, 16, 4], two in a byte (q4)"""
    (outputs, inputs), missing = matrix.codes.shape, -len(matrix.codes) % WIDTH
    blocks, groups = count_blocks(outputs), count_groups(inputs)
    padded = F.pad(matrix.codes.view(torch.uint8), (0, -inputs % GROUP, 0, missing))
    codes = padded.view(blocks, WIDTH, groups, GROUP // 4, 4).permute(0, 2, 3, 1, 4)
    if matrix.minimums is not None:
        first, second = codes.chunk(2, dim=2)
        codes = first | second << 4
    of_groups = [part for part in (matrix.scales, matrix.minimums) if part is not None]
    heads = [F.pad(part, (0, 0, 0, missing)).view(blocks, WIDTH, groups).transpose(1, 2) for part in of_groups]
    parts = [*(head.contiguous().view(torch.uint8) for head in heads), codes.flatten(2)]
    return torch.cat(parts, dim=-1).flatten()


def pad_vector(x: Tensor) -> Tensor:
    """A vector in float32, contiguous, with zeros up to a multiple of 16."""
    wide = x.detach().float()
    return F.pad(wide, (0, -len(wide) % WIDTH)) if len(wide) % WIDTH else wide.contiguous()


def multiply_rows(x: Tensor, weight: Tensor) -> Tensor:
    """x Wᵀ, each row the same bits among any number: oneDNN's packed product, else as many products as rows."""
    if torch._C._has_mkldnn:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        return torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
    return torch.cat([F.linear(row, weight) for row in torch.split(x, 1)])


def count_blocks(outputs: int) -> int:
    return -(-outputs // WIDTH)


def count_bytes(shape: tuple[int, int], kind: WeightKind) -> int:
    """Whole blocks of 16 outputs; q8 and q4 whole groups of 32 inputs, bfloat16 pairs."""
    outputs, inputs = count_blocks(shape[0]) * WIDTH, shape[1]
    if kind in ("q8", "q4"):
        return outputs * count_groups(inputs) * (GROUP + 2 if kind == "q8" else GROUP // 2 + 4)
    return outputs * (4 * inputs if kind == "float32" else 2 * (inputs + inputs % 2))


def find_shape(x: Tensor) -> tuple[int, int]:
    """[out, in]"""
    outputs, inputs = x.shape
    return outputs, inputs
