"""Quantised matrices, written out: codes and scales from numbers, numbers from codes, activations rounded to 8 bits.

The clear reference of the fast kernels. A group is 32 neighbouring inputs of one output; scales and minimums are
float16, [outputs, groups]; the last group of a row may be shorter.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from triform.errors import InputError
from triform.weight_kinds import GROUP, WeightKind

LARGEST_Q8, LARGEST_Q4 = 127, 15
LARGEST_FLOAT16 = 65_504.0
# A smaller largest activation would need a factor that float32 does not have: its group is 0.
SMALLEST_TOP = 2.0**-119
GROUPS_AT_ONCE = 2048  # so that what is searched stays in the processor's cache
# Ranges of the search, as shares of the plain one: codes may leave out the outermost weights of a group.
RANGES = tuple(1.0 - 0.03 * step for step in range(14))
REFINEMENTS = 2


class Codes(NamedTuple):
    """A matrix in codes: w = scale · code (q8, int8), or scale · code + minimum (q4, uint8)."""

    codes: Tensor
    scales: Tensor
    minimums: Tensor | None = None

    @property
    def kind(self) -> WeightKind:
        return "q8" if self.minimums is None else "q4"


def quantize(weight: Tensor, *, kind: WeightKind, importance: Tensor | None = None) -> Codes:
    """Codes of a matrix [out, in]; `importance` says for each input how much an error there matters (q4)."""
    check_weights(weight)
    return quantize_q8(weight) if kind == "q8" else quantize_q4(weight, importance=importance)


def check_weights(weight: Tensor) -> None:
    """Refuses numbers that float16 scales cannot express."""
    top = float(weight.abs().max()) if weight.numel() else 0.0
    if not top <= LARGEST_FLOAT16:
        raise InputError(
            f"a weight is {top:g}; 8 and 4 bit hold finite weights up to {LARGEST_FLOAT16:,.0f}: "
            "use bfloat16 or float32"
        )


# --- 8 bits -----------------------------------------------------------------------------------------------------------


def quantize_q8(weight: Tensor) -> Codes:
    """scale = largest magnitude of the group / 127, rounded to float16; code = w / scale, rounded"""
    outputs, inputs = weight.shape
    codes = torch.empty(outputs, inputs, dtype=torch.int8)
    scales = torch.empty(outputs, count_groups(inputs), dtype=torch.float16)
    for rows in row_slices(outputs, inputs):
        grouped = in_groups(weight[rows].float())
        scales[rows] = (grouped.abs().amax(dim=-1) / LARGEST_Q8).half()
        inverse = scales[rows].float().reciprocal().nan_to_num(posinf=0.0)
        found = (grouped * inverse[..., None]).round_().clamp_(-LARGEST_Q8, LARGEST_Q8)
        codes[rows] = found.flatten(1)[:, :inputs].to(torch.int8)
    return Codes(codes, scales)


# --- 4 bits -----------------------------------------------------------------------------------------------------------


def quantize_q4(weight: Tensor, *, importance: Tensor | None = None) -> Codes:
    """Scale and minimum of each group searched, so that Σ importance · (w − ŵ)² is as small as was found"""
    outputs, inputs = weight.shape
    codes = torch.empty(outputs, inputs, dtype=torch.uint8)
    scales = torch.empty(outputs, count_groups(inputs), dtype=torch.float16)
    minimums = torch.empty_like(scales)
    # Padded inputs do not matter at all.
    matters = in_groups((torch.ones(inputs) if importance is None else check_importance(importance, inputs))[None])
    for rows in row_slices(outputs, inputs):
        grouped = in_groups(weight[rows].float(), pad="last")
        best = search_groups(grouped.flatten(0, 1), matters.expand_as(grouped).flatten(0, 1))
        codes[rows] = best.codes.view(grouped.shape).flatten(1)[:, :inputs].to(torch.uint8)
        scales[rows], minimums[rows] = (x.half().view(grouped.shape[:2]) for x in (best.scale, best.minimum))
    return Codes(codes, scales, minimums)


def check_importance(importance: Tensor, inputs: int) -> Tensor:
    """One number per input, at least a little of each."""
    if importance.shape != (inputs,):
        raise InputError(f"importance is {list(importance.shape)}, the matrix has {inputs} inputs; give one per input")
    wide = importance.float()
    return wide.clamp(min=max(1e-4 * float(wide.mean()), 1e-30))


class Line(NamedTuple):
    """Groups [n, 32] as codes on a line each, scale · code + minimum (both are float16's values); their errors [n]."""

    codes: Tensor
    scale: Tensor
    minimum: Tensor
    error: Tensor


def plain_line(x: Tensor, matters: Tensor) -> Line:
    """From the smallest to the largest weight of the group in 15 equal steps."""
    low, high = x.aminmax(dim=-1)
    return place_on_line(x, (high - low) / LARGEST_Q4, low, matters)


def search_groups(x: Tensor, matters: Tensor) -> Line:
    """The best line of each group: the plain one, narrower ones fitted to their codes, or the best of these refined."""
    best = plain_line(x, matters)
    low, high = x.aminmax(dim=-1)
    middle, half = (low + high) / 2, (high - low) / 2
    for share in RANGES:
        start = place_on_line(x, 2 * share * half / LARGEST_Q4, middle - share * half, matters)
        best = keep_better(best, fit_line(x, start.codes, matters))
    for _ in range(REFINEMENTS):
        best = keep_better(best, fit_line(x, best.codes, matters))
    return best


def fit_line(x: Tensor, codes: Tensor, matters: Tensor) -> Line:
    """Scale and minimum by weighted least squares for these codes, then the codes nearest to that line."""
    weighted = matters * codes
    total, first = matters.sum(-1), weighted.sum(-1)
    second, value = (weighted * codes).sum(-1), (matters * x).sum(-1)
    mixed = (weighted * x).sum(-1)
    determinant = total * second - first * first
    scale = torch.where(determinant > 0, (total * mixed - first * value) / determinant, 0.0)
    minimum = (value - scale * first) / total
    return place_on_line(x, scale, minimum, matters)


def place_on_line(x: Tensor, scale: Tensor, minimum: Tensor, matters: Tensor) -> Line:
    """The nearest codes to scale and minimum as float16 holds them."""
    scale, minimum = (part.clamp(-LARGEST_FLOAT16, LARGEST_FLOAT16).half().float() for part in (scale, minimum))
    inverse = scale.reciprocal().nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    codes = (x - minimum[:, None]).mul_(inverse[:, None]).round_().clamp_(0, LARGEST_Q4)
    off = torch.addcmul(minimum[:, None], codes, scale[:, None]).sub_(x)
    return Line(codes, scale, minimum, (matters * off.square_()).sum(-1))


def keep_better(best: Line, other: Line) -> Line:
    """Group by group, the line with the smaller error."""
    better = other.error < best.error
    return Line(
        torch.where(better[:, None], other.codes, best.codes),
        torch.where(better, other.scale, best.scale),
        torch.where(better, other.minimum, best.minimum),
        torch.where(better, other.error, best.error),
    )


# --- back to numbers --------------------------------------------------------------------------------------------------


def dequantize(matrix: Codes) -> Tensor:
    """scale · code (+ minimum) in float32, [out, in]"""
    inputs = matrix.codes.shape[1]
    wide = spread(matrix.scales, inputs).mul_(matrix.codes)
    return wide if matrix.minimums is None else wide.add_(spread(matrix.minimums, inputs))


def spread(of_groups: Tensor, inputs: int) -> Tensor:
    """One number per group → one per input, in float32."""
    return of_groups.float().repeat_interleave(GROUP, dim=-1)[..., :inputs].contiguous()


# --- activations ------------------------------------------------------------------------------------------------------


def quantize_activations(x: Tensor) -> Codes:
    """[..., in] in groups of 32: scale = largest / 127 in float32, code = x · (127 / largest), rounded to even

    A group with NaN or infinity has NaN as its scale, so that products with it are NaN.
    """
    grouped = in_groups(x.float())
    top = grouped.abs().amax(dim=-1)
    small = top < SMALLEST_TOP
    factor = torch.where(small, 0.0, LARGEST_Q8 / top)
    scales = torch.where(small, 0.0, top / LARGEST_Q8)
    bad = ~top.isfinite()
    codes = torch.where(bad[..., None], 0.0, (grouped * factor[..., None]).round_())
    return Codes(codes.flatten(-2)[..., : x.shape[-1]].to(torch.int8), torch.where(bad, torch.nan, scales))


def round_activations(x: Tensor) -> Tensor:
    """The activations that a product with q8 or q4 computes with, in float32."""
    rounded = quantize_activations(x)
    return spread(rounded.scales, x.shape[-1]).mul_(rounded.codes)


# --- groups -----------------------------------------------------------------------------------------------------------


def count_groups(inputs: int) -> int:
    return -(-inputs // GROUP)


def in_groups(x: Tensor, *, pad: str = "zeros") -> Tensor:
    """[..., in] → [..., groups, 32], padded with zeros, or with the last number, which keeps a group's range."""
    missing = -x.shape[-1] % GROUP
    if missing:
        last = x[..., -1:].expand(*x.shape[:-1], missing)
        x = torch.cat([x, last], -1) if pad == "last" else F.pad(x, (0, missing))
    return x.reshape(*x.shape[:-1], -1, GROUP)


def row_slices(outputs: int, inputs: int) -> Iterator[slice]:
    """Rows that are quantised together, in turn."""
    step = max(1, GROUPS_AT_ONCE // max(1, count_groups(inputs)))
    return (slice(at, min(at + step, outputs)) for at in range(0, outputs, step))
