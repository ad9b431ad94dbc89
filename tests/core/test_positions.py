"""Positions by their formulas: the arrays of the lecture, exactly."""

import math

import pytest
import torch

from triform.core.positions import (
    RotaryAngles,
    Rotation,
    SinusoidalPositions,
    YarnRamp,
    alibi_slopes,
    llama3_frequencies,
    log_bucket,
    rotary_frequencies,
    yarn_frequencies,
)


def sinusoid(count: int, width: int) -> torch.Tensor:
    return SinusoidalPositions()(torch.zeros(1, count, width, dtype=torch.float64), torch.arange(count)[None])[0]


def test_the_lectures_formula() -> None:
    table = sinusoid(60, 8)
    for pos in (0, 2, 50):
        for i in range(4):
            angle = pos / 10_000 ** (2 * i / 8)
            assert float(table[pos, 2 * i]) == pytest.approx(math.sin(angle), abs=1e-15)
            assert float(table[pos, 2 * i + 1]) == pytest.approx(math.cos(angle), abs=1e-15)


def test_all_rows_differ_and_a_step_is_a_turn() -> None:
    """PE(pos + k) = R_k PE(pos), with a rotation that does not depend on pos."""
    table = sinusoid(200, 16)
    assert len(torch.unique(table, dim=0)) == 200
    k = 7
    angles = k * 10_000.0 ** (-torch.arange(0, 16, 2, dtype=torch.float64) / 16)
    sin, cos = table[:-k, ::2], table[:-k, 1::2]
    torch.testing.assert_close(table[k:, ::2], sin * angles.cos() + cos * angles.sin(), atol=1e-12, rtol=0)


def test_turning_keeps_lengths_and_knows_only_distances() -> None:
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    angles = RotaryAngles(rotary_frequencies(8, 10_000.0), sharpen=1.0)

    def turned(x: torch.Tensor, position: int) -> torch.Tensor:
        return Rotation()(x, angles(torch.tensor([[position]]), torch.float64))

    assert float(turned(q, 9).norm()) == pytest.approx(float(q.norm()))
    near, far = (float((turned(q, at) * turned(k, at - 3)).sum()) for at in (3, 1003))
    assert near == pytest.approx(far, abs=1e-10)
    assert near != pytest.approx(float((turned(q, 5) * turned(k, 1)).sum()), abs=1e-6)


def test_alibi_slopes_of_the_paper() -> None:
    assert alibi_slopes(8) == tuple(2.0**-n for n in range(1, 9))
    assert alibi_slopes(16)[0] == 2**-0.5
    assert alibi_slopes(3) == (2**-4, 2**-8, 2**-2)
    assert len(alibi_slopes(12)) == 12


def test_buckets_are_exact_then_logarithmic_then_shared() -> None:
    far = torch.arange(0, 300)
    buckets = log_bucket(far, 16, 128)
    assert buckets[:8].tolist() == list(range(8))
    assert int(buckets[127]) == int(buckets[299]) == 15
    assert bool((buckets[1:] >= buckets[:-1]).all())


def test_scalings_leave_fast_waves_and_slow_the_rest() -> None:
    plain = rotary_frequencies(64, 10_000.0)
    slowed = llama3_frequencies(plain, factor=8.0, low=1.0, high=4.0, trained=8192)
    assert slowed[0] == plain[0]
    assert slowed[-1] == pytest.approx(plain[-1] / 8)
    ramp = YarnRamp.of(64, 10_000.0, fast=32.0, slow=1.0, trained=4096, whole=True)
    yarn = yarn_frequencies(plain, ramp, factor=4.0)
    assert yarn[0] == plain[0]
    assert yarn[-1] == pytest.approx(plain[-1] / 4)
    assert all(a >= b for a, b in zip(plain, yarn, strict=True))
