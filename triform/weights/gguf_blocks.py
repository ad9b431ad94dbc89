"""How GGUF stores numbers: blocks of 32 or 256 quantised values with their scales, and their values in float32.

The layout of each block type is ggml's; so is the order of the float32 operations, so that results are bit-identical.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[np.float32]

SMALL_BLOCK, LARGE_BLOCK = 32, 256  # values


class BlockType(NamedTuple):
    """A way of storing numbers: `values` of them in `size` bytes; `dequantize` takes blocks `[n, size]`."""

    name: str
    values: int
    size: int
    dequantize: Callable[[Bytes], Floats]

    def count_bytes(self, count: int) -> int:
        return count // self.values * self.size


# --- parts of blocks --------------------------------------------------------------------------------------------------


def _half(blocks: Bytes, at: int) -> Floats:
    """The float16 at this byte of each block: `[n, 1]`."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)


def split_bits(blocks: Bytes) -> Bytes:
    """Each bit as a number, the lowest of a byte first."""
    return np.unpackbits(blocks, axis=1, bitorder="little")


def _bit_planes(blocks: Bytes, *, width: int, group: int) -> Bytes:
    """Per `group` bytes, their lowest `width` bits, then the next `width` bits, up to the highest."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    grouped = blocks.reshape(len(blocks), -1, 1, group)
    return (grouped >> shifts & np.uint8((1 << width) - 1)).reshape(len(blocks), -1)


def split_nibbles(blocks: Bytes, *, group: int) -> Bytes:
    return _bit_planes(blocks, width=4, group=group)


def _packed_scales(packed: Bytes) -> tuple[Floats, Floats]:
    """Eight 6-bit scales and eight 6-bit minima in twelve bytes, as Q4_K and Q5_K pack them."""
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _scale(scales: Floats, values: NDArray[np.generic]) -> Floats:
    """Each of a block's scales times its share of the block's values."""
    shares = values.reshape(*scales.shape, -1).astype(np.float32)
    return scales[:, :, None] * shares


# --- plain numbers ----------------------------------------------------------------------------------------------------


def _float32(blocks: Bytes) -> Floats:
    return blocks.view(np.float32)


def _float16(blocks: Bytes) -> Floats:
    return blocks.view(np.float16).astype(np.float32)


def _bfloat16(blocks: Bytes) -> Floats:
    return (blocks.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


# --- blocks of 32: a scale d, sometimes a minimum m -------------------------------------------------------------------


def _q4_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * (split_nibbles(blocks[:, 2:], group=16).astype(np.float32) - 8)


def _q4_1(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * split_nibbles(blocks[:, 4:], group=16).astype(np.float32) + _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Floats:
    values = split_nibbles(blocks[:, 6:], group=16) | split_bits(blocks[:, 2:6]) << 4
    return _half(blocks, 0) * (values.astype(np.float32) - 16)


def _q5_1(blocks: Bytes) -> Floats:
    values = split_nibbles(blocks[:, 8:], group=16) | split_bits(blocks[:, 4:8]) << 4
    return _half(blocks, 0) * values.astype(np.float32) + _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


# --- blocks of 256: scales of 16 or 32 values are quantised too -------------------------------------------------------


def _q2_k(blocks: Bytes) -> Floats:
    scales, values = blocks[:, :16], _bit_planes(blocks[:, 16:80], width=2, group=32)
    minima = _half(blocks, 82) * (scales >> 4).astype(np.float32)
    return _scale(_half(blocks, 80) * (scales & 15).astype(np.float32), values) - minima[..., None]


def _q3_k(blocks: Bytes) -> Floats:
    high, packed = blocks[:, :32], blocks[:, 96:108]
    low = _bit_planes(blocks[:, 32:96], width=2, group=32)
    # A high bit that is not set means 4 less; all bits 0 of the 32 bytes come first, then all bits 1, …
    values = low.astype(np.int8) - 4 * (1 - _bit_planes(high, width=1, group=32).astype(np.int8))
    scales = split_nibbles(packed[:, :8], group=8) | _bit_planes(packed[:, 8:], width=2, group=4) << 4
    return _scale(_half(blocks, 108) * (scales.astype(np.float32) - 32), values)


def _q4_k(blocks: Bytes) -> Floats:
    scales, minima = _packed_scales(blocks[:, 4:16])
    values = split_nibbles(blocks[:, 16:], group=32)
    return _scale(_half(blocks, 0) * scales, values) - (_half(blocks, 2) * minima)[..., None]


def _q5_k(blocks: Bytes) -> Floats:
    scales, minima = _packed_scales(blocks[:, 4:16])
    values = split_nibbles(blocks[:, 48:], group=32) | _bit_planes(blocks[:, 16:48], width=1, group=32) << 4
    return _scale(_half(blocks, 0) * scales, values) - (_half(blocks, 2) * minima)[..., None]


def _q6_k(blocks: Bytes) -> Floats:
    low = split_nibbles(blocks[:, :128], group=64)
    values = (low | _bit_planes(blocks[:, 128:192], width=2, group=32) << 4).astype(np.int8) - 32
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    return _scale(_half(blocks, 208) * scales, values)


# --- four bits that choose one of sixteen fixed numbers ---------------------------------------------------------------

IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def _iq4_nl(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * IQ4_VALUES[split_nibbles(blocks[:, 2:], group=16)]


def _iq4_xs(blocks: Bytes) -> Floats:
    low = split_nibbles(blocks[:, 4:8], group=1)
    scales = (low | _bit_planes(blocks[:, 2:4], width=2, group=1) << 4).astype(np.float32) - 32
    return _scale(_half(blocks, 0) * scales, IQ4_VALUES[split_nibbles(blocks[:, 8:], group=16)])


# The numbers are those that GGUF files hold; a type that is known by name alone cannot be read.
BLOCK_TYPES: dict[int, BlockType] = {
    0: BlockType("F32", 1, 4, _float32),
    1: BlockType("F16", 1, 2, _float16),
    2: BlockType("Q4_0", SMALL_BLOCK, 18, _q4_0),
    3: BlockType("Q4_1", SMALL_BLOCK, 20, _q4_1),
    6: BlockType("Q5_0", SMALL_BLOCK, 22, _q5_0),
    7: BlockType("Q5_1", SMALL_BLOCK, 24, _q5_1),
    8: BlockType("Q8_0", SMALL_BLOCK, 34, _q8_0),
    10: BlockType("Q2_K", LARGE_BLOCK, 84, _q2_k),
    11: BlockType("Q3_K", LARGE_BLOCK, 110, _q3_k),
    12: BlockType("Q4_K", LARGE_BLOCK, 144, _q4_k),
    13: BlockType("Q5_K", LARGE_BLOCK, 176, _q5_k),
    14: BlockType("Q6_K", LARGE_BLOCK, 210, _q6_k),
    20: BlockType("IQ4_NL", SMALL_BLOCK, 18, _iq4_nl),
    23: BlockType("IQ4_XS", LARGE_BLOCK, 136, _iq4_xs),
    30: BlockType("BF16", 1, 2, _bfloat16),
}

UNREAD_TYPES: dict[int, str] = {
    16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S", 24: "I8", 25: "I16",
    26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
