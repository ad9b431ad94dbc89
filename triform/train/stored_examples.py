"""Examples on disk: made once from rows, in chunks, and read one by one; only their lengths are in memory."""

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from triform.data.array_store import FolderCache, Ragged, RaggedWriter
from triform.data.line_reader import DataError
from triform.data.row_cache import describe_place
from triform.data.rows import DataRow, R
from triform.errors import InputError, TriformError
from triform.train.examples import EXAMPLE_TYPES, ExamplePlace, Examples, KnownExamples, to_json_values

CHUNK_ROWS = 1024  # rows made into examples at a time
ABOUT = "about.json"


class ExamplesNote(msgspec.Struct, frozen=True):
    """The kind of the examples, and the fingerprint that `ExampleList` would have."""

    kind: str
    fingerprint: str


class StoredExamples(KnownExamples[Any]):
    """Examples in a folder, each as a JSON list of its fields, with the number of the row it was made of."""

    def __init__(self, folder: Path, *, rows: Sequence[DataRow]) -> None:
        self._rows = rows
        self._examples, lengths = Ragged(folder, name="examples"), Ragged(folder, name="lengths")
        self._owners = Ragged(folder, name="owners").values
        try:
            about = msgspec.json.decode((folder / ABOUT).read_bytes(), type=ExamplesNote)
            self._kind, self._fingerprint = EXAMPLE_TYPES[about.kind], about.fingerprint
        except (OSError, msgspec.MsgspecError, KeyError) as error:
            raise DataError(f"the cache {folder} is damaged: {ABOUT}: {error}") from error
        self._lengths = lengths.values[:].astype(np.int64)
        if not len(self._lengths) == len(self._owners) == len(self._examples):
            raise DataError(f"the cache {folder} is damaged: the numbers of examples, lengths and rows differ")

    def at(self, place: ExamplePlace) -> Any:
        return self._kind(*msgspec.json.decode(self._examples[place.row].tobytes()))

    def where(self, place: ExamplePlace) -> str:
        return describe_place(self._rows, int(self._owners[place.row : place.row + 1][0]))


def store_examples(
    rows: Sequence[R], make: Callable[[Sequence[R]], Examples[Any]], *, cache: FolderCache, fingerprint: str
) -> StoredExamples:
    """Examples that `make` makes of the rows, or cached ones of this fingerprint. Those of a row must not depend on
    other rows."""
    return cache.get(
        f"examples-{fingerprint[:16]}",
        fill=lambda folder: _write(_make_examples(rows, make), folder),
        use=lambda folder: StoredExamples(folder, rows=rows),
    )


class MadeExample(NamedTuple):
    """An example, its number of tokens, and the number of the row it was made of."""

    example: Any
    length: int
    owner: int


def _make_examples(rows: Sequence[R], make: Callable[[Sequence[R]], Examples[Any]]) -> Iterator[MadeExample]:
    for begin in range(0, len(rows), CHUNK_ROWS):
        chunk = rows[begin : begin + CHUNK_ROWS]
        examples = make(chunk)
        lengths = examples.lengths.tolist()
        owners = range(len(chunk)) if len(lengths) == len(chunk) else _find_owners(chunk, make)
        for number, (length, owner) in enumerate(zip(lengths, owners, strict=True)):
            yield MadeExample(examples.at(ExamplePlace(0, 0, number)), length, begin + owner)


def _find_owners(rows: Sequence[R], make: Callable[[Sequence[R]], Examples[Any]]) -> Iterator[int]:
    """If rows have several examples or none: makes those of each row by itself, to count them."""
    for number, row in enumerate(rows):
        with suppress(InputError):  # a task may refuse rows without targets
            yield from [number] * len(make([row]).lengths)


def _write(examples: Iterator[MadeExample], folder: Path) -> None:
    lengths, owners, kind = array("Q"), array("Q"), ""
    # The same bytes that `digest` would hash for all of them at once.
    content, separator = hashlib.sha256(b"["), b""
    with RaggedWriter(folder, name="examples", dtype="uint8") as writer:
        for example, length, owner in examples:
            record = msgspec.json.encode(to_json_values(example))
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
    (folder / ABOUT).write_bytes(msgspec.json.encode(ExamplesNote(kind, content.hexdigest())))
