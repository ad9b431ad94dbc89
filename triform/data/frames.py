"""Rows that are Python values: lists of dicts, columns, frames, Arrow tables, Hugging Face data sets; and tables back.

    with open_rows(frame, kind=LabelledRow, layout=Layout()) as paths: ...

They become a file of JSON lines, so that everything that reads files reads them too. No package of frames is a
dependency: a value is known by its methods. Refuses to know what rows are for.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec

from triform.data.column_suggestions import suggest_columns
from triform.data.columns import SAMPLE_ROWS, USUAL_NAMES, Layout, find_columns, make_request
from triform.data.input_paths import Paths
from triform.data.line_reader import DataError
from triform.data.rows import DataRow
from triform.errors import TriformError

Record: TypeAlias = Mapping[str, Any]


class ArrowTable(Protocol):
    """A table by Arrow's protocol: of pyarrow, polars, pandas, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class InterchangeFrame(Protocol):
    """A table by the dataframe interchange protocol."""

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any: ...


Rows: TypeAlias = Paths | Iterable[Record] | Mapping[str, Sequence[Any]] | ArrowTable | InterchangeFrame


@contextmanager
def open_rows(rows: Rows, *, kind: type[DataRow] | None, layout: Layout, name: str = "rows") -> Iterator[Paths]:
    """The files of these rows; of values a temporary one, called `name` in every error. The columns are checked where
    the `kind` of the rows is known."""
    if are_paths(rows):
        yield rows  # type: ignore[misc]
        return
    if layout.format is not None:
        raise DataError(f"format={layout.format!r} is of files; leave it out for rows that are values")
    with tempfile.TemporaryDirectory(prefix="triform-") as folder:
        path = Path(folder) / f"{name}.jsonl"
        write_records(iterate_records(rows), path, kind=kind, layout=layout, name=name)
        try:
            yield path
        except TriformError as error:
            error.args = (str(error).replace(str(path), name),)
            raise


def are_paths(rows: object) -> bool:
    """A path, or a list of them."""
    if isinstance(rows, list | tuple):
        return bool(rows) and all(isinstance(one, str | Path) for one in rows)
    return isinstance(rows, str | Path)


def write_records(
    records: Iterator[Record], path: Path, *, kind: type[DataRow] | None, layout: Layout, name: str
) -> None:
    """JSON lines; the columns are checked by the first rows, before anything is written."""
    first = list(islice(records, SAMPLE_ROWS))
    if not first:
        raise DataError(f"the {name} are empty; give at least one")
    if kind is not None:
        check_columns(first, kind=kind, layout=layout, name=name)
    encode = msgspec.json.Encoder(enc_hook=_to_plain).encode
    with path.open("wb") as file:
        file.writelines(encode(dict(record)) + b"\n" for record in chain(first, records))


def check_columns(first: Sequence[Record], *, kind: type[DataRow], layout: Layout, name: str) -> None:
    """Every field that the rows need has a column; else one line with the nearest name."""
    values: dict[str, list[object]] = {}
    for record in first:
        for column, value in record.items():
            values.setdefault(column, []).append(_to_plain(value))
    request = make_request(kind, layout)
    found, have = find_columns(tuple(values), request), f"the {name} have the columns {', '.join(map(repr, values))}"
    for field, named in request.columns:
        if field not in found:
            near = get_close_matches(str(named), values, n=1)
            raise DataError(f"{have}, and no {named!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    if missing := request.missing(found):
        free = {column: held for column, held in values.items() if column not in found.values()}
        likely = {field: column for field in missing for column in _find_nearest(field, free)}
        likely = suggest_columns(missing, free) | likely
        way_out = ", ".join(f"{field!r}: {likely.get(field, 'NAME')!r}" for field in missing)
        raise DataError(f"{have}, none of them {' or '.join(missing)}; name it: columns={{{way_out}}}")


def _find_nearest(field: str, columns: Iterable[str]) -> list[str]:
    """The column whose name is nearly one of the usual ones."""
    known = list(columns)
    return next((near for usual in USUAL_NAMES[field] if (near := get_close_matches(usual, known, n=1))), [])


# --- values of every kind as records --------------------------------------------------------------------------------


def iterate_records(rows: Any) -> Iterator[Record]:
    """One mapping per row."""
    if hasattr(rows, "iter_rows"):  # polars
        yield from rows.iter_rows(named=True)
    elif hasattr(rows, "itertuples"):  # pandas
        names = [str(column) for column in rows.columns]
        cells = rows.astype(object).where(rows.notna(), None)
        yield from (dict(zip(names, row, strict=True)) for row in cells.itertuples(index=False, name=None))
    elif hasattr(rows, "features") and hasattr(rows, "__iter__"):  # Hugging Face
        yield from _iterate_dataset(rows)
    elif isinstance(rows, Mapping):
        yield from _iterate_columns(rows)
    elif hasattr(rows, "to_pylist"):  # pyarrow's tables and batches
        for batch in rows.to_batches() if hasattr(rows, "to_batches") else [rows]:
            yield from batch.to_pylist()
    elif hasattr(rows, "__arrow_c_stream__"):
        for batch in _import_pyarrow("pyarrow", rows).RecordBatchReader.from_stream(rows):
            yield from batch.to_pylist()
    elif hasattr(rows, "__dataframe__"):
        yield from iterate_records(_import_pyarrow("pyarrow.interchange", rows).from_dataframe(rows))
    elif isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        for number, record in enumerate(rows, start=1):
            if not isinstance(record, Mapping):
                raise DataError(f"row {number} is {_name_type(record)} and not a dict: {repr(record)[:60]}")
            yield record
    else:
        raise DataError(
            f"{_name_type(rows)} has no rows; give a file, a list of dicts, a frame, an Arrow table or a data set"
        )


def _iterate_dataset(rows: Any) -> Iterator[Record]:
    """Class labels by their names, not numbers."""
    named = {column: kind for column, kind in (rows.features or {}).items() if hasattr(kind, "int2str")}
    for record in rows:
        labels = {column: kind.int2str(record[column]) for column, kind in named.items() if record[column] is not None}
        yield {**record, **labels}


def _iterate_columns(columns: Mapping[str, Any]) -> Iterator[Record]:
    """A dict of equally long lists; one whose values are data sets has splits, not columns."""
    for name, values in columns.items():
        if hasattr(values, "features") or hasattr(values, "columns"):
            raise DataError(f"these rows have the splits {', '.join(map(repr, columns))}; give one: rows[{name!r}]")
        if isinstance(values, str) or not hasattr(values, "__len__"):
            raise DataError(f"the column {name!r} is {_name_type(values)}; a dict of rows has a list per column")
    if len(lengths := {name: len(values) for name, values in columns.items()}) and len(set(lengths.values())) > 1:
        raise DataError(f"the columns are not equally long: {', '.join(f'{n} {k}' for n, k in lengths.items())}")
    yield from (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def _import_pyarrow(module: str, rows: object) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise DataError(f"reading {_name_type(rows)} needs pyarrow: pip install pyarrow") from None


def _name_type(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def _to_plain(value: Any) -> Any:
    """Arrays and their numbers as Python's own; of anything else that JSON has no word for, its text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if value is None or isinstance(value, str | int | float | list | dict) else str(value)


# --- tables of answers ----------------------------------------------------------------------------------------------


def make_frame(records: Sequence[Record]) -> Any:
    """A pandas DataFrame with one row per record."""
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise TriformError("a DataFrame needs pandas: pip install pandas; without it, use to_dict()") from None
    return pandas.DataFrame([dict(record) for record in records])
