"""Blocks of a GGUF file as our matrices in few bits, where nothing is lost: every number stays what it was.

    Q8_0, IQ4_NL, Q5_0   q8: their whole numbers and scales
    Q4_0                 q4: the minimum is −8 · scale
    Q4_1                 q4: as it is

Other types, BF16 too, become float32: they have scales that float16 cannot hold, more values than our codes, or
no blocks.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from triform.kernels.packed_matrix import PackedMatrix
from triform.kernels.quantize import Codes
from triform.weight_kinds import GROUP, WeightKind
from triform.weights.gguf_blocks import IQ4_VALUES, Bytes, split_bits, split_nibbles
from triform.weights.gguf_file import GgufTensor
from triform.weights.llama2c import half_split

LARGEST_OF_EIGHT = 65_504.0 / 8  # a larger scale of Q4_0 has no minimum in float16

# Scales, codes, minimums of blocks [n, bytes]
Parts: TypeAlias = tuple[Bytes, Bytes, Bytes | None]


def _q8_0(blocks: Bytes) -> Parts:
    return blocks[:, 0:2], blocks[:, 2:], None


def _q5_0(blocks: Bytes) -> Parts:
    values = split_nibbles(blocks[:, 6:], group=16) | split_bits(blocks[:, 2:6]) << 4
    return blocks[:, 0:2], (values.astype(np.int8) - 16).view(np.uint8), None


def _iq4_nl(blocks: Bytes) -> Parts:
    values = IQ4_VALUES.astype(np.int8)[split_nibbles(blocks[:, 2:], group=16)]
    return blocks[:, 0:2], values.view(np.uint8), None


def _q4_1(blocks: Bytes) -> Parts:
    return blocks[:, 0:2], split_nibbles(blocks[:, 4:], group=16), blocks[:, 2:4]


def _q4_0(blocks: Bytes) -> Parts:
    scales = np.ascontiguousarray(blocks[:, 0:2]).view(np.float16).astype(np.float32)
    with np.errstate(over="ignore"):  # such a scale is refused afterwards
        minimums = (-8 * scales).astype(np.float16)
    return blocks[:, 0:2], split_nibbles(blocks[:, 2:], group=16), minimums.view(np.uint8)


EXACT: dict[str, Callable[[Bytes], Parts]] = {
    "Q8_0": _q8_0, "Q5_0": _q5_0, "IQ4_NL": _iq4_nl, "Q4_0": _q4_0, "Q4_1": _q4_1,
}  # fmt: skip


def exact_codes(tensor: GgufTensor) -> Codes | None:
    """A matrix's blocks as codes; None where that would change a number."""
    name = tensor.block_type.name
    if name not in EXACT:
        return None
    shape = tensor.shape[0], tensor.shape[1] // GROUP
    raw_scales, raw_codes, raw_minimums = EXACT[name](tensor.view_blocks())
    scales = _halves(raw_scales, shape)
    if name == "Q4_0" and not bool((scales.abs() <= LARGEST_OF_EIGHT).all()):
        return None
    codes = torch.from_numpy(np.ascontiguousarray(raw_codes)).view(tensor.shape)
    if raw_minimums is None:
        return Codes(codes.view(torch.int8), scales)
    return Codes(codes, scales, _halves(raw_minimums, shape))


def _halves(raw: Bytes, shape: tuple[int, int]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(raw).view(np.float16).reshape(shape))


class GgufRows(NamedTuple):
    """A tensor that is some rows of one of ours; with `heads`, rotary pairs lie side by side in the file."""

    tensor: GgufTensor
    heads: int

    def turn(self, x: Tensor) -> Tensor:
        return half_split(x, heads=self.heads) if self.heads else x

    def numbers(self) -> Tensor:
        return self.turn(torch.from_numpy(self.tensor.dequantize()))

    def codes(self) -> list[Tensor] | None:
        """Codes, scales and minimums, where they are exact."""
        found = exact_codes(self.tensor)
        return None if found is None else [self.turn(x) for x in found if x is not None]


def join_exactly(rows: Sequence[GgufRows]) -> PackedMatrix | None:
    """Rows above each other as one matrix, where all have codes of one kind."""
    found = [piece.codes() for piece in rows]
    parts = [piece for piece in found if piece is not None]
    if len(parts) < len(found) or len({piece[0].dtype for piece in parts}) > 1:
        return None
    kind: WeightKind = "q8" if parts[0][0].dtype == torch.int8 else "q4"
    return PackedMatrix.from_codes(*map(torch.cat, zip(*parts, strict=True)), kind=kind)
