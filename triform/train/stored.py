"""Examples on disk: made once from rows, a chunk at a time, and read one by one; memory holds their lengths alone.

Owns how an example is written down. Refuses to know what makes it.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from triform.data.files import DataError
from triform.data.ragged import Cache, Ragged, RaggedWriter
from triform.data.rows import R
from triform.errors import TriformError
from triform.train.examples import KINDS, Examples, Place, plain

TOGETHER = 1024  # rows made into examples at once
ABOUT = "about.json"


class About(msgspec.Struct, frozen=True):
    """Which kind of example, and what `Listed` would call all of them."""

    kind: str
    fingerprint: str


class Stored(Examples[Any]):
    """Each example as a JSON list of its fields."""

    def __init__(self, folder: Path) -> None:
        self._examples, lengths = Ragged(folder, name="examples"), Ragged(folder, name="lengths")
        try:
            self._about = msgspec.json.decode((folder / ABOUT).read_bytes(), type=About)
            self._kind = KINDS[self._about.kind]
        except (OSError, msgspec.MsgspecError, KeyError) as error:
            raise DataError(f"the cache {folder} is damaged: {ABOUT}: {error}") from error
        self._lengths = lengths.values.astype(np.int64)
        if len(self._lengths) != len(self._examples):
            raise DataError(f"the cache {folder} is damaged: there is not a length for each example")

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return self._lengths

    @property
    def fingerprint(self) -> str:
        return self._about.fingerprint

    def at(self, place: Place) -> Any:
        return self._kind(*msgspec.json.decode(self._examples[place.row].tobytes()))


def stored(
    rows: Sequence[R], make: Callable[[Sequence[R]], Examples[Any]], *, cache: Cache, fingerprint: str
) -> Stored:
    """What `make` makes of the rows, those of an earlier run if the fingerprint is the same. It must make of each row
    the same whatever stands beside it."""
    return cache.get(
        f"examples-{fingerprint[:16]}", fill=lambda filling: _write(_made(rows, make), filling), use=Stored
    )


def _made(rows: Sequence[R], make: Callable[[Sequence[R]], Examples[Any]]) -> Iterator[tuple[Any, int]]:
    for begin in range(0, len(rows), TOGETHER):
        part = make(rows[begin : begin + TOGETHER])
        for number, length in enumerate(part.lengths.tolist()):
            yield part.at(Place(0, 0, number)), length


def _write(examples: Iterator[tuple[Any, int]], folder: Path) -> None:
    lengths, kind = array("Q"), ""
    # The bytes that `digest` would be given for all of them at once.
    content, sign = hashlib.sha256(b"["), b""
    with RaggedWriter(folder, name="examples", dtype="uint8") as writer:
        for example, length in examples:
            record = msgspec.json.encode(plain(example))
            writer.add(record)
            content.update(sign + record)
            lengths.append(length)
            kind, sign = type(example).__name__, b","
    if not lengths:
        raise TriformError("there is no example to learn from")
    content.update(b"]")
    with RaggedWriter(folder, name="lengths", dtype="uint64") as writer:
        writer.add(lengths.tobytes())
    (folder / ABOUT).write_bytes(msgspec.json.encode(About(kind, content.hexdigest())))
