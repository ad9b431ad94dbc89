"""How well a model does a task: `triform eval`, and `triform.evaluate` in Python.

report = evaluate("models/reviews", "test.csv", baseline=True, train="train.csv")
report.scores.values["accuracy"]
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from triform.data.chunks import split_chunks
from triform.data.columns import Layout
from triform.data.frames import Rows, make_frame, open_rows
from triform.errors import TriformError
from triform.model import Model
from triform.pipeline.evaluation_rows import read_rows, read_training_rows, score_frozen_baseline
from triform.tasks.task import Scores, Task
from triform.tasks.task_of_model import choose_task
from triform.weights import model_folder

FIRST_CHUNK = 8  # rows of the first chunk: so that progress is seen soon


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of a model on some rows, and those of simple baselines on the same rows.

    `scores.values[scores.main]` is the main score; `notes` say which baseline could not be made, and why."""

    task: str
    scores: Scores
    baselines: dict[str, Scores] = {}
    skipped: int = 0  # rows that could not be read
    cut: int = 0  # tokens that did not fit, of `cut_texts`
    cut_texts: int = 0
    unknown: int = 0  # tokens that the vocabulary cannot spell
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        def show(scores: Scores) -> str:
            return ", ".join(f"{name} {scores.format_value(name)}" for name in scores.values) or "not evaluated"

        baselines = "".join(f"; {name}: {show(scores)}" for name, scores in self.baselines.items())
        return f"Report({self.task}, {self.scores.rows:,} rows: {show(self.scores)}{baselines})"

    @property
    def columns(self) -> dict[str, Scores]:
        """The scores by what they are of: "model", and each baseline."""
        return {"model": self.scores, **self.baselines}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    def to_pandas(self) -> Any:
        """A DataFrame with one row for the model and for each baseline."""
        return make_frame([{"": name, **scores.values} for name, scores in self.columns.items()]).set_index("")


def ignore_count(done: int, total: int) -> None:
    """A reporter that does nothing."""


def evaluate(
    model: Model | str | Path,
    rows: Rows,
    *,
    task: str | None = None,
    baseline: bool = False,
    train: Rows | None = None,
    limit: int | None = None,
    beams: int | None = None,
    columns: Mapping[str, str | int] | None = None,
    format: str | None = None,
    progress: Callable[[int, int], None] = ignore_count,
) -> Report:
    """Evaluates a model (or the one in a folder or of a name) on rows, as `triform eval` does.

    `rows` are a file, a folder with a test file, a list of dicts, a frame, an Arrow table or a data set.
    `task` is by default what the model was trained for. `baseline` also evaluates simple baselines, which learn from
    the rows of `train`. `limit` reads the first rows only; `beams` searches where the model generates text. `columns`
    names unusual columns: {"text": "subject"}; `format` is of a file whose name does not tell it. `progress` is
    called with the number of rows done and of all rows.
    """
    loaded = model if isinstance(model, Model) else model_folder.load(model)
    found, layout = choose_task(loaded, task), Layout(dict(columns or {}), format)
    with ExitStack() as files:
        data = files.enter_context(open_rows(rows, kind=found.kind, layout=layout))
        learned = None if train is None else open_rows(train, kind=found.kind, layout=layout, name="training rows")
        judged, skipped = read_rows(data, kind=found.kind, limit=limit, layout=layout)
        seen = None if learned is None else files.enter_context(learned)
        known = read_training_rows(found, data=data, train=seen, layout=layout) if baseline else []
    baselines, notes = _score_baselines(found, judged, known, loaded) if baseline else ({}, ())
    options = found.options(**({} if beams is None else {"beams": beams}))
    report = _score(found, judged, loaded, options, progress)
    return msgspec.structs.replace(report, baselines=baselines, skipped=skipped, notes=notes)


def _score_baselines(
    task: Task[Any, Any, Any], rows: list[Any], train: list[Any], model: Model
) -> tuple[dict[str, Scores], tuple[str, ...]]:
    """Simpler means, the frozen model it began with among them, where that is still here."""
    found = dict(task.baselines(rows, train=train))
    try:
        return found | dict(score_frozen_baseline(task, rows, train=train, model=model)), ()
    except TriformError as error:
        return found, (f"without a linear fit on frozen vectors: {error}",)


def _score(
    task: Task[Any, Any, Any], rows: list[Any], model: Model, options: Any, progress: Callable[[int, int], None]
) -> Report:
    """Answers are counted as they come, where the task scores answers."""
    progress(0, len(rows))
    if not task.scores_answers:
        return Report(task=task.name, scores=task.evaluate(rows, model=model, options=options))
    answers: list[Any] = []
    for some in split_chunks(map(task.question, rows), first=FIRST_CHUNK):
        for answer in task.run(some, model=model, options=options):
            answers.append(answer)
            progress(len(answers), len(rows))
    return Report(
        task=task.name,
        scores=task.judge_answers(answers, rows, model=model),
        cut=sum(getattr(answer, "cut", 0) for answer in answers),
        cut_texts=sum(getattr(answer, "cut", 0) > 0 for answer in answers),
        unknown=sum(getattr(answer, "unknown", 0) for answer in answers),
    )
