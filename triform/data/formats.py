"""File formats and the rows they can have, chosen by the ending of a file, its content, or `--format`.

`python -m triform.data.formats` prints the table.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from triform.data.columns import Records, RowRequest
from triform.data.detect_format import sniff_key
from triform.data.json_rows import read_json, read_json_lines
from triform.data.line_reader import DataError, Unit
from triform.data.rows import ROWS, Chat, Document, Pair, Row, Tagged, Text
from triform.data.table_rows import read_csv, read_parquet, read_tsv
from triform.data.text_rows import read_conll, read_document, read_parallel, read_text_lines
from triform.errors import UnknownName


class Format(NamedTuple):
    """A file format: its key for `--format`, the endings of its files, the types of rows it can have, its reader, and
    what the numbers of its rows count."""

    name: str
    key: str
    endings: tuple[str, ...]
    row_types: tuple[type[Row], ...]
    read: Callable[[tuple[Path, ...], RowRequest], Records]
    unit: Unit = "line"


ROWS_IN_CELLS = tuple(kind for kind in ROWS if kind not in (Chat, Tagged))  # a cell has no list
LINES = (".txt", ".text", ".md")

PARALLEL = Format("parallel lines", "parallel", (), (Pair,), read_parallel)
FORMATS = (
    Format("text lines", "text", LINES, (Text,), read_text_lines),
    Format("whole text", "text", LINES, (Document,), read_document),
    Format("CoNLL", "conll", (".conll", ".bio", ".iob", ".iob2", ".annotated", ".txt", ".tsv"), (Tagged,), read_conll),
    Format("JSON lines", "jsonl", (".jsonl", ".ndjson"), ROWS, read_json_lines),
    Format("JSON", "json", (".json",), ROWS, read_json, "item"),
    Format("CSV", "csv", (".csv",), ROWS_IN_CELLS, read_csv),
    Format("TSV", "tsv", (".tsv", ".tab"), ROWS_IN_CELLS, read_tsv),
    Format("Parquet", "parquet", (".parquet",), ROWS, read_parquet, "row"),
)


KEYS = tuple(dict.fromkeys(format.key for format in FORMATS))  # values of --format


def ending(path: Path) -> str:
    """The ending that says the format: `.csv` for `train.csv.gz`."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def formats_of(kind: type[Row]) -> dict[str, Format]:
    """ending → its format for this type of row."""
    return {ending: format for format in FORMATS if kind in format.row_types for ending in format.endings}


def format_of(path: Path, kind: type[Row], key: str | None = None) -> Format:
    """The format of `--format`, else of the file's ending, else of its content."""
    found = format_named(key, kind) if key is not None else formats_of(kind).get(ending(path)) or sniff(path, kind)
    if found is None:
        raise DataError(f"the ending of {path} is not one for {kind.title} rows; {use(kind)}")
    return found


def format_named(key: str, kind: type[Row]) -> Format:
    possible = {format.key: format for format in FORMATS if kind in format.row_types}
    if key not in KEYS:
        raise UnknownName("file format", key, KEYS)
    if key not in possible:
        raise DataError(f"{key} files cannot have {kind.title} rows; use --format {' or '.join(possible)}")
    return possible[key]


def sniff(path: Path, kind: type[Row]) -> Format | None:
    """The format that the first bytes show, if it is unmistakable: Parquet, JSON, CoNLL."""
    key = sniff_key(path)
    possible = {format.key: format for format in FORMATS if kind in format.row_types}
    return possible.get(key) if key is not None else None


def use(kind: type[Row]) -> str:
    """What to do about a wrong ending."""
    also = ", or two files of parallel lines as train.en-de" if kind is Pair else ""
    keys = dict.fromkeys(format.key for format in formats_of(kind).values())
    endings = f"use one of {' '.join(formats_of(kind))}, also as .gz{also}"
    return f"{endings}; or name the format: --format {' or '.join(keys)}"


def _print_table() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("format", "--format", "endings (also .gz)", "rows")
    for format in (*FORMATS, PARALLEL):
        rows = "all" if format.row_types == ROWS else ", ".join(kind.title for kind in format.row_types)
        table.add_row(format.name, format.key, " ".join(format.endings) or "train.en + train.de", rows)
    Console().print(table)


if __name__ == "__main__":
    _print_table()
