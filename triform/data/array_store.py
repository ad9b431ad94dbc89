"""Lists of numbers on disk, each found at once, in a folder that is whole or not there.

Refuses to know what the numbers mean.
"""

import errno
import io
import os
import secrets
import shutil
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from triform.data.line_reader import DataError
from triform.files.locks import NAME as LOCK
from triform.files.locks import FolderBusy, lock_beside, lock_leftover

Numbers: TypeAlias = npt.NDArray[Any]  # of uint8, uint16 or uint32, as the file's ending says
T = TypeVar("T")

CHUNK = 1 << 20  # numbers copied at once
UNUSED = 30 * 24 * 3600  # seconds
MAX_ATTEMPTS = 3


class StoredNumbers:
    """An array in a file that is held open: slices are read when they are asked for. Not mapped: a file that is cut or
    written to meanwhile is an error with a name, not a signal that ends the process or other numbers without a word."""

    def __init__(self, path: Path, dtype: str) -> None:
        try:
            self.path, self.dtype = path, np.dtype(dtype)
            self._file, self._turn = path.open("rb", buffering=0), Lock()
        except (OSError, TypeError) as error:
            raise DataError(f"the cache file {path} is damaged: {error}") from error
        weakref.finalize(self, self._file.close)
        self._seen = self._look()
        self._length, rest = divmod(self._seen[0], self.dtype.itemsize)
        if rest:
            raise DataError(f"the cache file {path} is damaged: {self._seen[0]} bytes are no whole count of {dtype}")

    def _look(self) -> tuple[int, int]:
        """Its size and the time of the last write. (Not of the last change: deleted files may be read to the end.)"""
        found = os.fstat(self._file.fileno())
        return found.st_size, found.st_mtime_ns

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, at: slice) -> Numbers:
        begin, end, step = at.indices(self._length)
        numbers = np.empty(max(0, end - begin), self.dtype)
        with self._turn:
            self._file.seek(begin * self.dtype.itemsize)
            read = _read_into(self._file, numbers.view(np.uint8).data)
            now = self._look()
        if read < numbers.nbytes or now != self._seen:
            raise DataError(
                f"the cache file {self.path} was changed by another program while it was in use; start again "
                "(a run goes on with --resume): what is damaged is made anew"
            )
        return numbers[::step]


def _read_into(file: io.FileIO, buffer: memoryview) -> int:
    """As much as there is; one call of the system reads at most 2 GiB."""
    done = 0
    while done < len(buffer) and (count := file.readinto(buffer[done:])):
        done += count
    return done


class Ragged:
    """ragged[i] is the i-th list: values[offsets[i] : offsets[i + 1]]. Nothing is read before it is asked for."""

    def __init__(self, folder: Path, *, name: str) -> None:
        files = {path.suffix[1:]: path for path in folder.glob(f"{name}.*")}
        offsets = files.pop("offsets", None)
        if offsets is None or len(files) != 1:
            raise DataError(f"the cache {folder} does not hold {name}")
        ((dtype, values),) = files.items()
        self.offsets, self.values = StoredNumbers(offsets, "uint64"), StoredNumbers(values, dtype)
        if not len(self.offsets) or self.offsets[-1:][0] != len(self.values):
            raise DataError(f"the cache {folder} is damaged: {values.name} is not as long as its offsets say")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Numbers:
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        begin, end = self.offsets[index : index + 2].tolist()
        return self.values[begin:end]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return np.diff(self.offsets[:]).astype(np.int64)


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
    numbers = StoredNumbers(wide, "uint32")
    with wide.with_suffix(".uint16").open("wb") as file:
        for start in range(0, len(numbers), CHUNK):
            file.write(numbers[start : start + CHUNK].astype(np.uint16).tobytes())
    wide.unlink()


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """A new folder to fill, which takes its name once all of it is on disk. If anything fails, nothing is left."""
    filling = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with lock_beside(filling):  # by which others know that it is not left of a killed process
            try:
                yield from _filled(filling, folder)
            finally:
                shutil.rmtree(filling, ignore_errors=True)
    except OSError as error:
        raise DataError(
            f"cannot write the cache {folder}: {error.strerror or error}; make room, or set TRIFORM_HOME elsewhere"
        ) from error


def _filled(filling: Path, folder: Path) -> Iterator[Path]:
    filling.mkdir()
    yield filling
    for path in (*filling.iterdir(), filling):
        _to_disk(path)
    try:
        filling.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another process has made the same one meanwhile
            raise
    _to_disk(folder.parent)


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
        for _ in range(MAX_ATTEMPTS):  # other processes may find the same damage, and make the same anew
            if place.exists():
                try:
                    found = use(place)
                except DataError:
                    _delete(place)
                else:
                    self.reused.append(name)
                    with suppress(OSError):  # a cache that can only be read serves too
                        os.utime(place)
                    return found
            with whole(place) as filling:
                fill(filling)
            with suppress(DataError):
                found = use(place)
                self.made.append(name)
                self.prune()
                return found
        return use(place)

    def prune(self) -> None:
        """What nobody has used for a month goes; so does what a killed process has left half made."""
        oldest = time.time() - UNUSED
        for place in self.folder.iterdir():
            with suppress(OSError, FolderBusy):  # what cannot be deleted stays
                if place.name.startswith("."):  # a draft, or its lock
                    name = place.name.removeprefix(".").removesuffix(LOCK) if place.is_file() else place.name
                    with lock_leftover(self.folder / name):
                        shutil.rmtree(self.folder / name, ignore_errors=True)
                elif place.stat().st_mtime < oldest:
                    _delete(place)


def _delete(place: Path) -> None:
    """Under another name first: half of it must never be taken for a whole one."""
    gone = place.with_name(f".{place.name}-{secrets.token_hex(4)}")
    with suppress(FileNotFoundError):  # another process was faster
        place.rename(gone)
        shutil.rmtree(gone)


def _to_disk(path: Path) -> None:
    if path.is_dir() and os.name == "nt":  # Windows has no such thing for folders
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
