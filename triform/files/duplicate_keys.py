"""Keys that a JSON object has twice: two readers of the same bytes must not see two things.

Python's and msgspec's decoders keep the last value in silence; others keep the first.
"""

import json
from collections.abc import Iterable
from typing import Any


def find_duplicate(pairs: Iterable[tuple[str, Any]]) -> str | None:
    """The first key of one object that comes a second time."""
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    return None


def find_duplicate_key(data: bytes) -> str | None:
    """The first duplicate key of any object in this JSON, which a strict decoder has accepted before."""
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        if (key := find_duplicate(pairs)) is not None:
            found.append(key)

    json.loads(data, object_pairs_hook=look, parse_int=len, parse_float=len)  # values are of no interest
    return found[0] if found else None
