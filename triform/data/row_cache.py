"""Rows and their tokens on disk: made once, with random access, and rebuilt only when something changed.

Changes are found by content, SHA-256 of all bytes: size and time of a file can stay the same when it changes and change
when it does not, and the model card needs the hash anyway. It costs 0.8 s per GB, far less than reading the rows.
Changed code of this package also rebuilds. Knows no tokenizers and tasks.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Self, TypeAlias, overload

import msgspec
import numpy as np
import numpy.typing as npt

from triform.data.array_store import FolderCache, Ragged, RaggedWriter, narrow_to_16_bits
from triform.data.chunks import split_chunks
from triform.data.columns import Layout
from triform.data.input_paths import Paths, find_inputs
from triform.data.line_reader import DataError, name_place
from triform.data.readers import DEFAULT_LAYOUT, PlacedRow, read_placed
from triform.data.rows import BadRow, R
from triform.data.shuffle import Indices
from triform.errors import UnknownName

ENCODE_ROWS = 256  # encoded at once, so that a tokenizer can use all cores

Encode: TypeAlias = Callable[[Sequence[R]], Iterable[Mapping[str, Sequence[int]]]]


class RowSequence(Sequence[R]):
    """Rows by their number or by a slice, each with its place."""

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> list[R]: ...
    def __getitem__(self, index: int | slice) -> R | list[R]:
        if isinstance(index, slice):
            return [self.get(number) for number in range(*index.indices(len(self)))]
        return self.get(index)

    def get(self, index: int) -> R:
        raise NotImplementedError

    def where(self, index: int) -> str:
        """The place of a row: `train.csv:17`."""
        raise NotImplementedError


class CachedRows(RowSequence[R]):
    """Every good row of some files, with random access.

    A copy as JSON lines in the cache: every format, also .gz, becomes one with an offset per row.
    """

    def __init__(self, paths: Paths, *, kind: type[R], cache: FolderCache, layout: Layout = DEFAULT_LAYOUT) -> None:
        found = find_inputs(paths, kind=kind, format=layout.format)
        self.hashes = {str(file): hash_file(file) for source in found for file in source.files}
        content = [(source.format.name, [self.hashes[str(file)] for file in source.files]) for source in found]
        self.files = [str(source.files[0]) for source in found]
        self.units = [source.format.unit for source in found]
        self.fingerprint = digest(hash_code(Path(__file__).parent), kind.__name__, layout.columns, content)
        self._decode = msgspec.json.Decoder(tuple[int, int, kind]).decode  # type: ignore[valid-type]
        self._rows, self.bad = cache.get(
            f"rows-{self.fingerprint[:16]}",
            fill=lambda filling: _write_rows(read_placed(paths, kind=kind, layout=layout), self.files, filling),
            use=lambda made: (Ragged(made, name="rows"), _read_bad_counts(made)),
        )

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, index: int) -> R:
        return self._decode(self._rows[index].tobytes())[2]

    def where(self, index: int) -> str:
        file, line, _ = self._decode(self._rows[index].tobytes())
        return name_place(self.files[file], line, self.units[file])


class RowSubset(RowSequence[R]):
    """Some rows by their numbers; those in `instead` are replaced."""

    def __init__(self, rows: Sequence[R], numbers: Sequence[int] | Indices, *, instead: Mapping[int, R]) -> None:
        self._rows, self._numbers, self._instead = rows, numbers, instead

    def __len__(self) -> int:
        return len(self._numbers)

    def get(self, index: int) -> R:
        number = int(self._numbers[index])
        return self._instead[number] if number in self._instead else self._rows[number]

    def where(self, index: int) -> str:
        return describe_place(self._rows, int(self._numbers[index]))


def describe_place(rows: Sequence[R], index: int) -> str:
    """`train.csv:17`, or the number of a row that is not from a file."""
    return rows.where(index) if isinstance(rows, RowSequence) else f"row {index}"


class TokenCache:
    """Named lists of ids per row, e.g. cache["source"][i] and cache["target"][i]."""

    def __init__(self, folder: Path) -> None:
        self.columns = {path.stem: Ragged(folder, name=path.stem) for path in sorted(folder.glob("*.offsets"))}
        if len({len(column) for column in self.columns.values()}) != 1:
            raise DataError(f"the cache {folder} is damaged: its columns have different lengths")

    @classmethod
    def build(cls, rows: Iterable[R], encode: Encode[R], *, cache: FolderCache, fingerprint: str) -> Self:
        """From an earlier run if the fingerprint is the same: digest(rows.fingerprint, tokenizer, settings).

        `encode` gets many rows at once and returns named lists of ids per row.
        """
        return cache.get(
            f"tokens-{digest(fingerprint)[:16]}",
            fill=lambda filling: _write_tokens(rows, encode, filling),
            use=cls,
        )

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> Ragged:
        if name not in self.columns:
            raise UnknownName("column of the token cache", name, self.columns)
        return self.columns[name]


# --- hashes ---------------------------------------------------------------------------------------------------------


def digest(*parts: object) -> str:
    """SHA-256 of any values that JSON can express."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def hash_file(path: Path) -> str:
    """SHA-256 of a file, as sha256sum prints it."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


@cache
def hash_code(*folders: Path) -> str:
    """SHA-256 of the Python files of these folders: entries made by other code are not reused."""
    return digest(
        *((folder.name, path.name, hash_file(path)) for folder in folders for path in sorted(folder.glob("*.py")))
    )


# --- writing ---------------------------------------------------------------------------------------------------------


def _write_rows(rows: Iterable[PlacedRow[R] | BadRow], files: Sequence[str], folder: Path) -> None:
    number = {file: index for index, file in enumerate(files)}
    bad: Counter[str] = Counter()
    with RaggedWriter(folder, name="rows", dtype="uint8") as writer:
        for row in rows:
            if isinstance(row, BadRow):
                bad[row.kind] += 1
            else:
                writer.add(msgspec.json.encode((number[row.file], row.line, row.row)) + b"\n")
    (folder / "bad.json").write_bytes(msgspec.json.encode(bad, order="sorted"))


def _write_tokens(rows: Iterable[R], encode: Encode[R], folder: Path) -> None:
    """First with 32 bits per id: their largest value is known only at the end."""
    writers: dict[str, RaggedWriter] = {}
    largest: Counter[str] = Counter()
    with ExitStack() as files:
        for chunk in split_chunks(rows, count=ENCODE_ROWS):
            for _, lists in zip(chunk, encode(chunk), strict=True):
                for name, ids in lists.items():
                    if name not in writers:
                        writers[name] = files.enter_context(RaggedWriter(folder, name=name, dtype="uint32"))
                    numbers = _check_ids(ids, name=name)
                    largest[name] = max(largest[name], int(numbers.max(initial=0)))
                    writers[name].add(numbers.tobytes())
    if not writers:
        raise DataError("there are no rows to encode")
    for name in writers:
        if largest[name] < 2**16:
            narrow_to_16_bits(folder, name=name)


def _check_ids(ids: Sequence[int], *, name: str) -> npt.NDArray[np.uint32]:
    numbers = np.asarray(ids, dtype=np.int64)
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < 2**32:
        raise DataError(f"{name}: ids from {numbers.min()} to {numbers.max()} do not fit; use 0 to {2**32 - 1}")
    return numbers.astype(np.uint32)


def _read_bad_counts(folder: Path) -> dict[str, int]:
    try:
        return msgspec.json.decode((folder / "bad.json").read_bytes(), type=dict[str, int])
    except (OSError, msgspec.MsgspecError) as error:
        raise DataError(f"the cache {folder} is damaged: bad.json: {error}") from error
