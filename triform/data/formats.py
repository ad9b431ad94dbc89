"""Which file format carries which rows, told by a file's ending.

`python -m triform.data.formats` prints the table.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from triform.data.columns import Ask, Records
from triform.data.files import DataError
from triform.data.jsons import json_file, json_lines
from triform.data.plain import conll, document, parallel, text_lines
from triform.data.rows import ROWS, Chat, Document, Pair, Row, Tagged, Text
from triform.data.tables import comma_separated, parquet, tab_separated


class Format(NamedTuple):
    """A way to write rows down: the endings of its files, the kinds of rows it carries, and how it is read."""

    name: str
    endings: tuple[str, ...]
    carries: tuple[type[Row], ...]
    read: Callable[[tuple[Path, ...], Ask], Records]


IN_CELLS = tuple(kind for kind in ROWS if kind not in (Chat, Tagged))  # a cell holds no list
LINES = (".txt", ".text", ".md")

PARALLEL = Format("parallel lines", (), (Pair,), parallel)
FORMATS = (
    Format("text lines", LINES, (Text,), text_lines),
    Format("whole text", LINES, (Document,), document),
    Format("CoNLL", (".conll", ".bio", ".iob", ".iob2", ".annotated", ".txt", ".tsv"), (Tagged,), conll),
    Format("JSON lines", (".jsonl", ".ndjson"), ROWS, json_lines),
    Format("JSON", (".json",), ROWS, json_file),
    Format("CSV", (".csv",), IN_CELLS, comma_separated),
    Format("TSV", (".tsv", ".tab"), IN_CELLS, tab_separated),
    Format("Parquet", (".parquet",), ROWS, parquet),
)


def ending(path: Path) -> str:
    """The ending that tells the format: of `train.csv.gz`, `.csv`."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def formats_of(kind: type[Row]) -> dict[str, Format]:
    """ending → the format it means when this kind of row is asked for."""
    return {ending: format for format in FORMATS if kind in format.carries for ending in format.endings}


def format_of(path: Path, kind: type[Row]) -> Format:
    found = formats_of(kind).get(ending(path))
    if found is None:
        raise DataError(f"{path} does not end like a file of {kind.__name__} rows; {use(kind)}")
    return found


def use(kind: type[Row]) -> str:
    """The way out of a wrong ending."""
    also = ", or two files of parallel lines as train.en-de" if kind is Pair else ""
    return f"use one of {' '.join(formats_of(kind))}, also as .gz{also}"


def _window() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("format", "endings (also .gz)", "rows")
    for format in (*FORMATS, PARALLEL):
        rows = "all" if format.carries == ROWS else " ".join(kind.__name__ for kind in format.carries)
        table.add_row(format.name, " ".join(format.endings) or "train.en + train.de", rows)
    Console().print(table)


if __name__ == "__main__":
    _window()
