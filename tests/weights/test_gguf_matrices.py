"""GGUF's blocks as they lie: the same numbers to the bit, for every type that our codes can hold."""

import numpy as np
import pytest
import torch

from triform.kernels.quantize import dequantize
from triform.weights.gguf_blocks import BLOCK_TYPES
from triform.weights.gguf_file import GgufTensor
from triform.weights.gguf_matrices import EXACT, GgufRows, exact_codes, join_exactly

NUMBERS = {kind.name: number for number, kind in BLOCK_TYPES.items()}


def tensor(kind: str, *, rows: int = 6, columns: int = 96, seed: int = 0, scale: float = 0.01) -> GgufTensor:
    """Random blocks with scales (and minimums) that are numbers."""
    block = BLOCK_TYPES[NUMBERS[kind]]
    draw = np.random.default_rng(seed)
    data = draw.integers(0, 256, (rows * columns // block.values, block.size), dtype=np.uint8)
    for at in (0, 2) if kind.endswith("_1") else (0,):
        halves = (draw.standard_normal(len(data)) * scale).astype(np.float16)
        data[:, at : at + 2] = halves[:, None].view(np.uint8)
    return GgufTensor("x", NUMBERS[kind], (rows, columns), 0, data.reshape(-1))


@pytest.mark.parametrize("kind", EXACT)
def test_every_number_is_what_it_was(kind: str) -> None:
    for seed in range(3):
        found = tensor(kind, seed=seed)
        codes = exact_codes(found)
        assert codes is not None
        assert torch.equal(dequantize(codes), torch.from_numpy(found.dequantize()))


@pytest.mark.parametrize("kind", sorted(NUMBERS.keys() - EXACT.keys()))
def test_blocks_that_our_codes_cannot_hold_become_float32(kind: str) -> None:
    assert exact_codes(tensor("F32" if kind in ("F32", "F16", "BF16") else kind, columns=256)) is None


def test_a_scale_whose_minimum_float16_cannot_hold_is_left_alone() -> None:
    assert exact_codes(tensor("Q4_0", scale=9000.0)) is None


def test_rows_are_joined_only_where_they_have_one_kind() -> None:
    one, two = GgufRows(tensor("Q4_0"), 0), GgufRows(tensor("Q4_1", seed=1), 0)
    joined = join_exactly([one, two])
    assert joined is not None
    assert joined.kind == "q4"
    assert torch.equal(joined.to_float(), torch.cat([one.numbers(), two.numbers()]))
    assert join_exactly([one, GgufRows(tensor("Q8_0"), 0)]) is None
    assert join_exactly([one, GgufRows(tensor("F32"), 0)]) is None


def test_pairs_are_turned_in_codes_as_in_numbers() -> None:
    turned = GgufRows(tensor("Q4_1", rows=12), 3)
    joined = join_exactly([turned])
    assert joined is not None
    assert torch.equal(joined.to_float(), turned.numbers())
    assert not torch.equal(joined.to_float(), GgufRows(turned.tensor, 0).numbers())
