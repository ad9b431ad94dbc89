"""A folder that another process replaces while it is read: the old one or the new one, never a mixture.

Refuses to know what is read.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from triform.errors import TriformError
from triform.files.errors import WeightsError
from triform.files.locks import writer_inside

MAX_ATTEMPTS = 50
T = TypeVar("T")


def read_steadily(folder: str | Path, read: Callable[[], T]) -> T:
    """What `read` gives; it is called again where the folder under this name has become another one meanwhile."""
    for _ in range(MAX_ATTEMPTS):
        with _held(folder) as before:
            try:
                result = read()
            except TriformError as error:
                if _number(folder) != before:
                    continue
                if writer := writer_inside(Path(folder)):
                    raise WeightsError(f"{error}; it is being written meanwhile by {writer}") from error
                raise
            if _number(folder) == before:
                return result
    raise WeightsError(f"{folder} was replaced {MAX_ATTEMPTS} times while it was read; load it when its writer is done")


@contextmanager
def _held(folder: str | Path) -> Iterator[tuple[int, int] | None]:
    """The folder's number. While it is open no other folder can be given the same one."""
    handle = -1
    if os.name != "nt":  # folders cannot be opened there
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except (OSError, ValueError):
            yield _number(folder)  # nothing is there, or no folder: `read` will say so
            return
    try:
        yield _number(folder) if handle < 0 else _number(handle)
    finally:
        if handle >= 0:
            os.close(handle)


def _number(folder: str | Path | int) -> tuple[int, int] | None:
    try:
        found = os.stat(folder)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino
