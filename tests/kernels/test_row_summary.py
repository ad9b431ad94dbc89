"""One pass over the logits, natively and in torch: the same extremes, and log Σ exp to rounding."""

import math

import pytest
import torch

from triform.kernels.library import VARIABLE, find_kernels
from triform.kernels.row_summary import find_top, summarize_in_torch, summarize_rows


@pytest.mark.parametrize("count", [1, 15, 16, 17, 4095, 4096, 4113, 50_257])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 10.0, 1e30])
def test_extremes_and_sums_are_those_of_torch(count: int, scale: float) -> None:
    x = torch.randn(3, count, generator=torch.Generator().manual_seed(count)) * scale
    for got, want in zip(summarize_rows(x), summarize_in_torch(x.double()), strict=True):
        assert got[:3] == want[:3]
        assert got[3] == pytest.approx(want[3], rel=1e-6, abs=2e-6)


def test_the_first_of_equal_numbers_counts_and_a_row_is_the_same_alone() -> None:
    x = torch.randn(5, 999, generator=torch.Generator().manual_seed(1))
    x[2, 7] = x[2, 500] = 9.0
    rows = summarize_rows(x)
    assert rows[2][:2] == [9.0, 7]
    assert rows == [summarize_rows(row[None])[0] for row in x]


@pytest.mark.parametrize(("count", "wanted"), [(1, 1), (8, 8), (16, 3), (33, 33), (5_000, 1), (5_000, 40)])
@pytest.mark.parametrize("equal", [False, True])
def test_the_largest_are_those_of_a_stable_sort(count: int, wanted: int, equal: bool) -> None:
    if equal and find_kernels() is None:
        pytest.skip("which of equal numbers comes first is torch's affair without kernels")
    x = torch.randn(3, count, generator=torch.Generator().manual_seed(count))
    x = x.round() if equal else x
    values, places = find_top(x, wanted)
    order = x.argsort(dim=-1, descending=True, stable=True)[:, :wanted]
    assert torch.equal(places, order)
    assert torch.equal(values, x.gather(-1, order))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [0, 20, 32])
def test_what_is_no_number_is_seen(bad: float, at: int) -> None:
    x = torch.randn(3, 33)
    x[1, at] = bad
    found = summarize_rows(x)
    assert not (math.isfinite(found[1][0]) and math.isfinite(found[1][2]))
    assert all(math.isfinite(each) for row in (found[0], found[2]) for each in row)


@pytest.mark.skipif(find_kernels() is None, reason="no native kernels for this machine")
def test_without_the_library_torch_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 77)
    native = summarize_rows(x)
    monkeypatch.setenv(VARIABLE, "off")
    for got, want in zip(native, summarize_rows(x), strict=True):
        assert got == pytest.approx(want, rel=1e-6)
