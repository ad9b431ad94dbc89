"""Lists of numbers on disk, each found at once, in a folder that is whole or not there.

Refuses to know what the numbers mean.
"""

import errno
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from triform.data.files import DataError

Numbers: TypeAlias = npt.NDArray[Any]  # of uint8, uint16 or uint32, as the file's ending says
T = TypeVar("T")

CHUNK = 1 << 20  # numbers copied at once
UNUSED = 30 * 24 * 3600  # seconds


class Ragged:
    """ragged[i] is the i-th list: values[offsets[i] : offsets[i + 1]]. Nothing is read before it is asked for."""

    def __init__(self, folder: Path, *, name: str) -> None:
        files = {path.suffix[1:]: path for path in folder.glob(f"{name}.*")}
        offsets = files.pop("offsets", None)
        if offsets is None or len(files) != 1:
            raise DataError(f"the cache {folder} does not hold {name}")
        ((dtype, values),) = files.items()
        self.offsets, self.values = _mapped(offsets, "uint64"), _mapped(values, dtype)
        if not len(self.offsets) or self.offsets[-1] != len(self.values):
            raise DataError(f"the cache {folder} is damaged: {values.name} is not as long as its offsets say")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Numbers:
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return np.diff(self.offsets).astype(np.int64)


class RaggedWriter:
    """Appends lists, given as the bytes of their numbers."""

    def __init__(self, folder: Path, *, name: str, dtype: str) -> None:
        self.size, self.end = np.dtype(dtype).itemsize, 0
        self.values = (folder / f"{name}.{dtype}").open("wb")
        self.offsets = (folder / f"{name}.offsets").open("wb")
        self.offsets.write(bytes(8))

    def add(self, numbers: bytes) -> None:
        self.end += len(numbers) // self.size
        self.values.write(numbers)
        self.offsets.write(self.end.to_bytes(8, "little"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.values.close()
        self.offsets.close()


def narrow(folder: Path, *, name: str) -> None:
    """The same numbers at half the size, for those that fit into 16 bits."""
    wide = folder / f"{name}.uint32"
    numbers = _mapped(wide, "uint32")
    with wide.with_suffix(".uint16").open("wb") as file:
        for start in range(0, len(numbers), CHUNK):
            file.write(numbers[start : start + CHUNK].astype(np.uint16).tobytes())
    wide.unlink()


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """A new folder to fill, which takes its name once all of it is on disk. If anything fails, nothing is left."""
    filling = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
    try:
        filling.mkdir(parents=True)
        yield filling
        for path in (*filling.iterdir(), filling):
            _to_disk(path)
        try:
            filling.rename(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another process has made the same one meanwhile
                raise
        _to_disk(folder.parent)
    except OSError as error:
        raise DataError(
            f"cannot write the cache {folder}: {error.strerror or error}; make room, or set TRIFORM_HOME elsewhere"
        ) from error
    finally:
        shutil.rmtree(filling, ignore_errors=True)


class Cache:
    """A folder of what was made from data, each under a name that says what it was made of. `made` and `reused` are the
    names that were asked for, in their order."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.made: list[str] = []
        self.reused: list[str] = []

    def get(self, name: str, *, fill: Callable[[Path], None], use: Callable[[Path], T]) -> T:
        """What is kept under this name, which is made first if it is not there or damaged."""
        place = self.folder / name
        if place.exists():
            try:
                found = use(place)
            except DataError:
                shutil.rmtree(place)
            else:
                self.reused.append(name)
                with suppress(OSError):  # a cache that can only be read serves too
                    os.utime(place)
                return found
        with whole(place) as filling:
            fill(filling)
        self.made.append(name)
        self.prune()
        return use(place)

    def prune(self) -> None:
        """What nobody has used for a month goes; so does what a killed process has left half made."""
        oldest = time.time() - UNUSED
        for place in self.folder.iterdir():
            with suppress(OSError):  # what cannot be deleted stays
                if place.stat().st_mtime < oldest:
                    shutil.rmtree(place)


def _mapped(path: Path, dtype: str) -> Numbers:
    if not path.stat().st_size:
        return np.empty(0, dtype)  # an empty file cannot be mapped
    try:
        return np.asarray(np.memmap(path, dtype, mode="r"))  # plain arrays are sliced faster
    except (TypeError, ValueError) as error:
        raise DataError(f"the cache file {path} is damaged: {error}") from error


def _to_disk(path: Path) -> None:
    if path.is_dir() and os.name == "nt":  # Windows has no such thing for folders
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
