"""Finds duplicate rows: hashes on disk, compared in parts, so that memory does not grow with the data.

The probability that any two different rows have the same hash is about n² / 2⁶⁵: 1 in 40,000 for 30 million rows.
"""

import hashlib
import tempfile
from array import array
from collections.abc import Iterator
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from triform.data.line_reader import DataError

Places: TypeAlias = npt.NDArray[np.uint64]

PART_ROWS = 1 << 20  # compared at once, in about 85 MiB
BUFFER_ROWS = 1 << 13  # collected before they are written


class DuplicateFinder:
    """(hash, place) of every row: 16 bytes per row in a temporary file."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # this class is the context manager
        self._buffer = array("Q")
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, row: bytes, *, place: int) -> None:
        """Add a row; places must increase from row to row."""
        self._buffer.append(int.from_bytes(hashlib.blake2b(row, digest_size=8).digest(), "little"))
        self._buffer.append(place)
        self._count += 1
        if len(self._buffer) >= 2 * BUFFER_ROWS:
            self._flush()

    def find_duplicates(self) -> Iterator[tuple[Places, Places]]:
        """The places of duplicates, and the first place of each."""
        self._flush()
        parts = self._count // PART_ROWS + 1
        for part in range(parts):
            notes = self._read_part(part, parts)
            hashes, places = notes[np.lexsort((notes[:, 1], notes[:, 0]))].T
            is_first = np.r_[True, hashes[1:] != hashes[:-1]][: len(hashes)]
            firsts = places[is_first][np.cumsum(is_first) - 1]
            yield places[~is_first], firsts[~is_first]

    def _read_part(self, part: int, parts: int) -> Places:
        """Equal hashes are always in the same part."""
        self._file.seek(0)
        found = [np.empty((0, 2), np.uint64)]
        while block := self._file.read(16 * PART_ROWS):
            notes = np.frombuffer(block, np.uint64).reshape(-1, 2)
            found.append(notes[notes[:, 0] % np.uint64(parts) == part])
        return np.concatenate(found)

    def _flush(self) -> None:
        try:
            self._file.write(self._buffer.tobytes())
            self._file.flush()
        except OSError as error:
            raise DataError(f"cannot write hashes to {tempfile.gettempdir()}: {error.strerror}") from error
        del self._buffer[:]
