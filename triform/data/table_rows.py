"""Rows from tables: CSV, TSV and Parquet, streamed.

A damaged row is a `Fault` in its place; the rows after it are still read.
"""

import csv
from collections import deque
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from triform.data.columns import Records, RowRequest, pick_fields, place_columns
from triform.data.line_reader import MAX_LINE_BYTES, DataError, Fault, decode_line, open_file, read_lines

Line: TypeAlias = tuple[int, bytes | Fault]
Cells: TypeAlias = tuple[int, list[str] | Fault]


def read_csv(files: tuple[Path, ...], request: RowRequest) -> Records:
    """CSV: cells quoted with " if they contain a comma, a quote or a line end."""
    return _read_table(_read_csv_cells(files[0]), request, file=str(files[0]))


def read_tsv(files: tuple[Path, ...], request: RowRequest) -> Records:
    """TSV: a quote is a normal character, as in GLUE's files."""
    return _read_table(_read_tsv_cells(files[0]), request, file=str(files[0]))


def _read_table(rows: Iterator[Cells], request: RowRequest, *, file: str) -> Records:
    at: dict[str, int] = {}
    width = 0
    for number, cells in rows:
        if isinstance(cells, Fault):
            yield number, cells
            continue
        if not at:
            below = (more for _, more in rows if not isinstance(more, Fault))
            at, is_header = place_columns(cells, request, file=file, below=below)
            width = len(cells)
            if is_header:
                continue
        if len(cells) == width:
            yield number, {field: cells[column] for field, column in at.items()}
        else:
            yield number, Fault("wrong columns", f"{len(cells)} cells, the first row has {width}")


def _read_tsv_cells(path: Path) -> Iterator[Cells]:
    for number, line in read_lines(path):
        try:
            yield number, _refuse_blank(decode_line(line).split("\t"))
        except Fault as fault:
            yield number, fault


def _read_csv_cells(path: Path) -> Iterator[Cells]:
    """A quote that is never closed spoils only its own line: the lines after it are read again."""
    csv.field_size_limit(max(MAX_LINE_BYTES, csv.field_size_limit()))  # the default refuses cells of 128 KiB
    ahead = read_lines(path)
    again: deque[Line] = deque(islice(ahead, 1))
    delimiter = _find_delimiter(again)
    while True:
        taken: list[Line] = []
        try:
            cells = next(csv.reader(_feed(again, ahead, taken), delimiter=delimiter, strict=True), None)
            if cells is None:
                return
            for _, line in taken:
                decode_line(line)
            yield taken[0][0], _refuse_blank(cells)
        except csv.Error as error:
            again.extendleft(reversed(taken[1:]))
            yield taken[0][0], Fault("broken CSV", str(error))
        except Fault as fault:
            yield taken[0][0], fault


def _feed(again: deque[Line], ahead: Iterator[Line], taken: list[Line]) -> Iterator[str]:
    """Lines for one record, collected in `taken`; they end when a record is too long."""
    size = 0
    while size <= MAX_LINE_BYTES and (item := again.popleft() if again else next(ahead, None)):
        taken.append(item)
        line = b"" if isinstance(item[1], Fault) else item[1]
        size += len(line) + 1
        yield line.decode(errors="replace") + "\n"


def _find_delimiter(first: Iterable[Line]) -> str:
    """A comma, or a semicolon, as spreadsheets write where the comma is the decimal point."""
    return ";" if any(isinstance(line, bytes) and b";" in line and b"," not in line for _, line in first) else ","


def _refuse_blank(cells: list[str]) -> list[str]:
    if not any(cells):
        raise Fault("blank", "an empty line")
    return cells


def read_parquet(files: tuple[Path, ...], request: RowRequest) -> Records:
    """Rows of a Parquet file, numbered from 1."""
    try:
        reader = import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(f"reading {files[0]} needs pyarrow: pip install pyarrow") from None
    number = 0
    with open_file(files[0]) as file:
        try:
            for batch in reader.ParquetFile(file).iter_batches(batch_size=1024):
                for record in batch.to_pylist():
                    number += 1
                    yield number, pick_fields(record, request)
        except import_module("pyarrow").ArrowException as error:
            raise DataError(f"{files[0]} is not a complete Parquet file: {error}; copy it again") from error
