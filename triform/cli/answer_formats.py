"""How answers are written down: plain lines, JSON lines, or a table; the ending of the file says which.

One line per answer in every format, so that a stopped run can count what is there. Refuses to know tasks: an answer is
a struct that prints as one line, becomes JSON, and has columns.
"""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from triform.errors import TriformError

TABLES = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
JSON_LINES = (".jsonl", ".ndjson")
# Formats that are more than lines one behind another, so that a stopped run could not go on with them.
OTHER_FORMATS = frozenset(
    [
        ".json",
        ".parquet",
        ".arrow",
        ".feather",
        ".xlsx",
        ".xls",
        ".ods",
        ".html",
        ".xml",
        ".yaml",
        ".yml",
        ".gz",
        ".zip",
        ".xz",
        ".zst",
        ".npy",
        ".npz",
        ".pt",
        ".pkl",
        ".png",
        ".svg",
        ".pdf",
    ]
)

Columns: TypeAlias = Callable[[Any], dict[str, object]]


class InputItem(NamedTuple):
    """A question with its id (the row's own, or its number from 1) and its text."""

    id: str | int
    input: str
    question: Any  # for the task; a `Bad` where the row could not be read


class AnswerFormat(Protocol):
    """How answers are written to a file: as lines, JSON objects or table rows."""

    headed: bool  # whether the first line is none of the answers

    def answer(self, item: InputItem, answer: msgspec.Struct) -> str:
        """The lines to write for an answer, each with its end."""

    def format_skipped(self, item: InputItem, why: str) -> str:
        """The line of a question without an answer."""

    def go_on(self, first_line: str) -> None:
        """Behind answers that are there already."""


def format_for(out: str | None, *, as_json: bool, line: Callable[[Any], str], columns: Columns) -> AnswerFormat:
    """What the ending of `out` says; standard output, and endings that say nothing, have plain lines."""
    ending = "" if out is None else Path(out).suffix.lower()
    if ending in OTHER_FORMATS:
        raise TriformError(
            f"{out}: answers are not written as {ending}; use .jsonl, .csv or .tsv, or .txt for plain lines"
        )
    if ending in TABLES:
        if as_json:
            raise TriformError(f"{out} would be a table, --json asks for JSON lines; leave --json out, or use .jsonl")
        return TableRows(TABLES[ending], columns)
    if ending in JSON_LINES:
        return JsonRows()
    return JsonLines() if as_json else PlainLines(line)


class PlainLines:
    """For people: line n is the answer to row n, and empty where there is none."""

    headed = False

    def __init__(self, line: Callable[[Any], str]) -> None:
        self.line = line

    def answer(self, item: InputItem, answer: msgspec.Struct) -> str:
        return join_lines(self.line(answer)) + "\n"

    def format_skipped(self, item: InputItem, why: str) -> str:
        return "\n"

    def go_on(self, first_line: str) -> None:
        return


class JsonLines:
    """For programs that read them beside the questions: the answer alone."""

    headed = False

    def answer(self, item: InputItem, answer: msgspec.Struct) -> str:
        return msgspec.json.encode(answer).decode() + "\n"

    def format_skipped(self, item: InputItem, why: str) -> str:
        return msgspec.json.encode({"skipped": why}).decode() + "\n"

    def go_on(self, first_line: str) -> None:
        return


class JsonRows(JsonLines):
    """A file that stands for itself: id and input before the answer's own fields."""

    def answer(self, item: InputItem, answer: msgspec.Struct) -> str:
        return self._row(item, msgspec.to_builtins(answer))

    def format_skipped(self, item: InputItem, why: str) -> str:
        return self._row(item, {"skipped": why})

    @staticmethod
    def _row(item: InputItem, fields: dict[str, object]) -> str:
        return msgspec.json.encode({"id": item.id, "input": item.input} | fields).decode() + "\n"


class TableRows:
    """A header, then a row per question: id, input, the answer's columns, and why there is none, where there is none.

    The columns are those of the first answer; rows without an answer before it wait until it comes.
    """

    headed = True

    def __init__(self, delimiter: str, columns: Columns) -> None:
        self.delimiter = delimiter
        self.columns = columns
        self.names: list[str] = []
        self.waiting: list[tuple[InputItem, str]] = []

    def answer(self, item: InputItem, answer: msgspec.Struct) -> str:
        cells = self.columns(answer)
        before = ""
        if not self.names:
            self.names = ["id", "input", *cells, "skipped"]
            before = self._line(self.names) + "".join(self.format_skipped(*each) for each in self.waiting)
            self.waiting.clear()
        row = {"id": item.id, "input": item.input} | cells
        return before + self._line([row.get(name, "") for name in self.names])

    def format_skipped(self, item: InputItem, why: str) -> str:
        if self.names:
            return self._line([item.id, item.input, *[""] * (len(self.names) - 3), why])
        self.waiting.append((item, why))
        return ""

    def go_on(self, first_line: str) -> None:
        self.names = next(csv.reader([first_line], delimiter=self.delimiter), [])

    def _line(self, cells: Sequence[object]) -> str:
        """TSV has no quotes, as data files are read: a tab in a cell becomes a space."""
        texts = [join_lines(cell) if isinstance(cell, str) else format_cell(cell) for cell in cells]
        if self.delimiter == "\t":
            return "\t".join(text.replace("\t", " ") for text in texts) + "\n"
        line = io.StringIO()
        csv.writer(line, delimiter=self.delimiter, lineterminator="\n").writerow(texts)
        return line.getvalue()


def join_lines(text: str) -> str:
    return " ".join(text.splitlines())


def format_cell(value: object) -> str:
    """Numbers with six digits; lists and objects as JSON; nothing for none."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if isinstance(value, int) else msgspec.json.encode(value).decode()
