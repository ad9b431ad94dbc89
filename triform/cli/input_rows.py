"""Input of task commands: a file of any format, plain lines, standard input, or one whole text.

Rows are read one by one, in their order; a row that cannot be read is a `Bad`. Refuses to know tasks and models.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from triform.data.columns import Layout
from triform.data.formats import ending, formats_of
from triform.data.line_reader import LONGEST, DataError, Fault, decoded, lines, numbered, opened
from triform.data.readers import Placed, placed
from triform.data.rows import Bad, Row, Text
from triform.errors import InputError, TriformError

STDIN = Path("standard input")


def checked(text: str) -> str:
    if not text.strip():
        raise InputError("the text is empty; give at least one word")
    return text


def in_file(path: Path, *, kind: type[Row], layout: Layout) -> Iterator[Placed[Any] | Bad]:
    """The rows of a file; a file of texts whose name does not tell a format (test.en) has one text per line."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file in it")
    told = layout.format is not None or ending(path) in formats_of(kind) or not path.exists()
    if told or kind is not Text:
        return placed(path, kind=kind, layout=layout)
    return _texts(lines(path), path)


def on_stdin() -> Iterator[Placed[Text] | Bad]:
    """One text per line."""
    if sys.stdin.isatty():
        raise TriformError("there is no text: give it behind the model's name, with --file, or on standard input")
    return _texts(numbered(sys.stdin.buffer, STDIN), STDIN)


def _texts(found: Iterator[tuple[int, bytes | Fault]], path: Path) -> Iterator[Placed[Text] | Bad]:
    number = 0
    for number, line in found:
        try:
            yield Placed(str(path), number, Text.of({"text": line}), "line")
        except Fault as fault:
            yield Bad(str(path), number, fault.kind, fault.detail)
    if not number:
        raise TriformError(f"there is no text: {path} is empty")


def whole_text(file: str | None) -> str:
    """All of a file, or of standard input, as one text."""
    name = file or str(STDIN)
    if file is None:
        data = sys.stdin.buffer.read(LONGEST + 1)
    else:
        with opened(Path(file)) as source:
            data = source.read(LONGEST + 1)
    if len(data) > LONGEST:
        raise InputError(f"{name} has more than {LONGEST >> 20} MiB; that is too long for one text")
    try:
        return checked(decoded(data, name=name))
    except Fault as fault:
        raise InputError(str(fault)) from None


def count_rows(path: Path, *, kind: type[Row], layout: Layout) -> int | None:
    """How many rows a file has, bad ones included, counted by the reader that will read them: a header is no row, and
    a row may have several lines."""
    return sum(1 for _ in in_file(path, kind=kind, layout=layout)) if path.is_file() else None
