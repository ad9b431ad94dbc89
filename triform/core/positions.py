"""Positions enter at three places: added to the embeddings, as a rotation of q and k, added to the scores.

An unused place is a module that does nothing. Positions are integers counted from the first real token of each text;
padding never reaches this file.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from triform.core.masks import QueryKeyView, Sight
from triform.shapes import BHTS, BTD, BTHK, Angle, KeyPositions, Positions

# --- added to the embeddings ----------------------------------------------------------------------------------------


class NoAddedPosition(nn.Module):
    """x"""

    def forward(self, x: BTD, positions: Positions) -> BTD:
        return x


class SinusoidalPositions(nn.Module):
    """x + PE(pos), PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(the same)"""

    def forward(self, x: BTD, positions: Positions) -> BTD:
        return x + self.order(*sin_cos(positions, x.shape[-1])).to(x.dtype)

    def order(self, sin: Tensor, cos: Tensor) -> Tensor:
        return torch.stack((sin, cos), dim=-1).flatten(-2)


class SinusoidalHalves(SinusoidalPositions):
    """The same numbers, all sines first: the order in which Marian's models were trained."""

    def order(self, sin: Tensor, cos: Tensor) -> Tensor:
        return torch.cat((sin, cos), dim=-1)


class FairseqSinusoid(SinusoidalHalves):
    """The exponent i/(D/2 − 1), and positions from `first` on: the numbers M2M-100 was trained with."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.first = first

    def forward(self, x: BTD, positions: Positions) -> BTD:
        half = x.shape[-1] // 2
        exponents = torch.arange(half, dtype=torch.float64, device=positions.device) / (half - 1)
        angles = (positions + self.first).unsqueeze(-1) * 10_000.0**-exponents
        return x + self.order(angles.sin(), angles.cos()).to(x.dtype)


class SinCos(NamedTuple):
    """Sine and cosine of the rotary angles."""

    sin: Tensor
    cos: Tensor


def sin_cos(positions: Positions, width: int) -> SinCos:
    """sin and cos of pos / 10000^(2i/D), in float64: exact also for far positions."""
    pairs = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    angles = positions.unsqueeze(-1) * 10_000.0 ** (-pairs / width)
    return SinCos(angles.sin(), angles.cos())


class LearnedPositions(nn.Module):
    """x + W[pos + reserved]; the first `reserved` rows of W are unused."""

    def __init__(self, rows: int, width: int, *, reserved: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))
        self.reserved = reserved

    def forward(self, x: BTD, positions: Positions) -> BTD:
        return x + nn.functional.embedding(positions + self.reserved, self.weight)


# --- a rotation of q and k (RoPE) -----------------------------------------------------------------------------------


class Angles(NamedTuple):
    """cos and sin of each position's angles, computed once per pass and shared by all layers."""

    cos: Angle
    sin: Angle


class NoAngles(nn.Module):
    """No rotation: empty tensors."""

    def forward(self, positions: Positions, dtype: torch.dtype) -> Angles:
        none = torch.empty(1, positions.shape[1], 1, 0, dtype=dtype, device=positions.device)
        return Angles(none, none)


class RotaryAngles(nn.Module):
    """angle(pos, i) = pos · frequency[i]"""

    def __init__(self, frequencies: Sequence[float], *, sharpen: float) -> None:
        super().__init__()
        self.frequencies = tuple(frequencies)
        self.sharpen = sharpen

    def forward(self, positions: Positions, dtype: torch.dtype) -> Angles:
        frequencies = torch.tensor(self.frequencies, dtype=torch.float64, device=positions.device)
        angles = positions[:, :, None, None] * frequencies
        return Angles((angles.cos() * self.sharpen).to(dtype), (angles.sin() * self.sharpen).to(dtype))


class LayerAngles(nn.ModuleList):
    """The angles of each kind of layer."""

    def forward(self, positions: Positions, dtype: torch.dtype) -> tuple[Angles, ...]:
        return tuple(kind(positions, dtype) for kind in self)


class NoRotation(nn.Module):
    """q or k, unchanged"""

    def forward(self, x: BTHK, angles: Angles) -> BTHK:
        return x


class Rotation(nn.Module):
    """The pair (x[i], x[i + K/2]) rotated by angle i: the half-split layout of released Llama files."""

    def forward(self, x: BTHK, angles: Angles) -> BTHK:
        first, second = x.chunk(2, dim=-1)
        cos, sin = angles
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class PartialRotation(Rotation):
    """The first numbers of a head rotated, as many as there are angles for; the rest unchanged."""

    def forward(self, x: BTHK, angles: Angles) -> BTHK:
        rotated = 2 * angles.cos.shape[-1]
        return torch.cat((super().forward(x[..., :rotated], angles), x[..., rotated:]), dim=-1)


