"""Quantised matrices: round trips, errors bounded by the width of a step, and a search that never does worse."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from triform.errors import TriformError
from triform.kernels.quantize import (
    GROUP,
    Codes,
    dequantize,
    in_groups,
    plain_line,
    quantize,
    quantize_activations,
    quantize_q4,
    quantize_q8,
    round_activations,
    search_groups,
    spread,
)


def matrix(outputs: int, inputs: int, *, seed: int = 0, heavy: bool = False) -> torch.Tensor:
    drawn = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed))
    return drawn**3 if heavy else drawn * 0.05


@pytest.mark.parametrize("inputs", [1, 31, 32, 33, 80, 160])
@pytest.mark.parametrize("kind", ["q8", "q4"])
def test_what_is_on_the_grid_comes_back_to_the_bit(kind: str, inputs: int) -> None:
    """Numbers that a matrix in codes already has are found again."""
    once = dequantize(quantize(matrix(7, inputs), kind=kind))
    again = dequantize(quantize(once, kind=kind))
    if kind == "q8":
        assert torch.equal(again, once)
    else:
        assert float((again - once).abs().max()) <= 2e-3 * float(once.abs().max())


@given(
    outputs=st.integers(1, 5),
    inputs=st.integers(1, 100),
    seed=st.integers(0, 99),
    heavy=st.booleans(),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_no_weight_is_off_by_more_than_half_a_step(outputs: int, inputs: int, seed: int, heavy: bool) -> None:
    w = matrix(outputs, inputs, seed=seed, heavy=heavy)
    q8 = quantize_q8(w)
    off = (dequantize(q8) - w).abs()
    # Half a step; the largest one may be off by what rounding its scale to 11 bits makes of 127 steps.
    assert bool((off <= spread(q8.scales, inputs) * 0.501 + w.abs() * 2**-11 + 1e-7).all())


def test_codes_use_their_range_and_scales_are_float16() -> None:
    q8, q4 = quantize_q8(matrix(9, 70)), quantize_q4(matrix(9, 70))
    assert (q8.codes.dtype, q4.codes.dtype) == (torch.int8, torch.uint8)
    assert {x.dtype for x in (q8.scales, q4.scales, q4.minimums)} == {torch.float16}
    assert q8.scales.shape == q4.minimums.shape == (9, 3)
    assert (int(q8.codes.abs().max()), int(q4.codes.min()), int(q4.codes.max())) == (127, 0, 15)
    assert (q8.kind, q4.kind) == ("q8", "q4")


@pytest.mark.parametrize("heavy", [False, True])
def test_the_search_is_never_worse_than_the_plain_line_and_better_in_all(heavy: bool) -> None:
    x = in_groups(matrix(40, 256, heavy=heavy)).flatten(0, 1)
    matters = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) + 0.1
    plain, found = plain_line(x, matters), search_groups(x, matters)
    assert bool((found.error <= plain.error).all())
    assert float(found.error.sum()) < 0.9 * float(plain.error.sum())
    wide = torch.addcmul(found.minimum[:, None], found.codes, found.scale[:, None])
    torch.testing.assert_close((matters * (wide - x) ** 2).sum(-1), found.error)


def test_inputs_that_matter_more_are_nearer() -> None:
    w, importance = matrix(64, 96), torch.ones(96)
    importance[5::8] = 100.0
    plain, weighted = (dequantize(quantize_q4(w, importance=each)) - w for each in (None, importance))
    assert float(weighted[:, 5::8].square().sum()) < 0.7 * float(plain[:, 5::8].square().sum())
    assert torch.equal(dequantize(quantize_q4(w, importance=torch.ones(96))) - w, plain)


def test_groups_of_zeros_of_one_number_and_of_tiny_numbers() -> None:
    w = torch.zeros(4, 64)
    w[1], w[2, :32], w[3] = 0.25, 1e-9, torch.linspace(-1e-6, 1e-6, 64)
    for kind in ("q8", "q4"):
        off = (dequantize(quantize(w, kind=kind)) - w).abs()
        assert float(off.max()) <= 1e-3 * 0.25
        assert torch.equal(off[0], torch.zeros(64))
    largest = torch.full((2, 32), 65_504.0)
    assert torch.equal(dequantize(quantize_q4(largest)), largest)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e6])
@pytest.mark.parametrize("kind", ["q8", "q4"])
def test_weights_without_a_float16_scale_are_refused(kind: str, bad: float) -> None:
    w = matrix(3, 40)
    w[1, 3] = bad
    with pytest.raises(TriformError, match="8 and 4 bit hold finite weights up to 65,504"):
        quantize(w, kind=kind)


def test_importance_has_one_number_per_input() -> None:
    with pytest.raises(TriformError, match=r"importance is \[31\], the matrix has 32 inputs"):
        quantize_q4(matrix(2, 32), importance=torch.ones(31))


def test_the_reference_in_plain_python() -> None:
    """scale · code (+ minimum), number by number."""
    w = matrix(3, 45, seed=4)
    for found in (quantize_q8(w), quantize_q4(w)):
        wide = dequantize(found)
        for out in range(3):
            for i in range(45):
                low = 0.0 if found.minimums is None else float(found.minimums[out, i // GROUP])
                want = float(found.scales[out, i // GROUP]) * int(found.codes[out, i]) + low
                assert abs(float(wide[out, i]) - want) <= 1e-7


def test_activations_are_rounded_group_by_group() -> None:
    x = matrix(5, 75, seed=2).view(5, 1, 75)
    codes, scales, _ = quantize_activations(x)
    assert (codes.dtype, scales.dtype, scales.shape) == (torch.int8, torch.float32, (5, 1, 3))
    assert float((round_activations(x) - x).abs().max()) <= float(scales.max()) / 2 * 1.001
    assert torch.equal(round_activations(x[2:3]), round_activations(x)[2:3])


def test_activations_that_are_no_numbers_come_out_as_such_and_harm_no_neighbour() -> None:
    x = torch.ones(3, 64)
    x[0, 0], x[1, 40], x[2, :32] = float("nan"), float("inf"), 1e-38
    found = round_activations(x)
    assert found[0, :32].isnan().all()
    assert found[1, 32:].isnan().all()
    assert torch.equal(found[0, 32:], torch.ones(32))
    assert torch.equal(found[1, :32], torch.ones(32))
    assert torch.equal(found[2, :32], torch.zeros(32))


def test_a_wrong_sign_of_the_minimum_would_be_noticed() -> None:
    w = matrix(8, 64, seed=3)
    right = quantize_q4(w)
    wrong = Codes(right.codes, right.scales, -right.minimums)
    assert float((dequantize(wrong) - w).abs().max()) > 5 * float((dequantize(right) - w).abs().max())
