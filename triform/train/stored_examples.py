"""Examples on disk: made once from rows, in chunks, and read one by one; only their lengths are in memory."""

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from triform.data.array_store import Cache, Ragged, RaggedWriter
from triform.data.line_reader import DataError
from triform.data.row_cache import place_of
from triform.data.rows import R, Row
from triform.errors import InputError, TriformError
from triform.train.examples import KINDS, Examples, KnownExamples, Place, plain

CHUNK_ROWS = 1024  # rows made into examples at a time
ABOUT = "about.json"


class About(msgspec.Struct, frozen=True):
    """The kind of the examples, and the fingerprint that `ExampleList` would have."""

    kind: str
    fingerprint: str


class Stored(KnownExamples[Any]):
    """Examples in a folder, each as a JSON list of its fields, with the number of the row it was made of."""

    def __init__(self, folder: Path, *, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._examples, lengths = Ragged(folder, name="examples"), Ragged(folder, name="lengths")
        self._owners = Ragged(folder, name="owners").values
        try:
            about = msgspec.json.decode((folder / ABOUT).read_bytes(), type=About)
            self._kind, self._fingerprint = KINDS[about.kind], about.fingerprint
        except (OSError, msgspec.MsgspecError, KeyError) as error:
            raise DataError(f"the cache {folder} is damaged: {ABOUT}: {error}") from error
        self._lengths = lengths.values[:].astype(np.int64)
        if not len(self._lengths) == len(self._owners) == len(self._examples):
            raise DataError(f"the cache {folder} is damaged: the numbers of examples, lengths and rows differ")

    def at(self, place: Place) -> Any:
        return self._kind(*msgspec.json.decode(self._examples[place.row].tobytes()))

    def where(self, place: Place) -> str:
        return place_of(self._rows, int(self._owners[place.row : place.row + 1][0]))


def stored(
    rows: Sequence[R], make: Callable[[Sequence[R]], Examples[Any]], *, cache: Cache, fingerprint: str
) -> Stored:
    """Examples that `make` makes of the rows, or cached ones of this fingerprint. Those of a row must not depend on
    other rows."""
    return cache.get(
        f"examples-{fingerprint[:16]}",
        fill=lambda folder: _write(_make_examples(rows, make), folder),
        use=lambda folder: Stored(folder, rows=rows),
    )


class Made(NamedTuple):
    """An example, its number of tokens, and the number of the row it was made of."""

    example: Any
    length: int
    owner: int


def _make_examples(rows: Sequence[R], make: Callable[[Sequence[R]], Examples[Any]]) -> Iterator[Made]:
    for begin in range(0, len(rows), CHUNK_ROWS):
        chunk = rows[begin : begin + CHUNK_ROWS]
        examples = make(chunk)
        lengths = examples.lengths.tolist()
        owners = range(len(chunk)) if len(lengths) == len(chunk) else _find_owners(chunk, make)
        for number, (length, owner) in enumerate(zip(lengths, owners, strict=True)):
            yield Made(examples.at(Place(0, 0, number)), length, begin + owner)


def _find_owners(rows: Sequence[R], make: Callable[[Sequence[R]], Examples[Any]]) -> Iterator[int]:
    """If rows have several examples or none: makes those of each row by itself, to count them."""
    for number, row in enumerate(rows):
        with suppress(InputError):  # a task may refuse rows without targets
            yield from [number] * len(make([row]).lengths)


def _write(examples: Iterator[Made], folder: Path) -> None:
    lengths, owners, kind = array("Q"), array("Q"), ""
    # The same bytes that `digest` would hash for all of them at once.
    content, separator = hashlib.sha256(b"["), b""
    with RaggedWriter(folder, name="examples", dtype="uint8") as writer:
        for example, length, owner in examples:
            record = msgspec.json.encode(plain(example))
            writer.add(record)
            content.update(separator + record)
            lengths.append(length)
            owners.append(owner)
            kind, separator = type(example).__name__, b","
    if not lengths:
        raise TriformError("there are no examples to train on")
    content.update(b"]")
    for name, numbers in (("lengths", lengths), ("owners", owners)):
        with RaggedWriter(folder, name=name, dtype="uint64") as writer:
            writer.add(numbers.tobytes())
    (folder / ABOUT).write_bytes(msgspec.json.encode(About(kind, content.hexdigest())))