def rotary_frequencies(head_width: int, base: float) -> list[float]:
    """base^(−2i/K)"""
    return [base ** (-2 * i / head_width) for i in range(head_width // 2)]


def llama3_frequencies(plain: list[float], *, factor: float, low: float, high: float, trained: int) -> list[float]:
    """Wavelengths above trained/low are divided by `factor`, those below trained/high unchanged, a blend between."""

    def scaled(frequency: float) -> float:
        turns = trained * frequency / (2 * math.pi)
        keep = min(1.0, max(0.0, (turns - low) / (high - low)))
        return keep * frequency + (1 - keep) * frequency / factor

    return [scaled(frequency) for frequency in plain]


class YarnRamp(NamedTuple):
    """Pairs up to `first` are unchanged, from `last` on divided by the factor, a linear ramp between."""

    first: float
    last: float

    @staticmethod
    def of(head_width: int, base: float, *, fast: float, slow: float, trained: int, whole: bool) -> "YarnRamp":
        def pair(turns: float) -> float:
            """The pair that makes this many rotations within the trained context."""
            return head_width * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

        first, last = pair(fast), pair(slow)
        if whole:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, head_width - 1)
        return YarnRamp(first, last if last != first else last + 0.001)


def yarn_frequencies(plain: list[float], ramp: YarnRamp, *, factor: float) -> list[float]:
    """Fast pairs as trained, slow pairs divided by `factor`, a ramp between (Peng 2023)."""

    def scaled(i: int, frequency: float) -> float:
        slowed = min(1.0, max(0.0, (i - ramp.first) / (ramp.last - ramp.first)))
        return frequency * (1 - slowed) + frequency / factor * slowed

    return [scaled(i, frequency) for i, frequency in enumerate(plain)]


def longrope_sharpen(stretched: int, trained: int) -> float:
    """√(1 + ln(stretched / trained) / ln(trained)): longer texts spread the attention (Ding 2024)"""
    return math.sqrt(1 + math.log(max(stretched / trained, 1.0)) / math.log(trained))


# --- added to the scores --------------------------------------------------------------------------------------------


class NoBias(nn.Module):
    """scores + mask, no bias"""

    def forward(self, view: QueryKeyView, dtype: torch.dtype) -> Sight:
        return view.sight(dtype)


class ScoreBias(nn.Module):
    """scores + bias(distance), one bias per head"""

    def forward(self, view: QueryKeyView, dtype: torch.dtype) -> Sight:
        return view.sight_with(self.bias(view.queries, view.keys), dtype)

    def bias(self, queries: Positions, keys: KeyPositions) -> BHTS:
        raise NotImplementedError


class BucketBias(ScoreBias):
    """W[bucket(key − query)]: one bucket per small distance, logarithmic buckets for large ones (T5)."""

    def __init__(self, count: int, heads: int, *, distance: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, heads))
        self.distance = distance

    def bias(self, queries: Positions, keys: KeyPositions) -> BHTS:
        ahead = keys - queries.unsqueeze(-1)
        return nn.functional.embedding(self.bucket(ahead), self.weight).permute(0, 3, 1, 2)

    def bucket(self, ahead: Tensor) -> Tensor:
        """For a decoder: all buckets are for the past; the future has bucket 0 (and is masked)."""
        return log_bucket((-ahead).clamp(min=0), len(self.weight), self.distance)


class TwoSidedBucketBias(BucketBias):
    """For an encoder: the second half of the buckets is for the future."""

    def bucket(self, ahead: Tensor) -> Tensor:
        half = len(self.weight) // 2
        return log_bucket(ahead.abs(), half, self.distance) + half * (ahead > 0)


def log_bucket(far: Tensor, count: int, distance: int) -> Tensor:
    """Half of the buckets are one per distance; the rest grow logarithmically up to `distance`."""
    exact = count // 2
    # float32, as T5 was trained: at the edges between buckets the rounding decides.
    ratio = torch.log(far.clamp(min=1).float() / exact) / math.log(distance / exact)
    grown = exact + (ratio * (count - exact)).to(far.dtype)
    return torch.where(far < exact, far, grown.clamp(max=count - 1))


class AlibiBias(ScoreBias):
    """−slope[head] · |key − query| (Press 2021)"""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slopes = alibi_slopes(heads)

    def bias(self, queries: Positions, keys: KeyPositions) -> BHTS:
        slopes = torch.tensor(self.slopes, dtype=torch.float64, device=keys.device)
        distance = (keys - queries.unsqueeze(-1)).abs()
        return -slopes[None, :, None, None] * distance[:, None]


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """2^(−8/H), 2^(−16/H), …; where H is not a power of two, the missing slopes come from the next power."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    between = [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * power, 2)]
    return tuple(slopes + between[: heads - power])
