"""Which column has which field: by usual names, or as the user names them.

Knows no files and not what the values mean; guesses only for suggestions in errors.
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
from triform.data.rows import DataRow, Fields
from triform.errors import UnknownName

Records: TypeAlias = Iterator[tuple[int, Fields | Fault]]  # what every format yields: numbered fields, or a Fault

# Compared without case, spaces, "_" and "-"; if a row has several of them, the first counts.
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
    "first": ("first", "sentence1", "text1", "premise", "query"),
    "second": ("second", "sentence2", "text2", "hypothesis", "passage"),
    "score": ("score", "similarity", "similarityscore", "label"),
}


SAMPLE_ROWS = 50  # read to suggest columns


class Layout(msgspec.Struct, frozen=True):
    """What the name and header of a file do not say: field → its column (a name, a JSON key, a number from 0), and the
    format."""

    columns: dict[str, str | int] = {}
    format: str | None = None
    keep: tuple[str, ...] = ()  # columns to keep beside the row, as text
    longest: int | None = None  # characters of a passage, where texts are cut into passages

    def rename_field(self, old: str, new: str) -> "Layout":
        """The same layout with the field `old` named `new`."""
        columns = {new if field == old else field: column for field, column in self.columns.items()}
        return Layout(columns, self.format, self.keep, self.longest)


KEPT = "keep:"  # before the name of a kept column
ID = "id"  # of a row, used to match its answer; optional in all rows


class RowRequest(NamedTuple):
    """What to read from a file: the type of row, and the columns that the user named for some of its fields."""

    kind: type[DataRow]
    columns: tuple[tuple[str, str | int], ...] = ()
    keep: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        return (*self.kind.needs, *self.kind.may)

    def missing(self, found: Iterable[str]) -> tuple[str, ...]:
        return tuple(field for field in self.kind.needs if field not in found)


def make_request(kind: type[DataRow], layout: Layout) -> RowRequest:
    """The request of `read(path, kind=..., layout=...)` to every file."""
    request = RowRequest(kind, tuple(layout.columns.items()), layout.keep)
    for field, _ in request.columns:
        if field not in request.fields:
            raise UnknownName(f"field of {kind.title} rows", field, request.fields)
    return request


@lru_cache(maxsize=64)
def find_columns(names: tuple[str, ...], request: RowRequest) -> dict[str, str]:
    """field → its column: the one that the user named, else the first of the usual names."""
    chosen = dict(request.columns)
    plain = {re.sub(r"[\s_-]", "", name).lower(): name for name in reversed(names)}
    found = {}
    for field in request.fields:
        if field in chosen:
            column = str(chosen[field])
            if column in names or column.split(".")[0] in names:
                found[field] = column
        elif usual := next((name for name in USUAL_NAMES[field] if name in plain), None):
            found[field] = plain[usual]
    kept = {f"{KEPT}{name}": name for name in request.keep if name in names}
    return found | ({ID: plain[ID]} if ID in plain else {}) | kept


def get_id(fields: Fields) -> str:
    """The id of the row, on one line; empty without one."""
    value = fields.get(ID)
    return " ".join(str(value).split()) if isinstance(value, str | int) else ""


def get_kept(fields: Fields) -> dict[str, str]:
    """The columns that `Layout.keep` names, on one line each."""
    found = {name.removeprefix(KEPT): value for name, value in fields.items() if name.startswith(KEPT)}
    return {name: " ".join(str(value).split()) for name, value in found.items() if value not in (None, "")}


def pick_fields(record: object, request: RowRequest) -> Fields | Fault:
    """The fields of one JSON object; `translation.en` is a value inside an object."""
    if isinstance(record, Fault):
        return record
    if not isinstance(record, dict):
        return Fault("wrong type", "not a JSON object")
    found = find_columns(tuple(record), request)
    if wrong := _find_unknown_column(request, found, record):
        return Fault("missing field", f"no key {wrong}")
    if missing := request.missing(found):
        suggestion = suggest_options(missing, {key: [value] for key, value in record.items()}, taken=found.values())
        return Fault("missing field", f"no {' and no '.join(missing)}; the row has {_list_names(record)}; {suggestion}")
    return {field: _dig(record, column) for field, column in found.items()}


def place_columns(
    header: list[str], request: RowRequest, *, file: str, below: Iterator[list[str]]
) -> tuple[dict[str, int], bool]:
    """field → the number of its column, and whether the first row is a header and not data.

    If the user gives a number for every field: no header. If the user gives names, or the first row has a usual name: a
    header. Else the columns are the fields in their order, if there are as many. `below` are rows for suggestions.
    """
    numbers = {field: column for field, column in request.columns if isinstance(column, int)}
    if any(not 0 <= number < len(header) for number in numbers.values()):
        raise DataError(f"{file} has the columns 0 to {len(header) - 1}; {_suggest(request.kind.needs, header, below)}")
    if numbers and len(numbers) == len(request.columns) and not request.missing(numbers):
        return numbers, False
    by_name = RowRequest(
        request.kind, tuple((field, column) for field, column in request.columns if field not in numbers), request.keep
    )
    found = {field: column for field, column in find_columns(tuple(header), by_name).items() if column in header}
    at = {field: header.index(column) for field, column in found.items()} | numbers
    if wrong := _find_unknown_column(by_name, found, header):
        raise DataError(f"{file} has no column {wrong}")
    if not request.missing(at):
        return at, True
    if not at and len(header) in (len(request.kind.needs), len(request.fields)):
        return {field: number for number, field in enumerate(request.fields[: len(header)])}, False
    missing = request.missing(at)
    suggestion = _suggest(missing, header, below, taken=at.values())
    raise DataError(f"{file} has no {' and no '.join(missing)} among its columns {_list_names(header)}; {suggestion}")


def _find_unknown_column(request: RowRequest, found: Iterable[str], names: Iterable[str]) -> str:
    """The first column that the user named and the file does not have, and the columns it has."""
    existing = [str(name) for name in names]
    for field, column in request.columns:
        if field not in found:
            near = get_close_matches(str(column), existing, n=1)
            return f"{str(column)!r}; it has {_list_names(existing)}" + (f"; did you mean {near[0]!r}?" if near else "")
    return ""


def _suggest(
    missing: Iterable[str], header: list[str], below: Iterator[list[str]], *, taken: Iterable[int] = ()
) -> str:
    """The options that name the likely columns; their numbers if there is no header."""
    rows = [cells for cells in islice(below, SAMPLE_ROWS) if len(cells) == len(header)]
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


def _list_names(names: Iterable[object]) -> str:
    short = [str(name)[:30] for name in names]
    return ", ".join(map(repr, short[:8])) + (", ..." if len(short) > 8 else "") or "nothing"
