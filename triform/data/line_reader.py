"""Opens files (also .gz) and reads numbered lines of limited length.

An error in one line is a `Fault`; an error of the whole file is a `DataError`.
"""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, TypeAlias, cast

from triform.errors import TriformError

MAX_LINE_BYTES = 1 << 24  # bytes of one line or record: bounds memory when a newline or a quote is missing
UTF8_BOM = b"\xef\xbb\xbf"
UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")

FaultKind: TypeAlias = Literal[
    "invalid UTF-8", "NUL", "blank", "too long", "not JSON", "broken CSV", "wrong columns", "missing field",
    "wrong type", "not a number", "not BIO", "answer not in context", "unequal files",
]  # fmt: skip
Unit: TypeAlias = Literal["line", "item", "row", "page"]  # what the number of a place counts


class DataError(TriformError):
    """A file or folder that cannot be read as rows at all."""


class Fault(Exception):
    """What is wrong with one row: its kind, for counting, and a detail for the user."""

    def __init__(self, kind: FaultKind, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind: FaultKind = kind
        self.detail = detail


def name_place(file: str, number: int, unit: Unit) -> str:
    """`train.csv:17`; for a JSON array, whose records may share a line, `train.json:item 17`."""
    return f"{file}:{number}" if unit == "line" else f"{file}:{unit} {number}"


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, decompressed if it ends in .gz; every failure is a DataError."""
    try:
        with cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is not a complete gzip file: {error}; decompress or copy it again") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def read_lines(path: Path) -> Iterator[tuple[int, bytes | Fault]]:
    """Line numbers from 1 and lines without their ends. Only \\n and \\r\\n end a line: U+2028 and others are text."""
    with open_file(path) as file:
        yield from number_lines(file, path)


def number_lines(file: IO[bytes], path: Path) -> Iterator[tuple[int, bytes | Fault]]:
    """The lines of an open file; `path` is its name in errors."""
    number = 0
    while line := file.readline(MAX_LINE_BYTES):
        number += 1
        if number == 1:
            line = strip_bom(line, path)
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
            yield number, Fault("too long", f"a line of more than {MAX_LINE_BYTES >> 20} MiB")
        else:
            yield number, line.removesuffix(b"\n").removesuffix(b"\r")


def strip_bom(head: bytes, path: Path) -> bytes:
    """The first bytes of a file without a UTF-8 BOM; UTF-16 is refused, since every line would be wrong."""
    if head.startswith(UTF16_BOMS):
        raise DataError(f"{path} is UTF-16; convert it to UTF-8: iconv -f UTF-16 -t UTF-8 {path.name}")
    return head.removeprefix(UTF8_BOM)


def decode_line(line: bytes | Fault, *, name: str = "the line") -> str:
    """The text of a line; raises a Fault if it is one or is not UTF-8."""
    if isinstance(line, Fault):
        raise line
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise Fault("invalid UTF-8", f"{name} has 0x{line[error.start]:02x} at byte {error.start + 1}") from None
