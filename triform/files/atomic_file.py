"""One file, written whole or not at all: as a draft beside its place, synced to disk, then renamed.

At every moment, and after a crash at any moment, the file has either its old bytes or all of the new ones.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from triform.files.errors import FileError


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """A draft to write into; it takes the file's place when the block ends without an error."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as file:
            yield file
        put_in_place(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def write_file(path: Path, data: bytes) -> None:
    """The bytes into a file, whose folder is made where it is missing."""
    try:
        make_folder(path.parent)
        with replace_file(path) as file:
            file.write(data)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error


def put_in_place(draft: Path, path: Path) -> None:
    """A finished draft takes the place of the file beside it, on disk."""
    sync(draft)
    os.replace(draft, path)
    sync(path.parent)


def make_folder(folder: Path) -> list[Path]:
    """With all parents, each entered in its own parent on disk; returns those that were missing, innermost first."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync(path.parent)
    return missing


def sync_tree(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        sync(path)


def sync(path: Path) -> None:
    """fsync of a file or folder."""
    if os.name == "nt" and path.is_dir():
        return  # folders cannot be opened there
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
