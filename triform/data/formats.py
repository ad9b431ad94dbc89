"""Which file format carries which rows, told by a file's ending, by its content, or by `--format`.

`python -m triform.data.formats` prints the table.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from triform.data.columns import Ask, Records
from triform.data.detect_format import sniff_key
from triform.data.json_rows import json_file, json_lines
from triform.data.line_reader import DataError, Unit
from triform.data.rows import ROWS, Chat, Document, Pair, Row, Tagged, Text
from triform.data.table_rows import comma_separated, parquet, tab_separated
from triform.data.text_rows import conll, document, parallel, text_lines
from triform.errors import UnknownName


class Format(NamedTuple):
    """A way to write rows down: what `--format` calls it, the endings of its files, the kinds of rows it carries, how
    it is read, and what the numbers of its rows count."""

    name: str
    key: str
    endings: tuple[str, ...]
    carries: tuple[type[Row], ...]
    read: Callable[[tuple[Path, ...], Ask], Records]
    unit: Unit = "line"


IN_CELLS = tuple(kind for kind in ROWS if kind not in (Chat, Tagged))  # a cell holds no list
LINES = (".txt", ".text", ".md")

PARALLEL = Format("parallel lines", "parallel", (), (Pair,), parallel)
FORMATS = (
    Format("text lines", "text", LINES, (Text,), text_lines),
    Format("whole text", "text", LINES, (Document,), document),
    Format("CoNLL", "conll", (".conll", ".bio", ".iob", ".iob2", ".annotated", ".txt", ".tsv"), (Tagged,), conll),
    Format("JSON lines", "jsonl", (".jsonl", ".ndjson"), ROWS, json_lines),
    Format("JSON", "json", (".json",), ROWS, json_file, "item"),
    Format("CSV", "csv", (".csv",), IN_CELLS, comma_separated),
    Format("TSV", "tsv", (".tsv", ".tab"), IN_CELLS, tab_separated),
    Format("Parquet", "parquet", (".parquet",), ROWS, parquet, "row"),
)


KEYS = tuple(dict.fromkeys(format.key for format in FORMATS))  # what --format takes


def ending(path: Path) -> str:
    """The ending that tells the format: of `train.csv.gz`, `.csv`."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def formats_of(kind: type[Row]) -> dict[str, Format]:
    """ending → the format it means when this kind of row is asked for."""
    return {ending: format for format in FORMATS if kind in format.carries for ending in format.endings}


def format_of(path: Path, kind: type[Row], key: str | None = None) -> Format:
    """The format that was named, else the one the file's ending means, else the one its content shows."""
    found = format_named(key, kind) if key is not None else formats_of(kind).get(ending(path)) or sniff(path, kind)
    if found is None:
        raise DataError(f"{path} does not end like a file of {kind.__name__} rows; {use(kind)}")
    return found


def format_named(key: str, kind: type[Row]) -> Format:
    carried = {format.key: format for format in FORMATS if kind in format.carries}
    if key not in KEYS:
        raise UnknownName("file format", key, KEYS)
    if key not in carried:
        raise DataError(f"a {key} file holds no {kind.__name__} rows; use --format {' or '.join(carried)}")
    return carried[key]


def sniff(path: Path, kind: type[Row]) -> Format | None:
    """The format that the first bytes show, where they leave no doubt: Parquet, JSON, a token and its tag per line."""
    key = sniff_key(path)
    carried = {format.key: format for format in FORMATS if kind in format.carries}
    return carried.get(key) if key is not None else None


def use(kind: type[Row]) -> str:
    """The way out of a wrong ending."""
    also = ", or two files of parallel lines as train.en-de" if kind is Pair else ""
    keys = dict.fromkeys(format.key for format in formats_of(kind).values())
    endings = f"use one of {' '.join(formats_of(kind))}, also as .gz{also}"
    return f"{endings}; or name the format: --format {' or '.join(keys)}"


def _window() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("format", "--format", "endings (also .gz)", "rows")
    for format in (*FORMATS, PARALLEL):
        rows = "all" if format.carries == ROWS else " ".join(kind.__name__ for kind in format.carries)
        table.add_row(format.name, format.key, " ".join(format.endings) or "train.en + train.de", rows)
    Console().print(table)


if __name__ == "__main__":
    _window()
