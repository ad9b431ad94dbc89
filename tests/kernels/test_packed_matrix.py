"""`PackedMatrix`: the same numbers in every kind, products beside the formula, rows alone and among others."""

import pytest
import torch
from torch.nn import functional as F

from triform.errors import TriformError
from triform.kernels.packed_matrix import PackedMatrix
from triform.kernels.quantize import dequantize, quantize, round_activations
from triform.weight_kinds import KINDS, WeightKind

SHAPES = [(1, 1), (5, 31), (16, 32), (48, 64), (33, 70), (17, 160)]


def weight(outputs: int, inputs: int) -> torch.Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(outputs)) * 0.1


@pytest.mark.parametrize("kind", ["q8", "q4"])
@pytest.mark.parametrize("shape", SHAPES)
def test_codes_come_back_to_the_bit(shape: tuple[int, int], kind: WeightKind) -> None:
    codes = quantize(weight(*shape), kind=kind)
    matrix = PackedMatrix.from_codes(*codes, kind=kind)
    for got, want in zip(matrix.codes(), codes, strict=True):
        assert (got is None and want is None) or torch.equal(got, want)
    again = PackedMatrix(matrix.data.clone(), shape=matrix.shape, kind=kind)
    assert torch.equal(again.to_float(), dequantize(codes))
    assert matrix.bytes == matrix.data.numel()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_the_formula(shape: tuple[int, int], kind: WeightKind) -> None:
    matrix, bias = PackedMatrix.from_float(weight(*shape), kind=kind), torch.randn(shape[0])
    x = torch.randn(3, 2, shape[1])
    rounded = round_activations(x) if kind in ("q8", "q4") else x
    want = F.linear(rounded.double(), matrix.to_float().double(), bias.double())
    got = matrix.matmul(x, bias)
    assert got.dtype == torch.float32
    assert float((got - want).abs().max()) <= 1e-5 * float(want.abs().max())
    torch.testing.assert_close(matrix.matmul(x), got - bias, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_the_same_bits_among_any_number(kind: WeightKind) -> None:
    matrix, x = PackedMatrix.from_float(weight(48, 96), kind=kind), torch.randn(40, 96)
    whole = matrix.matmul(x)
    for rows in (1, 2, 3, 5, 8, 13, 39):
        for at in (0, 1):
            assert torch.equal(matrix.matmul(x[at : at + rows]), whole[at : at + rows])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_looked_up(kind: WeightKind) -> None:
    matrix = PackedMatrix.from_float(weight(33, 70), kind=kind)
    ids = torch.tensor([[0, 32, 7], [7, 16, 15]])
    assert torch.equal(matrix.rows(ids), matrix.to_float()[ids])


def test_bytes_of_another_shape_are_refused() -> None:
    matrix = PackedMatrix.from_float(weight(16, 64), kind="q8")
    with pytest.raises(TriformError, match="takes"):
        PackedMatrix(matrix.data[:-1], shape=matrix.shape, kind="q8")
