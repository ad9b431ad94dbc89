"""Reads rows of a given type from files of any format, in constant memory.

    for row in read("train.csv", kind=LabelledRow): ...

A damaged row is a `BadRow` in its place, so that it can be skipped and counted; a file that cannot be read at all is a
`DataError`. Knows no tokens, tasks and order.
"""

from collections.abc import Iterator
from typing import Generic, NamedTuple

from triform.data.columns import Layout, RowRequest, get_id, get_kept, make_request
from triform.data.input_paths import InputFiles, Paths, find_inputs, name_paths
from triform.data.line_reader import DataError, Fault, Unit
from triform.data.rows import BadRow, R

DEFAULT_LAYOUT = Layout()  # for files whose names and headers say everything


class PlacedRow(NamedTuple, Generic[R]):
    """A row and its place."""

    file: str
    line: int
    row: R
    unit: Unit
    id: str = ""  # the id in the row, if it has one
    kept: dict[str, str] = {}  # noqa: RUF012  (never changed) other columns, by `Layout.keep`


def read(paths: Paths, *, kind: type[R], layout: Layout = DEFAULT_LAYOUT) -> Iterator[R | BadRow]:
    """Rows in the order of the files; of a folder, the training rows.

    `layout` names unusual columns: read("a.tsv", kind=LabelledRow, layout=Layout({"text": "phrase"})).
    """
    rows = read_placed(paths, kind=kind, layout=layout)
    return (row.row if isinstance(row, PlacedRow) else row for row in rows)


def read_placed(paths: Paths, *, kind: type[R], layout: Layout = DEFAULT_LAYOUT) -> Iterator[PlacedRow[R] | BadRow]:
    """Rows with their places."""
    return _check_rows(scan(paths, kind=kind, layout=layout), kind=kind, paths=paths)


def scan(paths: Paths, *, kind: type[R], layout: Layout = DEFAULT_LAYOUT) -> Iterator[PlacedRow[R] | BadRow]:
    """Rows with their places, without the checks of `read`: for linting."""
    return _read_inputs(find_inputs(paths, kind=kind, format=layout.format), make_request(kind, layout), kind)


def _read_inputs(inputs: tuple[InputFiles, ...], request: RowRequest, kind: type[R]) -> Iterator[PlacedRow[R] | BadRow]:
    for source in inputs:
        file, unit = str(source.files[0]), source.format.unit
        for line, fields in source.format.read(source.files, request):
            try:
                if isinstance(fields, Fault):
                    raise fields
                yield PlacedRow(file, line, kind.of(fields), unit, get_id(fields), get_kept(fields))
            except Fault as fault:
                own_id = "" if isinstance(fields, Fault) else get_id(fields)
                yield BadRow(file, line, fault.kind, fault.detail, unit, own_id)


def _check_rows(
    rows: Iterator[PlacedRow[R] | BadRow], *, kind: type[R], paths: Paths
) -> Iterator[PlacedRow[R] | BadRow]:
    """Raises for parallel files of unequal length, and for files without a single good row."""
    good, problem = 0, None
    for row in rows:
        if isinstance(row, PlacedRow):
            good += 1
        elif row.kind == "unequal files":
            raise DataError(f"{row.detail}; parallel files need the same number of lines")
        else:
            problem = problem or row
        yield row
    if not good and problem:
        raise DataError(f"{name_paths(paths)} has no good {kind.title} rows; the first problem is {problem}")
    if not good:
        raise DataError(f"{name_paths(paths)} has no rows")
