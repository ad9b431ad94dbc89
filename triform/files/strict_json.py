"""JSON and UTF-8, decoded strictly: what does not fit its type is refused in one line that names the file.

A key that an object has twice can be refused as well: Python's and msgspec's decoders use the last value without a
word, others the first, so two readers of the same bytes would see two things.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from triform.files.errors import FileError, show_value, to_one_line

T = TypeVar("T")


def encode_json(value: object) -> bytes:
    """Indented, as all JSON files are written that people read."""
    return msgspec.json.format(msgspec.json.encode(value))


def parse_json(data: bytes, *, type: type[T], what: str | Path, unique_keys: bool = False) -> T:
    """The value; searching for duplicate keys takes Python time for every key, so large files are parsed without."""
    try:
        value = msgspec.json.decode(data, type=type)
        duplicate = find_duplicate_key(data) if unique_keys else None
    except (ValueError, RecursionError) as error:  # the errors of msgspec, json and UTF-8 are ValueErrors
        raise FileError(f"{what} is damaged: {to_one_line(error)}") from None
    if duplicate is not None:
        raise FileError(f"{what} is damaged: it has the key {show_value(duplicate)} twice; keep one of them")
    return value


def parse_text(data: bytes, *, what: str | Path) -> str:
    """Bytes as text; what is not UTF-8 is an error that says where."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{what} is not UTF-8 at byte {error.start}") from error


def find_duplicate(pairs: Iterable[tuple[str, Any]]) -> str | None:
    """The first key of one object that comes a second time."""
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    return None


def find_duplicate_key(data: bytes) -> str | None:
    """The first duplicate key of any object in JSON that a strict decoder has accepted before."""
    duplicates: list[str] = []

    def check(pairs: list[tuple[str, Any]]) -> None:
        if (key := find_duplicate(pairs)) is not None:
            duplicates.append(key)

    json.loads(data, object_pairs_hook=check, parse_int=len, parse_float=len)  # values do not matter
    return duplicates[0] if duplicates else None
