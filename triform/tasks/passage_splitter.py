"""Files cut into passages: at blank lines, else at ends of sentences, else between words; each knows where it stood.

Refuses to know models and what passages are for.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from triform.data.columns import Layout
from triform.data.document_text import DOCUMENT_ENDINGS, TextPiece, read_document
from triform.data.formats import TEXT_ENDINGS, find_format_by_key, get_ending, list_formats
from triform.data.line_reader import DataError, Unit
from triform.data.readers import DEFAULT_LAYOUT, PlacedRow, scan
from triform.data.rows import DataRow, DocumentRow, TextRow

MAX_PASSAGE_CHARACTERS = 700  # characters: a paragraph, well below what encoders read at once
BREAKS = (re.compile(r"\n\s*\n\s*"), re.compile(r"(?<=[.!?])\s+"), re.compile(r"\s+"))


class Passage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stretch of a file from character `start` on; of a table or JSON lines, of the text in that line.

    `unit` is what `line` counts: items in a JSON array, rows in Parquet, pages of a PDF. `fields` are columns of the
    row that the index keeps beside the text.
    """

    file: str
    line: int
    start: int
    text: str
    unit: Unit = "line"
    fields: dict[str, str] = {}


def list_files(places: list[Path], *, format: str | None = None) -> Iterator[Path]:
    """Each file that is named, and of each folder those whose ending says that they hold text (of this format)."""
    known = (
        (*list_formats(TextRow), *DOCUMENT_ENDINGS)
        if format is None
        else ("", *find_format_by_key(format, TextRow).endings)
    )
    for place in places:
        if place.is_dir():
            inside = sorted(path for path in place.rglob("*") if path.is_file() and get_ending(path) in known)
            yield from (path for path in inside if not any(part[0] == "." for part in path.relative_to(place).parts))
        elif place.is_file():
            yield place
        else:
            raise DataError(f"there is no file or folder {place}")


def split_passages(path: Path, layout: Layout = DEFAULT_LAYOUT) -> list[Passage]:
    """A text file is one text; a table or JSON lines have one text per row. What cannot be read is left out."""
    if layout.format is None and get_ending(path) in DOCUMENT_ENDINGS:
        return [
            passage
            for piece in read_document(path)
            for passage in split_piece(str(path), piece, longest=layout.longest or MAX_PASSAGE_CHARACTERS)
        ]
    whole = layout.format == "text" or (layout.format is None and get_ending(path) in TEXT_ENDINGS)
    kind: type[DataRow] = DocumentRow if whole else TextRow
    found: list[Passage] = []
    before = 0
    for each in scan(path, kind=kind, layout=layout):
        if isinstance(each, PlacedRow):
            text = each.row.texts[0]
            for start, end in cut_text(text, longest=layout.longest or MAX_PASSAGE_CHARACTERS):
                line = each.line + (text.count("\n", 0, start) if whole else 0)
                found.append(Passage(str(path), line, before + start, text[start:end], each.unit, each.kept))
            before += len(text) if whole else 0
    if not found:
        raise DataError(f"there is no text in {path}")
    return found


def split_piece(file: str, piece: TextPiece, *, longest: int) -> Iterator[Passage]:
    """The passages of an HTML file, or of a page of a PDF."""
    for start, end in cut_text(piece.text, longest=longest):
        yield Passage(file, piece.find_line(start), start, piece.text[start:end], piece.unit)


def cut_text(text: str, *, longest: int = MAX_PASSAGE_CHARACTERS) -> list[tuple[int, int]]:
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
