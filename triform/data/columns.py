"""Which column holds which field: the names people use, and the columns they ask for.

Refuses to know files and what the values mean; guesses only to suggest the way out.
"""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import NamedTuple, TypeAlias

import msgspec

from triform.data.column_suggestions import looks_like_header, suggest_options
from triform.data.line_reader import DataError, Fault
from triform.data.rows import Fields, Row
from triform.errors import UnknownName

Records: TypeAlias = Iterator[tuple[int, Fields | Fault]]  # what every format gives: numbered fields, or what is wrong

# Compared without case, spaces, "_" and "-"; where a row has several of them, the first counts.
USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "text": ("text", "sentence", "content", "document", "review", "comment", "body"),
    "messages": ("messages", "conversation", "conversations"),
    "source": ("source", "src", "input", "document", "article", "text", "query"),
    "target": ("target", "tgt", "output", "summary", "highlights", "translation", "passage"),
    "labels": ("labels", "label", "class", "category", "sentiment", "topic"),
    "tokens": ("tokens", "words"),
    "tags": ("tags", "nertags", "labels"),
    "question": ("question", "query"),
    "context": ("context", "passage", "paragraph"),
    "answers": ("answers", "answer"),
    "starts": ("starts", "start", "answerstart"),
    "first": ("first", "sentence1", "text1", "premise"),
    "second": ("second", "sentence2", "text2", "hypothesis"),
    "score": ("score", "similarity", "similarityscore", "label"),
}


SAMPLE = 50  # rows looked at to suggest columns


class Layout(msgspec.Struct, frozen=True):
    """What a file's name and header do not tell: field → its column (a name, a JSON key, a number from 0), and the
    format."""

    columns: dict[str, str | int] = {}
    format: str | None = None

    def rename_field(self, old: str, new: str) -> "Layout":
        """The same layout for rows that call the field `old` `new`."""
        columns = {new if field == old else field: column for field, column in self.columns.items()}
        return Layout(columns, self.format)


ID = "id"  # of a row: what its answer is known by; no kind of row needs one


class Ask(NamedTuple):
    """What to make of a file: a kind of row, and the columns that were named for some of its fields."""

    kind: type[Row]
    columns: tuple[tuple[str, str | int], ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        return (*self.kind.needs, *self.kind.may)

    def missing(self, found: Iterable[str]) -> tuple[str, ...]:
        return tuple(field for field in self.kind.needs if field not in found)


def asked(kind: type[Row], layout: Layout) -> Ask:
    """The question that `read(path, kind=..., layout=...)` puts to every file."""
    ask = Ask(kind, tuple(layout.columns.items()))
    for field, _ in ask.columns:
        if field not in ask.fields:
            raise UnknownName(f"field of {kind.__name__} rows", field, ask.fields)
    return ask


@lru_cache(maxsize=64)
def find_columns(names: tuple[str, ...], ask: Ask) -> dict[str, str]:
    """field → the column that holds it: the one asked for, else the first of the usual names."""
    given = dict(ask.columns)
    plain = {re.sub(r"[\s_-]", "", name).lower(): name for name in reversed(names)}
    found = {}
    for field in ask.fields:
        if field in given:
            column = str(given[field])
            if column in names or column.split(".")[0] in names:
                found[field] = column
        elif usual := next((usual for usual in USUAL_NAMES[field] if usual in plain), None):
            found[field] = plain[usual]
    return found | ({ID: plain[ID]} if ID in plain else {})


def id_of(fields: Fields) -> str:
    """What the row calls itself, on one line; nothing where it does not."""
    value = fields.get(ID)
    return " ".join(str(value).split()) if isinstance(value, str | int) else ""


def pick(record: object, ask: Ask) -> Fields | Fault:
    """The fields of one JSON object; `translation.en` asks for a value inside a value."""
    if isinstance(record, Fault):
        return record
    if not isinstance(record, dict):
        return Fault("wrong type", "not a JSON object")
    found = find_columns(tuple(record), ask)
    if wrong := _unknown_column(ask, found, record):
        return Fault("missing field", f"no key {wrong}")
    if missing := ask.missing(found):
        way_out = suggest_options(missing, {key: [value] for key, value in record.items()}, taken=found.values())
        return Fault("missing field", f"no {' and no '.join(missing)}; the row has {_listed(record)}; {way_out}")
    return {field: _dig(record, column) for field, column in found.items()}


def place(header: list[str], ask: Ask, *, file: str, below: Iterator[list[str]]) -> tuple[dict[str, int], bool]:
    """field → the number of its column, and whether the first row is a header and not data.

    Numbers asked for, for every field: no header. Names asked for, or any usual name in the first row: a header.
    Otherwise the columns are the fields in their order, if there are as many. `below` are rows to suggest columns by.
    """
    numbers = {field: column for field, column in ask.columns if isinstance(column, int)}
    if any(not 0 <= number < len(header) for number in numbers.values()):
        raise DataError(f"{file} has the columns 0 to {len(header) - 1}; {_way_out(ask.kind.needs, header, below)}")
    if numbers and len(numbers) == len(ask.columns) and not ask.missing(numbers):
        return numbers, False
    named = Ask(ask.kind, tuple((field, column) for field, column in ask.columns if field not in numbers))
    found = {field: column for field, column in find_columns(tuple(header), named).items() if column in header}
    at = {field: header.index(column) for field, column in found.items()} | numbers
    if wrong := _unknown_column(named, found, header):
        raise DataError(f"{file} has no column {wrong}")
    if not ask.missing(at):
        return at, True
    if not at and len(header) in (len(ask.kind.needs), len(ask.fields)):
        return {field: number for number, field in enumerate(ask.fields[: len(header)])}, False
    missing = ask.missing(at)
    way_out = _way_out(missing, header, below, taken=at.values())
    raise DataError(f"{file} has no {' and no '.join(missing)} among its columns {_listed(header)}; {way_out}")


def _unknown_column(ask: Ask, found: Iterable[str], names: Iterable[str]) -> str:
    """The first column that was asked for and is not there, and what is there."""
    there = [str(name) for name in names]
    for field, column in ask.columns:
        if field not in found:
            near = get_close_matches(str(column), there, n=1)
            return f"{str(column)!r}; it has {_listed(there)}" + (f"; did you mean {near[0]!r}?" if near else "")
    return ""


def _way_out(
    missing: Iterable[str], header: list[str], below: Iterator[list[str]], *, taken: Iterable[int] = ()
) -> str:
    """The options that name the likely columns; where no column has a name, their numbers."""
    rows = [cells for cells in islice(below, SAMPLE) if len(cells) == len(header)]
    has_header = looks_like_header(header, rows)
    names = header if has_header else [str(number) for number in range(len(header))]
    if not has_header:
        rows.insert(0, header)
    values = {name: [cells[number] for cells in rows] for number, name in enumerate(names)}
    return suggest_options(missing, values, taken=[names[number] for number in taken])


def _dig(value: object, column: str) -> object:
    if isinstance(value, dict) and column in value:
        return value[column]
    head, _, rest = column.partition(".")
    return _dig(value[head], rest) if rest and isinstance(value, dict) and head in value else None


def _listed(names: Iterable[object]) -> str:
    short = [str(name)[:30] for name in names]
    return ", ".join(map(repr, short[:8])) + (", ..." if len(short) > 8 else "") or "nothing"
