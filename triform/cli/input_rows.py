"""Input of task commands: a file of any format, plain lines, standard input, or one whole text.

Rows are read one by one, in their order; a row that cannot be read is a `Bad`. Refuses to know tasks and models.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from triform.data.columns import Layout
from triform.data.formats import get_ending, list_formats
from triform.data.line_reader import MAX_LINE_BYTES, DataError, Fault, decode_line, number_lines, open_file, read_lines
from triform.data.readers import PlacedRow, read_placed
from triform.data.rows import BadRow, DataRow, TextRow
from triform.errors import InputError, TriformError

STDIN = Path("standard input")


def check_text(text: str) -> str:
    if not text.strip():
        raise InputError("the text is empty; give at least one word")
    return text


def read_file_rows(path: Path, *, kind: type[DataRow], layout: Layout) -> Iterator[PlacedRow[Any] | BadRow]:
    """The rows of a file; a file of texts whose name does not tell a format (test.en) has one text per line."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file in it")
    told = layout.format is not None or get_ending(path) in list_formats(kind) or not path.exists()
    if told or kind is not TextRow:
        return read_placed(path, kind=kind, layout=layout)
    return _texts(read_lines(path), path)


def read_stdin_rows() -> Iterator[PlacedRow[TextRow] | BadRow]:
    """One text per line."""
    if sys.stdin.isatty():
        raise TriformError("there is no text: give it behind the model's name, with --file, or on standard input")
    return _texts(number_lines(sys.stdin.buffer, STDIN), STDIN)


def _texts(found: Iterator[tuple[int, bytes | Fault]], path: Path) -> Iterator[PlacedRow[TextRow] | BadRow]:
    number = 0
    for number, line in found:
        try:
            yield PlacedRow(str(path), number, TextRow.of({"text": line}), "line")
        except Fault as fault:
            yield BadRow(str(path), number, fault.kind, fault.detail)
    if not number:
        raise TriformError(f"there is no text: {path} is empty")


def read_whole_text(file: str | None) -> str:
    """All of a file, or of standard input, as one text."""
    name = file or str(STDIN)
    if file is None:
        data = sys.stdin.buffer.read(MAX_LINE_BYTES + 1)
    else:
        with open_file(Path(file)) as source:
            data = source.read(MAX_LINE_BYTES + 1)
    if len(data) > MAX_LINE_BYTES:
        raise InputError(f"{name} has more than {MAX_LINE_BYTES >> 20} MiB; that is too long for one text")
    try:
        return check_text(decode_line(data, name=name))
    except Fault as fault:
        raise InputError(str(fault)) from None


def count_rows(path: Path, *, kind: type[DataRow], layout: Layout) -> int | None:
    """How many rows a file has, bad ones included, counted by the reader that will read them: a header is no row, and
    a row may have several lines."""
    return sum(1 for _ in read_file_rows(path, kind=kind, layout=layout)) if path.is_file() else None
