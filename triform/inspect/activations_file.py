"""`Activations`: vectors of many texts, in memory or mapped from a file; and the writer that streams them to it.

A file is ordinary safetensors: `activations` [rows, W]; with all tokens of the texts also `lengths` [N], `ids` [rows].
While it grows it is FILE.part; its header is written last, into space that was kept free at the front.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from triform.errors import InputError, TriformError
from triform.files.atomic_file import put_in_place
from triform.files.format_version import CURRENT_FORMAT, FORMAT_KEY, read_run_note
from triform.files.locks import lock_beside
from triform.files.safe_folder import SafeFolder
from triform.files.safetensors_header import read_header

if TYPE_CHECKING:
    from triform.inspect.activations import TextActivations

HEADER_BYTES = 4096
NUMPY_TYPES: dict[str, np.dtype[Any]] = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "I32": np.dtype("<i4")}
FILE_TYPES = {dtype: name for name, dtype in NUMPY_TYPES.items()}


@dataclass(frozen=True, eq=False)
class Activations:
    """Vectors in the order of the texts: `values` [N, W], or of all tokens [tokens, W] with `lengths` and `ids`."""

    values: NDArray[Any]
    location: str
    pooled: str
    lengths: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def texts(self) -> int:
        """How many texts."""
        return len(self.values) if self.lengths is None else len(self.lengths)

    def of(self, text: int) -> NDArray[Any]:
        """The vectors of one text: [W], or [T, W] of all its tokens."""
        if not -self.texts <= text < self.texts:
            raise InputError(f"text {text} is not in these activations of {self.texts} texts")
        if self.lengths is None:
            return self.values[text]
        ends = np.cumsum(self.lengths)
        text %= self.texts
        return self.values[ends[text] - self.lengths[text] : ends[text]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.values, dtype=dtype)

    def __repr__(self) -> str:
        return f"Activations({self.texts:,} texts, {list(self.shape)} at {self.location}, position {self.pooled})"


def join_activations(chunks: "Sequence[Sequence[TextActivations]]", *, location: str, pooled: str) -> Activations:
    """All rows in memory."""
    rows = [row for chunk in chunks for row in chunk]
    width = next((row.vectors.shape[-1] for row in rows if row.vectors is not None), None)
    if width is None:
        raise InputError("there is no text; give at least one")
    if pooled != "all":
        return Activations(np.stack([to_row(row, width) for row in rows]), location, pooled)
    values = np.concatenate([row.vectors.cpu().numpy() for row in rows if row.vectors is not None])
    lengths = np.array([len(row.ids) for row in rows], dtype=np.int32)
    ids = np.array([id for row in rows for id in row.ids], dtype=np.int32)
    return Activations(values, location, pooled, lengths, ids)


def to_row(row: "TextActivations", width: int) -> NDArray[Any]:
    """One vector; NaN of a text that could not be read."""
    return np.full(width, np.nan, np.float32) if row.vectors is None else row.vectors.cpu().numpy()


def load_activations(path: str | Path) -> Activations:
    """A file of activations, mapped: what is not used is not read."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no file {path}; make one with the command activations and --out {path}")
    places = read_header(SafeFolder(path.parent), path.name)
    if "activations" not in places:
        raise InputError(
            f"{path} has no tensor 'activations' (it has {', '.join(places)}); was it made by the command activations?"
        )
    arrays = {
        name: np.memmap(path, NUMPY_TYPES[place.dtype], "r", place.start, place.shape)
        if math.prod(place.shape)
        else np.empty(place.shape)
        for name, place in places.items()
        if place.dtype in NUMPY_TYPES
    }
    metadata = read_metadata(path)
    return Activations(
        arrays["activations"],
        metadata.get("location", "?"),
        metadata.get("position", "?"),
        arrays.get("lengths"),
        arrays.get("ids"),
    )


def read_metadata(path: Path) -> dict[str, str]:
    with path.open("rb") as file:
        header = msgspec.json.decode(file.read(int.from_bytes(file.read(8), "little")), type=dict[str, Any])
    return header.get("__metadata__", {})


