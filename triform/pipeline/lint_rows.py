"""Problems of rows before a training: `triform lint`, and `triform.lint` in Python."""

from collections.abc import Mapping
from contextlib import ExitStack
from itertools import islice

from triform.data.columns import SAMPLE_ROWS, Layout
from triform.data.frames import Rows, are_paths, open_rows
from triform.data.input_paths import Paths, name_paths
from triform.data.line_reader import DataError
from triform.data.lint import LintReport
from triform.data.readers import PlacedRow, scan
from triform.data.rows import DataRow
from triform.pipeline.splits import find_validation_files, lint_data
from triform.tasks import TASKS, get_task


def lint(
    rows: Rows,
    *,
    task: str | None = None,
    valid: Rows | None = None,
    columns: Mapping[str, str | int] | None = None,
    format: str | None = None,
) -> LintReport:
    """Counts the problems of training rows, as `triform lint` does; `refuse()` of the answer raises if there are any.

    `rows` are a file, a folder, a list of dicts, a frame, an Arrow table or a data set; `valid` are validation rows,
    those of them that are in `rows` too are counted. `task` says which fields a row needs; by default those that the
    first rows have. `columns` names unusual columns: {"text": "subject"}.
    """
    layout = Layout(dict(columns or {}), format)
    with ExitStack() as files:
        if task is not None:
            kind = get_task(task).kind
            data = files.enter_context(open_rows(rows, kind=kind, layout=layout))
        else:
            data = files.enter_context(open_rows(rows, kind=None, layout=layout))
            kind = find_kind(data, layout)
        held = None if valid is None else open_rows(valid, kind=kind, layout=layout, name="validation rows")
        known = find_validation_files(data, kind, layout) if held is None else files.enter_context(held)
        found = lint_data(kind, data, valid=known, layout=layout)
        return found if are_paths(rows) else found.rename_place(name_paths(data), "rows")


def find_kind(data: Paths, layout: Layout) -> type[DataRow]:
    """The kind of rows of which most of the first can be read; of several, that with most fields."""
    rated: dict[type[DataRow], tuple[int, int]] = {}
    refusals = set()
    for kind in dict.fromkeys(get_task(name).kind for name, entry in TASKS.items() if entry.is_trained):
        try:
            some = islice(scan(data, kind=kind, layout=layout), SAMPLE_ROWS)
            rated[kind] = sum(isinstance(row, PlacedRow) for row in some), len(kind.needs)
        except DataError as error:
            refusals.add(str(error))
    if not rated and len(refusals) == 1:  # no matter of the kind: there is no such file
        raise DataError(refusals.pop())
    if not rated or not max(rated.values())[0]:
        raise DataError(f"{name_paths(data)}: the first rows have the fields of no task; name the task")
    return max(rated, key=rated.__getitem__)
