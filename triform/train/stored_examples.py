"""Examples on disk: made once from rows, a chunk at a time, and read one by one; memory holds their lengths alone. Each
knows the row it was made of.

Owns how an example is written down. Refuses to know what makes it.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from triform.data.array_store import Cache, Ragged, RaggedWriter
from triform.data.line_reader import DataError
from triform.data.row_cache import place_of
from triform.data.rows import R, Row
from triform.errors import InputError, TriformError
from triform.train.examples import KINDS, Examples, Place, plain

TOGETHER = 1024  # rows made into examples at once
ABOUT = "about.json"


class About(msgspec.Struct, frozen=True):
    """Which kind of example, and what `Listed` would call all of them."""

    kind: str
    fingerprint: str


class Stored(Examples[Any]):
    """Each example as a JSON list of its fields."""

    def __init__(self, folder: Path, *, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._examples, lengths = Ragged(folder, name="examples"), Ragged(folder, name="lengths")
        self._owners = Ragged(folder, name="owners").values
        try:
            self._about = msgspec.json.decode((folder / ABOUT).read_bytes(), type=About)
            self._kind = KINDS[self._about.kind]
        except (OSError, msgspec.MsgspecError, KeyError) as error:
            raise DataError(f"the cache {folder} is damaged: {ABOUT}: {error}") from error
        self._lengths = lengths.values[:].astype(np.int64)
        if not len(self._lengths) == len(self._owners) == len(self._examples):
            raise DataError(f"the cache {folder} is damaged: there is not a length and a row for each example")

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return self._lengths

    @property
    def fingerprint(self) -> str:
        return self._about.fingerprint

    def at(self, place: Place) -> Any:
        return self._kind(*msgspec.json.decode(self._examples[place.row].tobytes()))

    def where(self, place: Place) -> str:
        return place_of(self._rows, int(self._owners[place.row : place.row + 1][0]))


def stored(
    rows: Sequence[R], make: Callable[[Sequence[R]], Examples[Any]], *, cache: Cache, fingerprint: str
) -> Stored:
    """What `make` makes of the rows, those of an earlier run if the fingerprint is the same. It must make of each row
    the same whatever stands beside it."""
    return cache.get(
        f"examples-{fingerprint[:16]}",
        fill=lambda filling: _write(_made(rows, make), filling),
        use=lambda made: Stored(made, rows=rows),
    )


class Made(NamedTuple):
    """An example, its tokens, and the number of the row it was made of."""

    example: Any
    length: int
    owner: int


def _made(rows: Sequence[R], make: Callable[[Sequence[R]], Examples[Any]]) -> Iterator[Made]:
    for begin in range(0, len(rows), TOGETHER):
        some = rows[begin : begin + TOGETHER]
        part = make(some)
        lengths = part.lengths.tolist()
        owners = range(len(some)) if len(lengths) == len(some) else _owners(some, make)
        for number, (length, owner) in enumerate(zip(lengths, owners, strict=True)):
            yield Made(part.at(Place(0, 0, number)), length, begin + owner)


def _owners(rows: Sequence[R], make: Callable[[Sequence[R]], Examples[Any]]) -> Iterator[int]:
    """Where some rows become several examples, or none: each by itself, which tells how many."""
    for number, row in enumerate(rows):
        with suppress(InputError):  # a task may refuse rows of which nothing can be learned
            yield from [number] * len(make([row]).lengths)


def _write(examples: Iterator[Made], folder: Path) -> None:
    lengths, owners, kind = array("Q"), array("Q"), ""
    # The bytes that `digest` would be given for all of them at once.
    content, sign = hashlib.sha256(b"["), b""
    with RaggedWriter(folder, name="examples", dtype="uint8") as writer:
        for example, length, owner in examples:
            record = msgspec.json.encode(plain(example))
            writer.add(record)
            content.update(sign + record)
            lengths.append(length)
            owners.append(owner)
            kind, sign = type(example).__name__, b","
    if not lengths:
        raise TriformError("there is no example to learn from")
    content.update(b"]")
    for name, numbers in (("lengths", lengths), ("owners", owners)):
        with RaggedWriter(folder, name=name, dtype="uint64") as writer:
            writer.add(numbers.tobytes())
    (folder / ABOUT).write_bytes(msgspec.json.encode(About(kind, content.hexdigest())))
