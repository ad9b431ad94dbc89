"""Rows from tables: CSV, TSV and Parquet, streamed.

Refuses to know what the columns mean. A damaged row is a `Fault` in its place; the rows after it are still read.
"""

import csv
from collections import deque
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from triform.data.columns import Ask, Records, pick, place
from triform.data.line_reader import LONGEST, DataError, Fault, decoded, lines, opened

Line: TypeAlias = tuple[int, bytes | Fault]
Cells: TypeAlias = tuple[int, list[str] | Fault]


def comma_separated(files: tuple[Path, ...], ask: Ask) -> Records:
    """Cells between commas, quoted with " where they hold a comma, a quote or a line end."""
    return _table(_comma_cells(files[0]), ask, file=str(files[0]))


def tab_separated(files: tuple[Path, ...], ask: Ask) -> Records:
    """Cells between tabs. A quote is a character like any other, as in GLUE's files."""
    return _table(_tab_cells(files[0]), ask, file=str(files[0]))


def _table(rows: Iterator[Cells], ask: Ask, *, file: str) -> Records:
    at: dict[str, int] = {}
    width = 0
    for number, cells in rows:
        if isinstance(cells, Fault):
            yield number, cells
            continue
        if not at:
            below = (more for _, more in rows if not isinstance(more, Fault))
            at, is_header = place(cells, ask, file=file, below=below)
            width = len(cells)
            if is_header:
                continue
        if len(cells) == width:
            yield number, {field: cells[column] for field, column in at.items()}
        else:
            yield number, Fault("wrong columns", f"{len(cells)} cells where the first row has {width}")


def _tab_cells(path: Path) -> Iterator[Cells]:
    for number, line in lines(path):
        try:
            yield number, _not_blank(decoded(line).split("\t"))
        except Fault as fault:
            yield number, fault


def _comma_cells(path: Path) -> Iterator[Cells]:
    """A quote that is never closed costs its own line only: the lines it swallowed are read again."""
    csv.field_size_limit(max(LONGEST, csv.field_size_limit()))  # the default would refuse cells of 128 KiB
    ahead = lines(path)
    again: deque[Line] = deque(islice(ahead, 1))
    delimiter = _delimiter(again)
    while True:
        taken: list[Line] = []
        try:
            cells = next(csv.reader(_feed(again, ahead, taken), delimiter=delimiter, strict=True), None)
            if cells is None:
                return
            for _, line in taken:
                decoded(line)
            yield taken[0][0], _not_blank(cells)
        except csv.Error as error:
            again.extendleft(reversed(taken[1:]))
            yield taken[0][0], Fault("broken CSV", str(error))
        except Fault as fault:
            yield taken[0][0], fault


def _feed(again: deque[Line], ahead: Iterator[Line], taken: list[Line]) -> Iterator[str]:
    """Lines for one record, noted as they are taken; they end where a record has grown beyond all measure."""
    size = 0
    while size <= LONGEST and (item := again.popleft() if again else next(ahead, None)):
        taken.append(item)
        line = b"" if isinstance(item[1], Fault) else item[1]
        size += len(line) + 1
        yield line.decode(errors="replace") + "\n"


def _delimiter(first: Iterable[Line]) -> str:
    """A comma, or the semicolon that spreadsheets write where the comma is the decimal point."""
    return ";" if any(isinstance(line, bytes) and b";" in line and b"," not in line for _, line in first) else ","


def _not_blank(cells: list[str]) -> list[str]:
    if not any(cells):
        raise Fault("blank", "an empty line")
    return cells


def parquet(files: tuple[Path, ...], ask: Ask) -> Records:
    """Rows of a Parquet file, numbered from 1."""
    try:
        reader = import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(f"reading {files[0]} needs pyarrow: pip install pyarrow") from None
    number = 0
    with opened(files[0]) as file:
        try:
            for batch in reader.ParquetFile(file).iter_batches(batch_size=1024):
                for record in batch.to_pylist():
                    number += 1
                    yield number, pick(record, ask)
        except import_module("pyarrow").ArrowException as error:
            raise DataError(f"{files[0]} is not a whole Parquet file: {error}; copy it again") from error
