"""Numbers on their way to a page: few digits, never too many at once, and only from where there are any."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triform.errors import InputError
from triform.page.requests import Window

MOST = 300_000  # numbers in one answer: a head over 512 × 512 tokens, 2 MB of JSON
DIGITS = 5
NOTHING = 1e-30  # smaller is 0


def listed(values: NDArray[Any]) -> list[Any]:
    """Lists of numbers with five digits; what JSON does not know (−inf behind a mask) is None."""
    x = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(x)
    x = np.where(finite & (np.abs(x) > NOTHING), x, 0.0)
    power = np.floor(np.log10(np.abs(x), where=x != 0, out=np.zeros_like(x)))
    scale = 10.0 ** (DIGITS - 1 - power)
    short = np.round(x * scale) / scale
    return short.tolist() if finite.all() else np.where(finite, short, None).tolist()  # type: ignore[call-overload]


def check(*sides: tuple[int, str], narrow: str) -> None:
    """`check((12, "heads"), (512, "queries"), (512, "keys"), narrow="ask for one head")`"""
    count = math.prod(size for size, _ in sides)
    if count > MOST:
        product = " × ".join(f"{size:,} {name}" for size, name in sides)
        raise InputError(f"{product} are {count:,} numbers, a page takes {MOST:,} at once; {narrow}")


def windowed(window: Window, count: int, what: str) -> slice:
    first, last = window
    if not 0 <= first < last <= count:
        raise InputError(f"{what} {first} to {last} are not in this text; it has 0 to {count}")
    return slice(first, last)


def within(place: int, count: int, what: str) -> int:
    if not 0 <= place < count:
        raise InputError(f"{what} {place} is not in this text; there are 0 to {count - 1}")
    return place


def size(part: slice) -> int:
    return int(part.stop - part.start)
