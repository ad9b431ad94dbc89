"""Cross-validation, which chooses the number of steps if rows are few; and baselines on the same rows.

Each fold trains a new model on the others: the first as long as it improves, the others until one evaluation after
its best; where the learning rate falls over the run, all to the first one's end. At every evaluation, of a known
model also before the first step, the answers of all folds are scored together; where a task scores no single answers,
the scores of the folds are averaged. The finished model is trained on all rows, for the best number of steps.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from triform.core.forms import Form as Network
from triform.data.folds import assign_folds
from triform.data.row_sample import sample_rows
from triform.data.rows import DataRow
from triform.errors import TriformError
from triform.files.atomic_file import write_file
from triform.files.format_version import CURRENT_FORMAT, check_format
from triform.model import Model
from triform.pipeline.report import MAX_SAMPLES, Sample
from triform.tasks.task import Scores, Task, as_text
from triform.train import loop
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, Evaluated, read_events
from triform.train.run_store import METRICS_FILE
from triform.train.validation_loss import Score

VALIDATION_FILE = "cross-validation.json"  # in the folder of the run, for when it is resumed
MAX_BASELINE_ROWS = 5000  # to train baselines on after a run


class CrossValidated(msgspec.Struct, frozen=True, kw_only=True):
    """`scores` are of the answers to all rows, each by a model that was not trained on it."""

    format_version: int = CURRENT_FORMAT
    folds: int
    steps: int  # of the run on all rows
    scores: Scores
    curve: dict[int, float]  # steps of a fold → main score of all folds
    last_fit: dict[str, Any]
    samples: tuple[Sample, ...]


class Judged(NamedTuple):
    """An evaluation of a fold: the answers, where the task scores answers; and the scores."""

    answers: list[Any]
    scores: Scores


FoldResults: TypeAlias = dict[int, Judged]  # step → how the fold's validation rows were answered


class Fold(NamedTuple):
    """The rows of one fold: those to learn from, and those held out."""

    train: list[Any]
    valid: list[Any]


def split_folds(rows: Sequence[DataRow], *, folds: int) -> list[Fold]:
    """The folds that have rows on both sides."""
    numbers = np.array(assign_folds(rows, folds=folds))
    sides = [(np.flatnonzero(numbers != fold), np.flatnonzero(numbers == fold)) for fold in range(folds)]
    return [Fold(*([rows[int(at)] for at in side] for side in both)) for both in sides if all(map(len, both))]


def cross_validate(
    task: Task[Any, Any, Any],
    folds: Sequence[Fold],
    *,
    start: Callable[[Sequence[Any]], Model],
    config: Config,
    progress: Callable[[str], None],
) -> CrossValidated:
    """`start` makes the model to train on some rows, as it is before the first step."""
    parts: list[FoldResults] = []
    model = start([])
    length: dict[str, object] = {}
    for number, fold in enumerate(folds, start=1):
        progress(f"cross-validating: fold {number} of {len(folds)}")
        parts.append(_train_fold(task, fold, model=start(fold.train), config=config.replace(**length)))
        if number == 1:
            best = _find_best({step: each.scores for step, each in parts[0].items()})
            after = min((step for step in parts[0] if step > best), default=best)
            last = after if config.schedule == "constant" else max(parts[0])
            length = {"steps": last, "epochs": None, "minutes": None, "patience": 0}
    rows = [row for fold in folds for row in fold.valid]
    together = {step: [part[step] for part in parts] for step in sorted(set.intersection(*map(set, parts)))}
    scores = {step: _score_together(task, some, rows, model=model) for step, some in together.items()}
    best = _find_best(scores)
    answers = [answer for each in together[best] for answer in each.answers]
    share = sum(len(fold.train) for fold in folds) / len(folds) / len(rows)
    return CrossValidated(
        folds=len(folds),
        steps=round(best / share),
        scores=scores[best],
        curve={step: each.values[each.main] for step, each in scores.items()},
        last_fit=task.fit_last(answers, rows, model=model) if answers else {},
        samples=tuple(map(partial(_make_sample, task), rows[:MAX_SAMPLES], answers)),
    )


def _score_together(task: Task[Any, Any, Any], parts: Sequence[Judged], rows: Sequence[Any], *, model: Model) -> Scores:
    """Of the answers of all folds; without answers the mean over the rows of the folds."""
    if answers := [answer for part in parts for answer in part.answers]:
        return task.judge_answers(answers, rows, model=model)
    total, first = sum(part.scores.rows for part in parts), parts[0].scores
    means = {
        name: sum(part.scores.values.get(name, 0.0) * part.scores.rows for part in parts) / max(1, total)
        for name in first.values
    }
    return msgspec.structs.replace(first, values=means, rows=total, counts={})


def _make_sample(task: Task[Any, Any, Any], row: Any, answer: msgspec.Struct) -> Sample:
    return Sample(as_text(task.question(row)), str(answer), msgspec.Raw(msgspec.json.encode(answer)))


def _find_best(scores: Mapping[int, Scores]) -> int:
    """The first step that no other beats."""
    return max(scores, key=lambda step: scores[step].values[scores[step].main] * (1 if scores[step].higher else -1))


def _train_fold(task: Task[Any, Any, Any], fold: Fold, *, model: Model, config: Config) -> FoldResults:
    """How the validation rows are answered before the first step of a known model and at every evaluation."""
    found: list[Judged] = []
    steps: list[int] = []
    questions = [task.question(row) for row in fold.valid] if task.scores_answers else []

    def evaluate(network: Network) -> Score:
        current = model.replace(network=network)
        if task.scores_answers:
            answers = list(task.run(questions, model=current, options=task.whole_answers(model)))
            scores = task.judge_answers(answers, fold.valid, model=current)
        else:
            answers, scores = [], task.evaluate(fold.valid, model=current)
        found.append(Judged(answers, scores))
        return Score(scores.main, scores.values[scores.main], higher=scores.higher)

    def watch(event: AnyEvent) -> None:
        if isinstance(event, Evaluated):
            steps.append(event.step)

    loop.train(
        model.network,
        objective=task.objective(model=model, config=config),
        examples=task.examples(fold.train, model=model),
        config=config,
        evaluate=evaluate,
        watch=watch,
    )
    return dict(zip(steps, found, strict=True))


# --- stored ---------------------------------------------------------------------------------------------------------


def write_validated(out: Path, validated: CrossValidated) -> None:
    write_file(out / VALIDATION_FILE, msgspec.json.encode(validated))


def read_validated(out: Path) -> CrossValidated | None:
    """The cross-validation stored in a run's folder, or None."""
    path = out / VALIDATION_FILE
    if not path.is_file():
        return None
    try:
        data = path.read_bytes()
        check_format(data, what=path, otherwise="start a new run in another folder")
        return msgspec.json.decode(data, type=CrossValidated)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TriformError(f"cannot read {path}: {error}; start a new run in another folder") from error


# --- baselines ------------------------------------------------------------------------------------------------------


def score_baselines(
    task: Task[Any, Any, Any], train: Sequence[Any], rows: list[Any], *, validated: CrossValidated | None, out: Path
) -> dict[str, float]:
    """Main scores of the trained baselines, on the same folds or validation rows, and of the base model."""
    means: dict[str, float] = {}
    if task.baselines_learn and (rows or validated):
        whole = [Fold(sample_rows(train, most=MAX_BASELINE_ROWS), rows)]
        folds = whole if validated is None else split_folds(train, folds=validated.folds)
        total = sum(len(fold.valid) for fold in folds)
        for fold in folds:
            for name, scores in task.baselines(fold.valid, train=fold.train).items():
                means[name] = means.get(name, 0.0) + scores.values[scores.main] * len(fold.valid) / total
    start = _read_start_score(out) if validated is None else validated.curve.get(0)
    return means if start is None or not task.start_is else means | {task.start_is: start}


def _read_start_score(out: Path) -> float | None:
    """The score before the first step, if it was evaluated."""
    scored = (event for event in read_events(out / METRICS_FILE) if isinstance(event, Evaluated))
    return next((event.value for event in scored if event.step == 0), None)
