"""A folder that another process replaces while it is read: the old one or the new one, never a mixture."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from triform.errors import TriformError
from triform.files.errors import FileError
from triform.files.locks import find_writer_inside

MAX_ATTEMPTS = 50
T = TypeVar("T")


def read_steadily(folder: str | Path, read: Callable[[], T]) -> T:
    """The result of `read`, which is called again where the folder was replaced meanwhile."""
    for _ in range(MAX_ATTEMPTS):
        with _hold(folder) as before:
            try:
                result = read()
            except TriformError as error:
                if _folder_id(folder) != before:
                    continue
                if writer := find_writer_inside(Path(folder)):
                    raise FileError(f"{error}; it is being written meanwhile by {writer}") from error
                raise
            if _folder_id(folder) == before:
                return result
    raise FileError(f"{folder} was replaced {MAX_ATTEMPTS} times while it was read; load it when its writer is done")


@contextmanager
def _hold(folder: str | Path) -> Iterator[tuple[int, int] | None]:
    """Device and inode of the folder. While it is open no other folder can get the same."""
    handle = -1
    if os.name != "nt":  # folders cannot be opened there
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except (OSError, ValueError):
            yield _folder_id(folder)  # nothing is there, or no folder: `read` raises
            return
    try:
        yield _folder_id(folder) if handle < 0 else _folder_id(handle)
    finally:
        if handle >= 0:
            os.close(handle)


def _folder_id(folder: str | Path | int) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
