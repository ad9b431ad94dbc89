"""16-bit weights: squares and long sums are computed in float32, and only the result is rounded to 16 bits.

float16 ends at 65,504, which the square of 256 exceeds; bfloat16 has 8 bits of precision, so that a sum of some hundred
terms loses the small ones. float32 and float64 are not changed by a bit.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from triform.errors import ALL_EQUAL, InvalidScores, UnknownName


def at_least_float32(x: Tensor) -> Tensor:
    """x, converted to float32 if it has 16 bits."""
    return x if x.dtype.itemsize >= 4 else x.float()


def linear_in_float32(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b in float32, whatever the dtype of the weights."""
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float())


def check_scores(scores: Tensor) -> None:
    """Raises unless the scores [..., V] are finite and, in each row, not all the same."""
    lowest, highest = scores.aminmax(dim=-1)
    check_finite(lowest, highest)
    if scores.shape[-1] > 1 and bool((lowest == highest).any()):
        raise InvalidScores(ALL_EQUAL)


def check_extremes(rows: Sequence[tuple[float, float]], *, vocab: int) -> None:
    """The same where the smallest and the largest score of each row are known."""
    if not all(math.isfinite(low) and math.isfinite(high) for low, high in rows):
        raise InvalidScores
    if vocab > 1 and any(low == high for low, high in rows):
        raise InvalidScores(ALL_EQUAL)


def check_finite(lowest: Tensor, highest: Tensor) -> None:
    """Raises unless all numbers are finite: their minimum and maximum are finite only then."""
    if not bool((lowest.isfinite() & highest.isfinite()).all()):
        raise InvalidScores


def identity(x: Tensor) -> Tensor:
    """x"""
    return x


def relative_error(got: Tensor, want: Tensor) -> float:
    """The largest difference, relative to the largest number; infinite if any number is NaN or infinite."""
    if got.shape != want.shape or not bool(torch.isfinite(got).all()):
        return float("inf")
    got, want = got.double(), want.double()
    return float((got - want).abs().max() / want.abs().max().clamp(min=1e-30))


DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def to_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    """A dtype, also by its name."""
    if not isinstance(dtype, str):
        return dtype
    if dtype not in DTYPES:
        raise UnknownName("dtype", dtype, DTYPES)
    return DTYPES[dtype]
