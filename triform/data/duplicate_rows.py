"""Which rows were there before: hashes on disk, compared a part at a time, so that memory does not grow with the data.

Refuses to know what a row is. Different rows are taken for one with a chance of about n² / 2⁶⁵: 1 in 40,000 for 30
million rows.
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

PART = 1 << 20  # rows compared at once, in about 85 MiB
HELD = 1 << 13  # rows held before they are written


class Repeats:
    """(hash, place) of every row noted: 16 bytes a row in a temporary file."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # this class is the context manager
        self._held = array("Q")
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def note(self, row: bytes, *, place: int) -> None:
        """Places must grow from row to row."""
        self._held.append(int.from_bytes(hashlib.blake2b(row, digest_size=8).digest(), "little"))
        self._held.append(place)
        self._count += 1
        if len(self._held) >= 2 * HELD:
            self._flush()

    def again(self) -> Iterator[tuple[Places, Places]]:
        """The places of rows that were there before, and where each was first."""
        self._flush()
        parts = self._count // PART + 1
        for part in range(parts):
            notes = self._part(part, parts)
            hashes, places = notes[np.lexsort((notes[:, 1], notes[:, 0]))].T
            is_first = np.r_[True, hashes[1:] != hashes[:-1]][: len(hashes)]
            firsts = places[is_first][np.cumsum(is_first) - 1]
            yield places[~is_first], firsts[~is_first]

    def _part(self, part: int, parts: int) -> Places:
        """Equal hashes are always in the same part."""
        self._file.seek(0)
        found = [np.empty((0, 2), np.uint64)]
        while block := self._file.read(16 * PART):
            notes = np.frombuffer(block, np.uint64).reshape(-1, 2)
            found.append(notes[notes[:, 0] % np.uint64(parts) == part])
        return np.concatenate(found)

    def _flush(self) -> None:
        try:
            self._file.write(self._held.tobytes())
            self._file.flush()
        except OSError as error:
            raise DataError(f"cannot keep hashes in {tempfile.gettempdir()}: {error.strerror}") from error
        del self._held[:]
