"""Which column holds which field: the names people use, and the columns they ask for.

Refuses to know files and what the values mean.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from triform.data.files import DataError, Fault
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


class Ask(NamedTuple):
    """What to make of a file: a kind of row, and the columns that were named for some of its fields."""

    kind: type[Row]
    columns: tuple[tuple[str, str | int], ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        return (*self.kind.needs, *self.kind.may)

    def missing(self, found: Iterable[str]) -> tuple[str, ...]:
        return tuple(field for field in self.kind.needs if field not in found)


def asked(kind: type[Row], columns: Mapping[str, str | int] | None) -> Ask:
    """The question that `read(path, kind=..., columns=...)` puts to every file."""
    ask = Ask(kind, tuple((columns or {}).items()))
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
    return found


def pick(record: object, ask: Ask) -> Fields | Fault:
    """The fields of one JSON object; `translation.en` asks for a value inside a value."""
    if isinstance(record, Fault):
        return record
    if not isinstance(record, dict):
        return Fault("wrong type", "not a JSON object")
    found = find_columns(tuple(record), ask)
    if missing := ask.missing(found):
        return Fault("missing field", f"no {' and no '.join(missing)}; the row has {_listed(record)}")
    return {field: _dig(record, column) for field, column in found.items()}


def place(header: list[str], ask: Ask, *, file: str) -> tuple[dict[str, int], bool]:
    """field → the number of its column, and whether the first row is a header and not data.

    Numbers asked for: no header. Names asked for, or any usual name in the first row: a header. Otherwise the
    columns are the fields in their order, if there are as many.
    """
    if ask.columns and all(isinstance(column, int) for _, column in ask.columns):
        at = {field: int(column) for field, column in ask.columns}
        if ask.missing(at) or not all(0 <= number < len(header) for number in at.values()):
            raise DataError(f"{file} has the columns 0 to {len(header) - 1}; {_way_out(ask)}")
        return at, False
    found = {field: column for field, column in find_columns(tuple(header), ask).items() if column in header}
    if not ask.missing(found):
        return {field: header.index(column) for field, column in found.items()}, True
    if not found and not ask.columns and len(header) in (len(ask.kind.needs), len(ask.fields)):
        return {field: number for number, field in enumerate(ask.fields[: len(header)])}, False
    if unknown := [column for field, column in ask.columns if field not in found]:
        raise DataError(f"{file} has no column {unknown[0]!r}; it has {_listed(header)}")
    missing = " and no ".join(ask.missing(found))
    raise DataError(f"{file} has no {missing} among its columns {_listed(header)}; {_way_out(ask)}")


def _dig(value: object, column: str) -> object:
    if isinstance(value, dict) and column in value:
        return value[column]
    head, _, rest = column.partition(".")
    return _dig(value[head], rest) if rest and isinstance(value, dict) and head in value else None


def _listed(names: Iterable[object]) -> str:
    short = [str(name)[:30] for name in names]
    return ", ".join(map(repr, short[:8])) + (", ..." if len(short) > 8 else "") or "nothing"


def _way_out(ask: Ask) -> str:
    numbers = ", ".join(f"{field!r}: {number}" for number, field in enumerate(ask.kind.needs))
    return f"rename them, or in Python say which is which by name or number: columns={{{numbers}}}"
