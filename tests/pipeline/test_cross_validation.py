"""Cross-validation of every kind of task: each row is judged by a model that has not seen it."""

from pathlib import Path
from typing import Any

import pytest
from tiny_tasks import SCORED, TAGGED, begun

import triform
from triform.pipeline import cross_validation
from triform.pipeline.cross_validation import split_folds
from triform.pipeline.run_training import ignore_message
from triform.tasks import get_task
from triform.train.run_config import Config

CONFIG = Config(steps=4, batch_tokens=200, eval_every=2, learning_rate=1e-3, schedule="linear")


@pytest.mark.parametrize(("name", "rows"), [("tag", TAGGED), ("embed", SCORED)])
def test_folds_are_judged_together(name: str, rows: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    task, seen = get_task(name), list[tuple[set[Any], set[Any]]]()
    whole = cross_validation._train_fold

    def watch(task: Any, fold: Any, **options: Any) -> Any:
        seen.append((set(fold.train), set(fold.valid)))
        return whole(task, fold, **options)

    monkeypatch.setattr(cross_validation, "_train_fold", watch)
    folds = split_folds(rows, folds=3)
    found = cross_validation.cross_validate(
        task, folds, start=lambda some: begun(task, rows), config=CONFIG, progress=ignore_message
    )
    assert len(seen) == 3
    assert all(not train & valid for train, valid in seen)
    assert set.union(*(valid for _, valid in seen)) == set(rows)
    assert found.scores.rows == len(rows)
    assert list(found.curve) == [2, 4]
    assert found.curve[4] == pytest.approx(found.scores.values[found.scores.main]) or found.steps == 3
    assert bool(found.samples) == task.scores_answers


def test_folds_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path / "home"))
    rows = [{"text": f"the cat {number} was {word}", "label": word} for number in range(10) for word in ("good", "bad")]
    settings = {"batch_tokens": 128, "vocab": 60, "eval_every": 2}
    done = triform.train("classify", rows, out=tmp_path / "model", size="tiny", steps=2, folds=2, settings=settings)
    assert done.report.scores.rows == 20
    assert (tmp_path / "model" / cross_validation.VALIDATION_FILE).is_file()
