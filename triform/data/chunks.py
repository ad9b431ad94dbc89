"""Items in portions: so many at a time, fewer where their texts are long, so that memory does not grow with either."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

COUNT = 1024  # items looked at together, so that texts of like length meet
CHARACTERS = 1 << 20  # of them; one item may have more

T = TypeVar("T")


def portions(items: Iterable[T], *, count: int = COUNT, first: int | None = None) -> Iterator[list[T]]:
    """`first` items at first and twice as many each time, where someone waits to see them done; at most `count`."""
    some, size, most = list[T](), 0, first or count
    for item in items:
        some.append(item)
        size += characters(item)
        if len(some) >= most or size >= CHARACTERS:
            yield some
            some, size, most = [], 0, min(2 * most, count)
    if some:
        yield some


def characters(item: object) -> int:
    """Of all texts in it."""
    if isinstance(item, str):
        return len(item)
    if isinstance(item, msgspec.Struct):
        item = msgspec.structs.astuple(item)
    return sum(map(characters, item)) if isinstance(item, list | tuple) else 0