class ActivationsWriter:
    """Rows are appended to FILE.part; `finish` writes the header and gives the file its name. `done` texts are there
    from an earlier run. Until the `with` block ends no other process may write it."""

    def __init__(self, path: str | Path, *, about: dict[str, Any], resume: bool, all_tokens: bool) -> None:
        self.path = Path(path)
        self.part = self.path.with_name(self.path.name + ".part")
        self.note = self.path.with_name(self.path.name + ".part.json")
        self.token_part = self.path.with_name(self.path.name + ".part.tokens")
        self.about = msgspec.json.decode(msgspec.json.encode(about))
        self.all_tokens = all_tokens
        self.width, self.dtype, self.rows, self.done = 0, NUMPY_TYPES["F32"], 0, 0
        self.lengths: list[int] = []
        if self.path.suffix != ".safetensors":
            raise TriformError(f"{self.path} does not end in .safetensors: activations are written as safetensors")
        self.lock = lock_beside(self.path)
        try:
            self.look(resume=resume)
        except BaseException:
            self.lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.done:  # nothing that could be continued
            self.part.unlink(missing_ok=True)
            self.note.unlink(missing_ok=True)
        self.lock.release()

    def look(self, *, resume: bool) -> None:
        """What an earlier run has left."""
        if self.path.exists():
            raise TriformError(f"{self.path} is already there; give another name, or remove it")
        if not self.note.exists():  # a process that was killed before its first rows has left none
            self.part.parent.mkdir(parents=True, exist_ok=True)
            self.part.write_bytes(bytes(HEADER_BYTES))
            self.token_part.unlink(missing_ok=True)
            self.note.unlink(missing_ok=True)
        elif not resume:
            raise TriformError(f"{self.part} is left of a run that was stopped; continue with --resume, or remove it")
        else:
            self.count_done()

    def count_done(self) -> None:
        """The whole rows of an earlier run; half a row at the end is cut off."""
        then = read_run_note(self.note, part=self.part)
        self.width, self.dtype = then.pop("width"), NUMPY_TYPES[then.pop("dtype")]
        if then != self.about:
            raise TriformError(f"{self.part} is of another run ({then}, now {self.about}); give another --out")
        rows = (self.part.stat().st_size - HEADER_BYTES) // (self.width * self.dtype.itemsize)
        self.done = self.rows = rows
        if self.all_tokens:
            self.lengths = self.read_lengths(rows)
            self.done, self.rows = len(self.lengths), sum(self.lengths)
            with self.token_part.open("r+b") as file:
                file.truncate(4 * (self.done + self.rows))
        with self.part.open("r+b") as file:
            file.truncate(HEADER_BYTES + self.rows * self.width * self.dtype.itemsize)

    def read_lengths(self, rows: int) -> list[int]:
        """Of the texts whose ids and vectors are both there as a whole."""
        numbers = np.fromfile(self.token_part, np.int32)
        lengths: list[int] = []
        at = used = 0
        while at < len(numbers) and at + 1 + numbers[at] <= len(numbers) and used + numbers[at] <= rows:
            lengths.append(int(numbers[at]))
            used += int(numbers[at])
            at += 1 + int(numbers[at])
        return lengths

    def append(self, texts: "Sequence[TextActivations]") -> None:
        """The next texts, in their order."""
        found = [row.vectors.cpu().numpy() for row in texts if row.vectors is not None]
        if not self.width:
            if not found:
                raise TriformError("none of the first texts could be read")
            self.width, self.dtype = found[0].shape[-1], np.dtype(found[0].dtype.newbyteorder("<"))
            about = {FORMAT_KEY: CURRENT_FORMAT, "width": self.width, "dtype": FILE_TYPES[self.dtype]} | self.about
            self.note.write_bytes(msgspec.json.encode(about))
        if not self.all_tokens:
            found = [to_row(row, self.width)[None] for row in texts]
        try:
            with self.part.open("ab") as file:
                for rows in found:
                    file.write(np.ascontiguousarray(rows, self.dtype).data)
                    self.rows += len(rows)
            if self.all_tokens:
                with self.token_part.open("ab") as file:
                    for text in texts:
                        file.write(np.array([len(text.ids), *text.ids], np.int32).data)
                        self.lengths.append(len(text.ids))
        except OSError as error:
            raise TriformError(f"cannot write {self.part}: {error.strerror or error}; continue with --resume") from None
        self.done += len(texts)

    def finish(self) -> Activations:
        """The file under its name, mapped."""
        if not self.done:
            raise InputError("there is no text; give at least one")
        shapes = {"activations": (FILE_TYPES[self.dtype], [self.rows, self.width])}
        if self.all_tokens:
            shapes |= {"lengths": ("I32", [self.done]), "ids": ("I32", [self.rows])}
            self.append_tokens()
        with self.part.open("r+b") as file:
            file.write(self.make_header(shapes))
        put_in_place(self.part, self.path)
        self.note.unlink(missing_ok=True)
        self.token_part.unlink(missing_ok=True)
        return load_activations(self.path)

    def append_tokens(self) -> None:
        """Lengths and ids of the texts, behind the vectors."""
        with self.part.open("ab") as file, self.token_part.open("rb") as tokens:
            file.write(np.array(self.lengths, np.int32).data)
            for length in self.lengths:
                tokens.seek(4, 1)
                file.write(tokens.read(4 * length))

    def make_header(self, shapes: dict[str, tuple[str, list[int]]]) -> bytes:
        """Exactly HEADER_BYTES, filled up with spaces."""
        metadata = {
            "location": self.about["location"],
            "position": str(self.about["position"]),
            "format": str(CURRENT_FORMAT),
        }
        entries: dict[str, Any] = {"__metadata__": metadata}
        end = 0
        for name, (dtype, shape) in shapes.items():
            start, end = end, end + NUMPY_TYPES[dtype].itemsize * math.prod(shape)
            entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
        head = msgspec.json.encode(entries).ljust(HEADER_BYTES - 8)
        return len(head).to_bytes(8, "little") + head
