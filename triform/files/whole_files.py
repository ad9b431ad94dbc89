"""The files of one folder: read whole and within bounds, written whole or not at all.

Nothing outside the folder is opened (`safe_path.py` has the rule). Refuses to know what bytes mean, but for JSON.
"""

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from triform.errors import TriformError
from triform.files.duplicate_keys import find_duplicate_key
from triform.files.safe_path import really

MiB = 1 << 20
T = TypeVar("T")


class FileError(TriformError):
    """A file that cannot be read or written as it should."""


def read_inside(folder: Path, *, name: str, limit: int) -> bytes | None:
    """The bytes of `folder/name`, or None where there is no such file."""
    path = folder / name
    try:
        if not os.path.lexists(path):
            return None
        real = really(folder, name)
        if not real.is_file():  # a named pipe would be waited for without end
            raise FileError(f"{path} is not a regular file")
        with open(real, "rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > limit:
        raise FileError(f"{path} is larger than the {limit:,} bytes that are read of this kind of file")
    return data


def parse_json(data: bytes, *, type: type[T], what: str | Path) -> T:
    """JSON of the given type, or one line that says where it is not."""
    try:
        return msgspec.json.decode(data, type=type)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise FileError(f"{what} is not what it should be: {error}") from error


def refuse_duplicate_keys(data: bytes, *, what: str | Path) -> None:
    """In JSON that has been parsed, though not the values that no field asked for."""
    try:
        key = find_duplicate_key(data)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{what} is not what it should be: {error}") from error
    if key is not None:
        raise FileError(f"{what} is not what it should be: it has the key {key[:80]!r} twice; keep one of them")


def parse_text(data: bytes, *, what: str | Path) -> str:
    """UTF-8, or one line that says where it is not."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{what} is not UTF-8 at byte {error.start}") from error


def write_whole(path: Path, *, data: bytes) -> None:
    """At every moment the file has either its old bytes or all of the new ones."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(draft, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error
