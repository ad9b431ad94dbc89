"""Rows and their tokens on disk: made once, reached at random, and made again only when something changed.

What changed is told by content, SHA-256 of all the bytes: a file's size and time can stay the same when it changes and
change when it does not, and the hash is what a model card needs anyway. It costs 0.8 s a GB, far less than one reading.
Code that reads otherwise also makes anew. Refuses to know tokenizers and tasks.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache as remembered
from pathlib import Path
from typing import Self, TypeAlias, overload

import msgspec
import numpy as np
import numpy.typing as npt

from triform.data.array_store import Cache, Ragged, RaggedWriter, narrow
from triform.data.chunks import portions
from triform.data.columns import Layout
from triform.data.input_paths import Paths, sources
from triform.data.line_reader import DataError, name_place
from triform.data.readers import AS_NAMED, Placed, placed
from triform.data.rows import Bad, R
from triform.data.shuffle import Indices
from triform.errors import UnknownName

TOGETHER = 256  # rows encoded at once, so that a tokenizer can use all cores

Encode: TypeAlias = Callable[[Sequence[R]], Iterable[Mapping[str, Sequence[int]]]]


class Rows(Sequence[R]):
    """Every good row of some files, rows[i] at once.

    A copy as JSON lines in the cache: all formats, .gz too, become one that has an offset for each row.
    """

    def __init__(self, paths: Paths, *, kind: type[R], cache: Cache, layout: Layout = AS_NAMED) -> None:
        found = sources(paths, kind=kind, format=layout.format)
        self.hashes = {str(file): file_hash(file) for source in found for file in source.files}
        content = [(source.format.name, [self.hashes[str(file)] for file in source.files]) for source in found]
        self.files = [str(source.files[0]) for source in found]
        self.units = [source.format.unit for source in found]
        self.fingerprint = digest(code_of(Path(__file__).parent), kind.__name__, layout.columns, content)
        self._decode = msgspec.json.Decoder(tuple[int, int, kind]).decode  # type: ignore[valid-type]
        self._rows, self.bad = cache.get(
            f"rows-{self.fingerprint[:16]}",
            fill=lambda filling: _write_rows(placed(paths, kind=kind, layout=layout), self.files, filling),
            use=lambda made: (Ragged(made, name="rows"), _bad_counts(made)),
        )

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> list[R]: ...
    def __getitem__(self, index: int | slice) -> R | list[R]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        return self._decode(self._rows[index].tobytes())[2]

    def where(self, index: int) -> str:
        """The place of a row, for whoever has to look at it: `train.csv:17`."""
        file, line, _ = self._decode(self._rows[index].tobytes())
        return name_place(self.files[file], line, self.units[file])


class Part(Sequence[R]):
    """Some of many rows, by their numbers; `instead` of some of them stands another."""

    def __init__(self, rows: Sequence[R], numbers: Sequence[int] | Indices, *, instead: Mapping[int, R]) -> None:
        self._rows, self._numbers, self._instead = rows, numbers, instead

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> list[R]: ...
    def __getitem__(self, index: int | slice) -> R | list[R]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        number = int(self._numbers[index])
        return self._instead[number] if number in self._instead else self._rows[number]

    def where(self, index: int) -> str:
        return place_of(self._rows, int(self._numbers[index]))


def place_of(rows: Sequence[R], index: int) -> str:
    """`train.csv:17`, or the number of a row that comes from no file."""
    return rows.where(index) if isinstance(rows, Rows | Part) else f"row {index}"


class TokenCache:
    """Lists of ids by name, e.g. cache["source"][i] and cache["target"][i], for every row."""

    def __init__(self, folder: Path) -> None:
        self.columns = {path.stem: Ragged(folder, name=path.stem) for path in sorted(folder.glob("*.offsets"))}
        if len({len(column) for column in self.columns.values()}) != 1:
            raise DataError(f"the cache {folder} is damaged: its columns are not equally long")

    @classmethod
    def build(cls, rows: Iterable[R], encode: Encode[R], *, cache: Cache, fingerprint: str) -> Self:
        """Those of an earlier run if the fingerprint is the same: digest(rows.fingerprint, tokenizer, settings).

        `encode` is given many rows at once and answers with named lists of ids for each.
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


# --- what says that something changed -------------------------------------------------------------------------------


def digest(*parts: object) -> str:
    """SHA-256 of anything that JSON can say."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def file_hash(path: Path) -> str:
    """SHA-256 of a file, as sha256sum prints it."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


@remembered
def code_of(*rooms: Path) -> str:
    """SHA-256 of the Python files of these folders: what other code has made is not taken for its own."""
    return digest(*((room.name, path.name, file_hash(path)) for room in rooms for path in sorted(room.glob("*.py"))))


# --- writing ---------------------------------------------------------------------------------------------------------


def _write_rows(found: Iterable[Placed[R] | Bad], files: Sequence[str], folder: Path) -> None:
    number = {file: index for index, file in enumerate(files)}
    bad: Counter[str] = Counter()
    with RaggedWriter(folder, name="rows", dtype="uint8") as writer:
        for each in found:
            if isinstance(each, Bad):
                bad[each.kind] += 1
            else:
                writer.add(msgspec.json.encode((number[each.file], each.line, each.row)) + b"\n")
    (folder / "bad.json").write_bytes(msgspec.json.encode(bad, order="sorted"))


def _write_tokens(rows: Iterable[R], encode: Encode[R], folder: Path) -> None:
    """With 32 bits an id first: how large they become is known only at the end."""
    writers: dict[str, RaggedWriter] = {}
    largest: Counter[str] = Counter()
    with ExitStack() as files:
        for together in portions(rows, count=TOGETHER):
            for _, lists in zip(together, encode(together), strict=True):
                for name, ids in lists.items():
                    if name not in writers:
                        writers[name] = files.enter_context(RaggedWriter(folder, name=name, dtype="uint32"))
                    numbers = _checked(ids, name=name)
                    largest[name] = max(largest[name], int(numbers.max(initial=0)))
                    writers[name].add(numbers.tobytes())
    if not writers:
        raise DataError("there are no rows to encode")
    for name in writers:
        if largest[name] < 2**16:
            narrow(folder, name=name)


def _checked(ids: Sequence[int], *, name: str) -> npt.NDArray[np.uint32]:
    numbers = np.asarray(ids, dtype=np.int64)
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < 2**32:
        raise DataError(f"{name}: ids from {numbers.min()} to {numbers.max()} do not fit; use 0 to {2**32 - 1}")
    return numbers.astype(np.uint32)


def _bad_counts(folder: Path) -> dict[str, int]:
    try:
        return msgspec.json.decode((folder / "bad.json").read_bytes(), type=dict[str, int])
    except (OSError, msgspec.MsgspecError) as error:
        raise DataError(f"the cache {folder} is damaged: bad.json: {error}") from error
