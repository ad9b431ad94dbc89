"""How many steps are best, where rows are too few to hold some out for good: parts of them are held out in turn.

Each fold begins anew and learns from the other folds: the first as long as it gets better, the rest until one
evaluation behind its best. At every evaluation the answers of all folds are judged together, those before the first
step too. The finished model learns from all rows, for as many steps as were best. Refuses to know terminals.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from triform.core.forms import Form as Network
from triform.data.folds import number_folds
from triform.data.rows import Row
from triform.errors import TriformError
from triform.files.whole_files import write_whole
from triform.model import Model
from triform.pipeline.report import SAMPLES_ASKED, Sample
from triform.tasks.task import Scores, Task, readable
from triform.train import loop
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, Scored
from triform.train.validation_loss import Score

VALIDATED = "cross-validation.json"  # in the folder of the run, so that a run that goes on knows it

Start: TypeAlias = Callable[[Sequence[Any]], Model]
Answers: TypeAlias = dict[int, list[Any]]  # step → an answer for each held-out row


class CrossValidated(msgspec.Struct, frozen=True, kw_only=True):
    """`scores` are of the answers to all rows, each by a model that had not learned from it."""

    folds: int
    steps: int  # of the run that learns from all rows
    scores: Scores
    curve: dict[int, float]  # steps of a fold → main score of all folds
    last_fit: dict[str, Any]
    samples: tuple[Sample, ...]


class Fold(NamedTuple):
    learned: list[Any]
    held: list[Any]


def divide(rows: Sequence[Row], *, folds: int) -> list[Fold]:
    """As many folds as have rows on both sides."""
    numbers = np.array(number_folds(rows, folds=folds))
    found = []
    for fold in range(folds):
        sides = (np.flatnonzero(numbers != fold), np.flatnonzero(numbers == fold))
        found.append(Fold(*([rows[int(at)] for at in side] for side in sides)))
    return [fold for fold in found if fold.learned and fold.held]


def cross_validate(
    task: Task[Any, Any, Any], folds: Sequence[Fold], *, start: Start, config: Config, said: Callable[[str], None]
) -> CrossValidated:
    """`start` makes the model that is about to learn from some rows, as it is before the first step."""
    parts: list[Answers] = []
    model = start([])
    length: dict[str, object] = {}
    for number, fold in enumerate(folds, start=1):
        said(f"cross-validating: fold {number} of {len(folds)}")
        parts.append(train_fold(task, fold, model=start(fold.learned), config=config.replace(**length)))
        if number == 1:
            best = best_of({step: task.judged(some, fold.held, model=model) for step, some in parts[0].items()})
            last = min((step for step in parts[0] if step > best), default=best)
            length = {"steps": last, "epochs": None, "minutes": None, "patience": 0}
    held = [row for fold in folds for row in fold.held]
    together = {step: [answer for part in parts for answer in part[step]] for step in sorted(parts[-1])}
    judged = {step: task.judged(some, held, model=model) for step, some in together.items()}
    best = best_of(judged)
    share = sum(len(fold.learned) for fold in folds) / len(folds) / len(held)
    return CrossValidated(
        folds=len(folds),
        steps=round(best / share),
        scores=judged[best],
        curve={step: scores.values[scores.main] for step, scores in judged.items()},
        last_fit=task.fit_last(together[best], held, model=model),
        samples=tuple(map(partial(sample_of, task), held[:SAMPLES_ASKED], together[best])),
    )


def sample_of(task: Task[Any, Any, Any], row: Any, answer: msgspec.Struct) -> Sample:
    return Sample(readable(task.question(row)), str(answer), msgspec.Raw(msgspec.json.encode(answer)))


def best_of(judged: Mapping[int, Scores]) -> int:
    """The first step that no other beats."""
    return max(judged, key=lambda step: judged[step].values[judged[step].main] * (1 if judged[step].higher else -1))


def train_fold(task: Task[Any, Any, Any], fold: Fold, *, model: Model, config: Config) -> Answers:
    """The answers to the held-out rows before the first step and at every evaluation."""
    answers: list[list[Any]] = []
    steps: list[int] = []
    questions = [task.question(row) for row in fold.held]

    def evaluate(network: Network) -> Score:
        read = model.replace(network=network)
        answers.append(list(task.run(questions, model=read, **task.whole_answers(model))))
        scores = task.judged(answers[-1], fold.held, model=read)
        return Score(scores.main, scores.values[scores.main], higher=scores.higher)

    def watch(event: AnyEvent) -> None:
        if isinstance(event, Scored):
            steps.append(event.step)

    loop.train(
        model.network,
        objective=task.objective(model=model, config=config),
        examples=task.examples(fold.learned, model=model),
        config=config,
        evaluate=evaluate,
        watch=watch,
    )
    return dict(zip(steps, answers, strict=True))


# --- kept -----------------------------------------------------------------------------------------------------------


def write_validated(out: Path, found: CrossValidated) -> None:
    write_whole(out / VALIDATED, data=msgspec.json.encode(found))


def read_validated(out: Path) -> CrossValidated | None:
    place = out / VALIDATED
    if not place.is_file():
        return None
    try:
        return msgspec.json.decode(place.read_bytes(), type=CrossValidated)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TriformError(f"cannot read {place}: {error}; start a new run in another folder") from error
