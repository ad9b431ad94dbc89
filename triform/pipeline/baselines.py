"""What a finished model is compared with: simpler means on the rows it was judged by. Refuses to know terminals."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from triform.data.row_sample import sample_rows
from triform.pipeline.cross_validation import CrossValidated, Fold, divide
from triform.tasks.task import Task
from triform.train.run_events import Scored, read_events
from triform.train.run_store import METRICS

MAX_ROWS = 5000  # that baselines learn from at the end of a run: enough, and quick


def baselines_of(
    task: Task[Any, Any, Any], train: Sequence[Any], rows: list[Any], *, validated: CrossValidated | None, out: Path
) -> dict[str, float]:
    """Their main scores: of those that learn, on the same folds or rows; and of the start."""
    found: dict[str, float] = {}
    if task.baselines_learn and (rows or validated):
        folds = (
            [Fold(sample_rows(train, most=MAX_ROWS), rows)]
            if validated is None
            else divide(train, folds=validated.folds)
        )
        held = sum(len(fold.held) for fold in folds)
        for fold in folds:
            for name, scores in task.baselines(fold.held, train=fold.learned).items():
                found[name] = found.get(name, 0.0) + scores.values[scores.main] * len(fold.held) / held
    start = start_score(out) if validated is None else validated.curve.get(0)
    return found if start is None or not task.start_is else found | {task.start_is: start}


def start_score(out: Path) -> float | None:
    """Before the first step, where that was judged."""
    scored = (event for event in read_events(out / METRICS) if isinstance(event, Scored))
    return next((event.value for event in scored if event.step == 0), None)
