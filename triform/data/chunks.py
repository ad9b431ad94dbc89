"""Items in chunks: limited in number and in characters, so that memory does not grow with either."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

CHUNK_ITEMS = 1024  # enough to batch texts of similar length
CHUNK_CHARACTERS = 1 << 20  # one item may have more

T = TypeVar("T")


def split_chunks(items: Iterable[T], *, count: int = CHUNK_ITEMS, first: int | None = None) -> Iterator[list[T]]:
    """At most `count` items per chunk; with `first`, chunks start at that size and double, for early results."""
    chunk, size, limit = list[T](), 0, first or count
    for item in items:
        chunk.append(item)
        size += count_characters(item)
        if len(chunk) >= limit or size >= CHUNK_CHARACTERS:
            yield chunk
            chunk, size, limit = [], 0, min(2 * limit, count)
    if chunk:
        yield chunk


def count_characters(item: object) -> int:
    """Characters of all texts in an item."""
    if isinstance(item, str):
        return len(item)
    if isinstance(item, msgspec.Struct):
        item = msgspec.structs.astuple(item)
    return sum(map(count_characters, item)) if isinstance(item, list | tuple) else 0
