"""The rows that a model and its baselines are evaluated on, and those that baselines are trained on."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from triform.data.columns import Layout
from triform.data.input_paths import Paths, find_splits, name_paths
from triform.data.line_reader import DataError
from triform.data.readers import DEFAULT_LAYOUT, read
from triform.data.rows import BadRow, R
from triform.model import Model
from triform.tasks.task import Scores, Task
from triform.weights import model_folder, model_store


def read_rows(
    data: Paths, *, kind: type[R], limit: int | None = None, layout: Layout = DEFAULT_LAYOUT
) -> tuple[list[R], int]:
    """Good rows and the number of others. From a folder: its test file, else its validation file."""
    paths: Paths = data
    if isinstance(data, str | Path) and Path(data).is_dir():
        files = find_splits(data, kind=kind, format=layout.format)
        paths = files.test or files.valid
        if not paths:
            raise DataError(
                f"the folder {data} has no file called test or valid; give the file (two parallel ones: test.en-de)"
            )
    rows = list(islice(read(paths, kind=kind, layout=layout), limit))
    good = [row for row in rows if not isinstance(row, BadRow)]
    if not good:
        raise DataError(f"none of the first {len(rows)} rows of {name_paths(data)} can be read: {rows[0]}")
    return good, len(rows) - len(good)


def score_frozen_baseline(
    task: Task[R, Any, Any], rows: Sequence[R], *, train: Sequence[R], model: Model
) -> Mapping[str, Scores]:
    """For a model trained from a base model: a head fitted on the frozen vectors of the base model."""
    base = model.memo.get("base")
    if not isinstance(base, str) or not task.start_is:
        return {}
    return task.frozen_baseline(rows, train=train, base=model_folder.read(model_store.find_model(base)))


def read_training_rows(
    task: Task[R, Any, Any], *, data: Paths, train: Paths | None, layout: Layout = DEFAULT_LAYOUT
) -> list[R]:
    """Rows to train baselines on; empty if there are none and none are needed."""
    paths: Paths | None = train
    if train is None and isinstance(data, str | Path) and Path(data).is_dir():
        paths = find_splits(data, kind=task.kind, format=layout.format).train
    if paths:
        return [row for row in read(paths, kind=task.kind, layout=layout) if not isinstance(row, BadRow)]
    if task.baselines_learn:
        raise DataError(f"the baselines of {task.name} need training rows; give --train FILE")
    return []
