"""Rows of every kind of Python value are the rows of the same file; a column that is missing is one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triform.data.columns import Layout
from triform.data.frames import Rows, make_frame, open_rows
from triform.data.line_reader import DataError
from triform.data.readers import read
from triform.data.rows import BadRow, LabelledRow, TaggedRow

RECORDS = [{"text": "a fine day", "label": "good"}, {"text": "rain, “again”\n", "label": "bad"}]
EXPECTED = [LabelledRow("a fine day", ("good",)), LabelledRow("rain, “again”\n", ("bad",))]
COLUMNS = {name: [record[name] for record in RECORDS] for name in ("text", "label")}


def read_all(rows: Rows, layout: Layout = Layout(), kind: Any = LabelledRow) -> list[Any]:  # noqa: B008
    with open_rows(rows, kind=kind, layout=layout) as paths:
        return list(read(paths, kind=kind, layout=layout))


class ArrowOnly:
    """A table of which only the protocol is known."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


def with_package(name: str, make: Callable[[Any], Any]) -> Any:
    return make(pytest.importorskip(name))


def make_dataset(package: Any) -> Any:
    features = package.Features({"text": package.Value("string"), "label": package.ClassLabel(names=["bad", "good"])})
    return package.Dataset.from_dict({"text": COLUMNS["text"], "label": [1, 0]}, features=features)


KINDS: dict[str, Callable[[], Any]] = {
    "dicts": lambda: RECORDS,
    "a generator": lambda: (record for record in RECORDS),
    "columns": lambda: COLUMNS,
    "arrays": lambda: {name: np.array(values) for name, values in COLUMNS.items()},
    "pandas": lambda: with_package("pandas", lambda package: package.DataFrame(RECORDS, index=[7, 3])),
    "polars": lambda: with_package("polars", lambda package: package.DataFrame(RECORDS)),
    "pyarrow": lambda: with_package("pyarrow", lambda package: package.Table.from_pylist(RECORDS)),
    "a batch": lambda: with_package("pyarrow", lambda package: package.RecordBatch.from_pylist(RECORDS)),
    "Arrow's protocol": lambda: with_package("pyarrow", lambda package: ArrowOnly(package.table(COLUMNS))),
    "datasets": lambda: with_package("datasets", make_dataset),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("default")  # of the packages
def test_every_kind_of_rows_is_read_as_a_file_is(kind: str) -> None:
    assert read_all(KINDS[kind]()) == EXPECTED


def test_files_stay_as_they_are(tmp_path: Path) -> None:
    for paths in (str(tmp_path), tmp_path, [tmp_path, "other.csv"]):
        with open_rows(paths, kind=LabelledRow, layout=Layout()) as found:
            assert found is paths


def test_lists_in_cells_and_named_columns() -> None:
    rows = {"words": [["a", "cat"]], "bio": [np.array(["O", "B-animal"])]}
    assert read_all(rows, Layout({"tags": "bio"}), TaggedRow) == [TaggedRow(("a", "cat"), ("O", "B-animal"))]


def test_missing_values_are_bad_rows_and_not_words() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a", None, "c"], "label": ["x", "y", pandas.NA]})
    first, *others = read_all(frame)
    assert first == LabelledRow("a", ("x",))
    assert [type(each) for each in others] == [BadRow, BadRow]
    assert [each.line for each in others] == [2, 3]


WRONG: dict[str, tuple[Any, Layout]] = {
    "none of them labels; name it: columns={'labels': 'lable'}": ([{"text": "a", "lable": "b"}], Layout()),
    "and no 'txt'; did you mean 'text'?": (RECORDS, Layout({"text": "txt"})),
    "columns={'text': 'subject', 'labels': 'queue'}": ([{"subject": "my bill is wrong", "queue": "billing"}], Layout()),
    "the rows are empty": ([], Layout()),
    "row 2 is a value of type tuple and not a dict": ([RECORDS[0], ("a", "b")], Layout()),
    "a value of type int has no rows": (7, Layout()),
    "not equally long: text 1, label 2": ({"text": ["a"], "label": ["b", "c"]}, Layout()),
    "the column 'text' is a value of type str": ({"text": "a", "label": "b"}, Layout()),
}


@pytest.mark.parametrize("says", WRONG)
def test_what_is_wrong_with_rows_is_one_line(says: str) -> None:
    rows, layout = WRONG[says]
    with pytest.raises(DataError) as error:
        read_all(rows, layout)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_splits_are_not_columns() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(DataError, match=r"the splits 'train'; give one: rows\['train'\]"):
        read_all({"train": pandas.DataFrame(RECORDS)})


def test_errors_speak_of_rows_and_not_of_a_temporary_file() -> None:
    with pytest.raises(DataError, match=r"^rows has no good labelled rows; the first problem is rows:1: wrong type"):
        read_all([{"text": 7, "label": "a"}])


def test_records_become_a_frame() -> None:
    pandas = pytest.importorskip("pandas")
    assert make_frame(RECORDS).equals(pandas.DataFrame(COLUMNS))
