"""File formats and the rows they can have, chosen by the ending of a file, its content, or `--format`.

`python -m triform.data.formats` prints the table.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from triform.data.columns import Records, RowRequest
from triform.data.detect_format import detect_format_key
from triform.data.json_rows import read_json, read_json_lines
from triform.data.line_reader import DataError, Unit
from triform.data.rows import ROW_TYPES, ChatRow, DataRow, DocumentRow, PairRow, TaggedRow, TextRow
from triform.data.table_rows import read_csv, read_parquet, read_tsv
from triform.data.text_rows import read_conll, read_document, read_parallel, read_text_lines
from triform.errors import UnknownName


class Format(NamedTuple):
    """A file format: its key for `--format`, the endings of its files, the types of rows it can have, its reader, and
    what the numbers of its rows count."""

    name: str
    key: str
    endings: tuple[str, ...]
    row_types: tuple[type[DataRow], ...]
    read: Callable[[tuple[Path, ...], RowRequest], Records]
    unit: Unit = "line"


ROWS_IN_CELLS = tuple(kind for kind in ROW_TYPES if kind not in (ChatRow, TaggedRow))  # a cell has no list
TEXT_ENDINGS = (".txt", ".text", ".md")

PARALLEL = Format("parallel lines", "parallel", (), (PairRow,), read_parallel)
FORMATS = (
    Format("text lines", "text", TEXT_ENDINGS, (TextRow,), read_text_lines),
    Format("whole text", "text", TEXT_ENDINGS, (DocumentRow,), read_document),
    Format(
        "CoNLL", "conll", (".conll", ".bio", ".iob", ".iob2", ".annotated", ".txt", ".tsv"), (TaggedRow,), read_conll
    ),
    Format("JSON lines", "jsonl", (".jsonl", ".ndjson"), ROW_TYPES, read_json_lines),
    Format("JSON", "json", (".json",), ROW_TYPES, read_json, "item"),
    Format("CSV", "csv", (".csv",), ROWS_IN_CELLS, read_csv),
    Format("TSV", "tsv", (".tsv", ".tab"), ROWS_IN_CELLS, read_tsv),
    Format("Parquet", "parquet", (".parquet",), ROW_TYPES, read_parquet, "row"),
)


FORMAT_KEYS = tuple(dict.fromkeys(format.key for format in FORMATS))  # values of --format


def get_ending(path: Path) -> str:
    """The ending that says the format: `.csv` for `train.csv.gz`."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def list_formats(kind: type[DataRow]) -> dict[str, Format]:
    """ending → its format for this type of row."""
    return {ending: format for format in FORMATS if kind in format.row_types for ending in format.endings}


def find_format(path: Path, kind: type[DataRow], key: str | None = None) -> Format:
    """The format of `--format`, else of the file's ending, else of its content."""
    found = (
        find_format_by_key(key, kind)
        if key is not None
        else list_formats(kind).get(get_ending(path)) or detect_format(path, kind)
    )
    if found is None:
        raise DataError(f"the ending of {path} is not one for {kind.title} rows; {describe_formats(kind)}")
    return found


def find_format_by_key(key: str, kind: type[DataRow]) -> Format:
    """The format of `--format KEY`, if it can hold rows of this kind."""
    possible = {format.key: format for format in FORMATS if kind in format.row_types}
    if key not in FORMAT_KEYS:
        raise UnknownName("file format", key, FORMAT_KEYS)
    if key not in possible:
        raise DataError(f"{key} files cannot have {kind.title} rows; use --format {' or '.join(possible)}")
    return possible[key]


def detect_format(path: Path, kind: type[DataRow]) -> Format | None:
    """The format that the first bytes show, if it is unmistakable: Parquet, JSON, CoNLL."""
    key = detect_format_key(path)
    possible = {format.key: format for format in FORMATS if kind in format.row_types}
    return possible.get(key) if key is not None else None


def describe_formats(kind: type[DataRow]) -> str:
    """What to do about a wrong ending."""
    also = ", or two files of parallel lines as train.en-de" if kind is PairRow else ""
    keys = dict.fromkeys(format.key for format in list_formats(kind).values())
    endings = f"use one of {' '.join(list_formats(kind))}, also as .gz{also}"
    return f"{endings}; or name the format: --format {' or '.join(keys)}"


def _print_table() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("format", "--format", "endings (also .gz)", "rows")
    for format in (*FORMATS, PARALLEL):
        rows = "all" if format.row_types == ROW_TYPES else ", ".join(kind.title for kind in format.row_types)
        table.add_row(format.name, format.key, " ".join(format.endings) or "train.en + train.de", rows)
    Console().print(table)


if __name__ == "__main__":
    _print_table()
