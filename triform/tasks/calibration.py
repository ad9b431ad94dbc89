"""Probabilities that can be believed: scores divided by the temperature T at which they fit rows not learned from.

    T = argmin over T of −Σ log p(right | scores / T), where one row more is taken to say nothing

That row keeps a handful of rows that are all right from making a model certain. Few rows may only make it less certain;
fewer still say nothing. Refuses to know networks and texts.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F

COLDEST, HOTTEST = 0.05, 20.0  # temperatures that are looked at
LEAST_ROWS = 50  # below this many rows T stays 1
ROWS_TO_SHARPEN = 200  # below this many rows T is not below 1


class Calibration(NamedTuple):
    """The temperature, and how it was found, as a model card says it."""

    temperature: float
    why: str


def calibrate(scores: Tensor, right: Tensor, *, several: bool) -> Calibration:
    """Of rows that the model has not learned from."""
    rows = len(scores)
    if rows < LEAST_ROWS:
        return Calibration(1.0, f"none: {rows} held-out rows are fewer than the {LEAST_ROWS} it takes")
    found = find_temperature(scores, right, several=several)
    if found < 1 and rows < ROWS_TO_SHARPEN:
        return Calibration(1.0, f"none: {rows} held-out rows are too few to make it more certain")
    return Calibration(found, f"temperature {found:.3g} from {rows:,} held-out rows, written into the head's weights")


def find_temperature(found: Tensor, right: Tensor, *, several: bool) -> float:
    """The loss is convex in 1/T; its lowest point is found by golden section."""
    share = 1 / (len(found) + 1)
    right = right * (1 - share) + share * (0.5 if several else 1 / right.shape[1])

    def loss(beta: float) -> float:
        if several:
            return float(F.binary_cross_entropy_with_logits(found * beta, right))
        return float(F.cross_entropy(found * beta, right))

    return 1 / find_lowest(loss, low=1 / HOTTEST, high=1 / COLDEST)


def find_lowest(f: Callable[[float], float], *, low: float, high: float) -> float:
    """Where a function with one valley is lowest."""
    golden = (math.sqrt(5) - 1) / 2
    while high - low > 1e-6 * high:
        a, b = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, b) if f(a) <= f(b) else (a, high)
    return (low + high) / 2
