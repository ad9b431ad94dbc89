"""Lists of integers on disk with random access, in folders that are written atomically.

Knows nothing of what the numbers mean.
"""

import io
import os
import shutil
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Self, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from triform.data.line_reader import DataError
from triform.files.format_version import CURRENT_FORMAT, FORMAT_KEY, check_format
from triform.files.locks import LOCK_NAME as LOCK
from triform.files.locks import FolderBusy, lock_leftover
from triform.files.replace_folder import create_folder, delete_folder

Numbers: TypeAlias = npt.NDArray[Any]  # uint8, uint16 or uint32, by the ending of the file
T = TypeVar("T")

CHUNK_NUMBERS = 1 << 20  # copied at once
MAX_UNUSED_SECONDS = 30 * 24 * 3600
MAX_ATTEMPTS = 3
VERSION = "format.json"  # in every folder of a cache; one without it is of the first format


class StoredNumbers:
    """An array in an open file: slices are read on access. Not memory-mapped: a file that another program changes is
    then an error, not a signal that ends the process or silently different numbers."""

    def __init__(self, path: Path, dtype: str) -> None:
        try:
            self.path, self.dtype = path, np.dtype(dtype)
            self._file, self._lock = path.open("rb", buffering=0), Lock()
        except (OSError, TypeError) as error:
            raise DataError(f"the cache file {path} is damaged: {error}") from error
        weakref.finalize(self, self._file.close)
        self._state = self._read_state()
        self._length, rest = divmod(self._state[0], self.dtype.itemsize)
        if rest:
            raise DataError(f"the cache file {path} is damaged: {self._state[0]} bytes are not a multiple of {dtype}")

    def _read_state(self) -> tuple[int, int]:
        """Size and time of the last write. (Not ctime: a deleted file may still be read to the end.)"""
        stat = os.fstat(self._file.fileno())
        return stat.st_size, stat.st_mtime_ns

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, at: slice) -> Numbers:
        begin, end, step = at.indices(self._length)
        numbers = np.empty(max(0, end - begin), self.dtype)
        with self._lock:
            self._file.seek(begin * self.dtype.itemsize)
            read = _read_into(self._file, numbers.view(np.uint8).data)
            now = self._read_state()
        if read < numbers.nbytes or now != self._state:
            raise DataError(
                f"the cache file {self.path} was changed by another program while it was in use; start again "
                "(continue a run with --resume): the cache is then rebuilt"
            )
        return numbers[::step]


def _read_into(file: io.FileIO, buffer: memoryview) -> int:
    """Read until the buffer is full or the file ends; one system call reads at most 2 GiB."""
    done = 0
    while done < len(buffer) and (count := file.readinto(buffer[done:])):
        done += count
    return done


class Ragged:
    """ragged[i] is the i-th list: values[offsets[i] : offsets[i + 1]], read on access."""

    def __init__(self, folder: Path, *, name: str) -> None:
        files = {path.suffix[1:]: path for path in folder.glob(f"{name}.*")}
        offsets = files.pop("offsets", None)
        if offsets is None or len(files) != 1:
            raise DataError(f"the cache {folder} has no {name}")
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
    """Appends lists, each as the bytes of its numbers."""

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


def narrow_to_16_bits(folder: Path, *, name: str) -> None:
    """Rewrite uint32 numbers as uint16, where all fit."""
    wide = folder / f"{name}.uint32"
    numbers = StoredNumbers(wide, "uint32")
    with wide.with_suffix(".uint16").open("wb") as file:
        for start in range(0, len(numbers), CHUNK_NUMBERS):
            file.write(numbers[start : start + CHUNK_NUMBERS].astype(np.uint16).tobytes())
    wide.unlink()


@contextmanager
def create_atomically(folder: Path) -> Iterator[Path]:
    """A new folder to fill; it is renamed to its final name once it is on disk. If anything fails, nothing is left."""
    try:
        with create_folder(folder) as filling:
            yield filling
    except OSError as error:
        reason = error.strerror or error
        raise DataError(
            f"cannot write the cache {folder}: {reason}; free disk space, or set TRIFORM_HOME to another folder"
        ) from error


class FolderCache:
    """A folder of entries computed from data, each under a name made from the hash of its input. `made` and `reused`
    list the requested names, in order."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.made: list[str] = []
        self.reused: list[str] = []

    def get(self, name: str, *, fill: Callable[[Path], None], use: Callable[[Path], T]) -> T:
        """The entry of this name; it is made first if it is missing or damaged."""
        place = self.folder / name
        for _ in range(MAX_ATTEMPTS):  # other processes may repair the same entry
            if place.exists():
                try:
                    _check_format(place)
                    value = use(place)
                except DataError:
                    delete_folder(place)
                else:
                    self.reused.append(name)
                    with suppress(OSError):  # a read-only cache works too
                        os.utime(place)
                    return value
            with create_atomically(place) as filling:
                fill(filling)
                (filling / VERSION).write_bytes(msgspec.json.encode({FORMAT_KEY: CURRENT_FORMAT}))
            with suppress(DataError):
                value = use(place)
                self.made.append(name)
                self.prune()
                return value
        return use(place)

    def prune(self) -> None:
        """Delete entries that were not used for a month, and unfinished ones of killed processes."""
        oldest = time.time() - MAX_UNUSED_SECONDS
        for place in self.folder.iterdir():
            with suppress(OSError, FolderBusy):  # entries that cannot be deleted stay
                if place.name.startswith("."):  # an unfinished entry, or its lock
                    name = place.name.removeprefix(".").removesuffix(LOCK) if place.is_file() else place.name
                    with lock_leftover(self.folder / name):
                        shutil.rmtree(self.folder / name, ignore_errors=True)
                elif place.stat().st_mtime < oldest:
                    delete_folder(place)


def _check_format(place: Path) -> None:
    with suppress(FileNotFoundError):
        content = (place / VERSION).read_bytes()
        check_format(content, what=place / VERSION, otherwise="set TRIFORM_HOME to another folder")
