"""Numbers for the page: rounded, limited in number, and only at positions that exist."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triform.errors import InputError
from triform.page.requests import Window

MAX_NUMBERS = 300_000  # numbers in one answer: a head over 512 × 512 tokens, 2 MB of JSON
DIGITS = 5
SMALLEST_NUMBER = 1e-30  # smaller becomes 0


def round_to_lists(values: NDArray[Any]) -> list[Any]:
    """Nested lists of numbers with five digits; None for −inf, which JSON does not have."""
    x = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(x)
    x = np.where(finite & (np.abs(x) > SMALLEST_NUMBER), x, 0.0)
    power = np.floor(np.log10(np.abs(x), where=x != 0, out=np.zeros_like(x)))
    scale = 10.0 ** (DIGITS - 1 - power)
    short = np.round(x * scale) / scale
    return short.tolist() if finite.all() else np.where(finite, short, None).tolist()  # type: ignore[call-overload]


def check_count(*sides: tuple[int, str], narrow: str) -> None:
    """`check((12, "heads"), (512, "queries"), (512, "keys"), narrow="request one head")`"""
    count = math.prod(size for size, _ in sides)
    if count > MAX_NUMBERS:
        product = " × ".join(f"{size:,} {name}" for size, name in sides)
        raise InputError(f"{product} are {count:,} numbers, the limit is {MAX_NUMBERS:,}; {narrow}")


def check_window(window: Window, count: int, what: str) -> slice:
    """The window as a slice, if the text has these positions."""
    first, last = window
    if not 0 <= first < last <= count:
        raise InputError(f"{what} {first} to {last} are out of range; the text has 0 to {count}")
    return slice(first, last)


def check_position(place: int, count: int, what: str) -> int:
    if not 0 <= place < count:
        raise InputError(f"{what} {place} is out of range; the text has 0 to {count - 1}")
    return place


def count_positions(part: slice) -> int:
    return int(part.stop - part.start)
