"""Files cut into passages: at blank lines, else at ends of sentences, else between words; each knows where it stood.

Refuses to know models and what passages are for.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from triform.data.columns import Layout
from triform.data.formats import LINES, ending, format_named, formats_of
from triform.data.line_reader import DataError, Unit
from triform.data.readers import AS_NAMED, Placed, scan
from triform.data.rows import Document, Row, Text

LONGEST = 700  # characters: a paragraph, well below what encoders read at once
BREAKS = (re.compile(r"\n\s*\n\s*"), re.compile(r"(?<=[.!?])\s+"), re.compile(r"\s+"))


class Passage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stretch of a file from character `start` on; of a table or JSON lines, of the text in that line.

    `unit` is what `line` counts: items in a JSON array, rows in Parquet.
    """

    file: str
    line: int
    start: int
    text: str
    unit: Unit = "line"


def files_in(places: list[Path], *, format: str | None = None) -> Iterator[Path]:
    """Each file that is named, and of each folder those whose ending says that they hold text (of this format)."""
    known = formats_of(Text) if format is None else ("", *format_named(format, Text).endings)
    for place in places:
        if place.is_dir():
            inside = sorted(path for path in place.rglob("*") if path.is_file() and ending(path) in known)
            yield from (path for path in inside if not any(part[0] == "." for part in path.relative_to(place).parts))
        elif place.is_file():
            yield place
        else:
            raise DataError(f"there is no file or folder {place}")


def passages_of(path: Path, layout: Layout = AS_NAMED) -> list[Passage]:
    """A text file is one text; a table or JSON lines have one text per row. What cannot be read is left out."""
    whole = layout.format == "text" or (layout.format is None and ending(path) in LINES)
    kind: type[Row] = Document if whole else Text
    found: list[Passage] = []
    before = 0
    for each in scan(path, kind=kind, layout=layout):
        if isinstance(each, Placed):
            text = each.row.texts[0]
            for start, end in cut(text):
                line = each.line + (text.count("\n", 0, start) if whole else 0)
                found.append(Passage(str(path), line, before + start, text[start:end], each.unit))
            before += len(text) if whole else 0
    if not found:
        raise DataError(f"there is no text in {path}")
    return found


def cut(text: str, *, longest: int = LONGEST) -> list[tuple[int, int]]:
    """(start, end) of each passage, at most `longest` characters; together they hold all that is not white space."""
    found: list[tuple[int, int]] = []
    for start, end in _pieces(text, 0, len(text), longest=longest, level=0):
        if found and end - found[-1][0] <= longest:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _pieces(text: str, start: int, end: int, *, longest: int, level: int) -> Iterator[tuple[int, int]]:
    inside = text[start:end]
    start, end = end - len(inside.lstrip()), start + len(inside.rstrip())
    if start >= end:
        return
    if end - start <= longest:
        yield start, end
    elif level == len(BREAKS):
        yield from ((at, min(at + longest, end)) for at in range(start, end, longest))
    else:
        for found in BREAKS[level].finditer(text, start, end):
            yield from _pieces(text, start, found.start(), longest=longest, level=level + 1)
            start = found.end()
        yield from _pieces(text, start, end, longest=longest, level=level + 1)
