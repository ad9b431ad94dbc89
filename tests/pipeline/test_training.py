"""Training in Python is the command's training: the same weights from a file, a list of dicts and a frame."""

import inspect
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import triform
from triform.cli import main
from triform.errors import TriformError
from triform.tasks import get_task
from triform.tasks.classify import weigh_classes
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, Evaluated, Stepped

ROWS = [
    {"text": f"the {thing} number {number} was {word}", "label": label}
    for number in range(5)
    for thing in ("cat", "house")
    for word, label in (("fine", "good"), ("lovely", "good"), ("sad", "bad"), ("poor", "bad"))
]
SETTINGS = {"eval_every": 3, "batch_tokens": 128, "eval_rows": 10, "vocab": 60, "held_out": 0.2}


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path_factory.mktemp("home")))


def train(rows: Any, out: Path, **changes: Any) -> Any:
    asked: dict[str, Any] = {"size": "tiny", "steps": 4, "settings": SETTINGS}
    return triform.train("classify", rows, out=out, **{**asked, **changes})


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def test_a_file_a_list_and_the_command_give_the_same_model(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    of_list = train(ROWS, tmp_path / "list")
    train(str(path), tmp_path / "file")
    asked = ("--size", "tiny", "--steps", "4")
    settings = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
    with pytest.raises(SystemExit) as stop:
        main(["train", "classify", str(path), "--out", str(tmp_path / "command"), *asked, *settings])
    assert not stop.value.code
    assert weights(tmp_path / "list") == weights(tmp_path / "file") == weights(tmp_path / "command")
    assert of_list.model.classify("the cat was fine").labels[0] in ("good", "bad")
    about = json.loads((tmp_path / "list" / "data.json").read_text())
    assert list(about["train"]) == ["rows given in Python"]


def test_the_report_has_scores_and_baselines(tmp_path: Path) -> None:
    events: list[AnyEvent] = []
    done = train(ROWS, tmp_path / "model", watch=events.append)
    assert events == done.events
    assert [event.step for event in events if isinstance(event, Stepped)] == [1, 2, 3, 4]
    report = done.report
    assert report.task == "classify"
    assert 0 <= report.scores.values["accuracy"] <= 100
    assert {"majority class", "bag of words"} <= {*report.baselines}
    assert f"accuracy {report.scores.format_value('accuracy')}" in repr(report)
    assert repr(done).startswith("Training(4 steps, Report(classify, 8 rows: accuracy ")
    assert report.to_dict()["scores"]["values"] == report.scores.values


def test_events_are_iterated_while_it_trains(tmp_path: Path) -> None:
    running = train(ROWS, tmp_path / "model", wait=False)
    assert not (tmp_path / "model" / "model.safetensors").exists()
    events = list(running)
    assert any(isinstance(event, Evaluated) for event in events)
    assert events == running.events == list(running)
    train(ROWS, tmp_path / "other")
    assert weights(tmp_path / "model") == weights(tmp_path / "other")


def test_leaving_the_loop_stops_it_and_it_can_be_resumed(tmp_path: Path) -> None:
    whole = train(ROWS, tmp_path / "whole")
    running = train(ROWS, tmp_path / "part", wait=False)
    for event in running:
        if isinstance(event, Stepped) and event.step == 2:
            running.stop()
    assert running.stopped
    assert running.model.classify("the cat was fine").labels
    triform.train("classify", ROWS, out=tmp_path / "part", resume=True)
    assert weights(tmp_path / "part") == weights(whole.out)


def test_ctrl_c_leaves_a_usable_folder(tmp_path: Path) -> None:
    def watch(event: AnyEvent) -> None:
        if isinstance(event, Stepped) and event.step == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(ROWS, tmp_path / "model", watch=watch)
    assert triform.load(tmp_path / "model").classify("the cat was fine").labels
    assert train(ROWS, tmp_path / "model", size=None, resume=True).report.scores.rows


def test_an_error_while_iterating_is_the_caller_s(tmp_path: Path) -> None:
    def watch(event: AnyEvent) -> None:
        raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        list(train(ROWS, tmp_path / "model", wait=False, watch=watch))


def test_bad_rows_are_one_line_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(TriformError, match=r"none of them labels; name it: columns=\{'labels': 'lable'\}"):
        train([{"text": "a", "lable": "b"}], tmp_path / "model")
    with pytest.raises(TriformError, match="learning_rate=fast is not valid"):
        train(ROWS, tmp_path / "model", settings={"learning_rate": "fast"})
    assert not (tmp_path / "model").exists()


def test_a_frame_with_other_names(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS).rename(columns={"text": "subject", "label": "queue"})
    done = train(frame, tmp_path / "frame", columns={"text": "subject", "labels": "queue"})
    train(ROWS, tmp_path / "list")
    assert weights(tmp_path / "frame") == weights(tmp_path / "list")
    assert list(done.to_pandas().query("event == 'stepped'")["step"]) == [1, 2, 3, 4]


def test_the_room_is_callable_and_stays_a_room() -> None:
    import triform.train.loop

    assert callable(triform.train)
    assert inspect.signature(triform.train) == inspect.signature(triform.train.__wrapped__)
    assert "base" in inspect.signature(triform.train).parameters
    assert triform.train.loop.Interrupted is not None


def test_answers_become_values_arrays_and_frames(tmp_path: Path) -> None:
    model = train(ROWS, tmp_path / "model").model
    one, several = model.classify("the cat was fine"), model.classify(["the cat was fine", "the house was sad"])
    assert np.asarray(one).sum() == pytest.approx(1)
    assert several.to_dict()[0]["labels"] == one.to_dict()["labels"] == one.labels
    assert isinstance(several[0], type(one))
    pandas = pytest.importorskip("pandas")
    frame = several.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["label"]) == ["; ".join(answer.labels) for answer in several]


def test_what_was_chosen_is_told_in_three_lines(tmp_path: Path) -> None:
    rows = [*ROWS, {"text": "a dog barked", "label": "rare"}]
    choices = train(rows, tmp_path / "model", wait=False, settings={**SETTINGS, "patience": 2}).choices
    assert "3 classes, 'good' with 49% the largest, 'rare' with 1 the smallest: uneven" in choices.data
    assert choices.recipe.startswith(
        "a new model (bert, tiny), so it learns fast: learning rate 0.001 (linear), at most 4 steps"
    )
    assert "stops after 2 evaluations (one every 3 steps)" in choices.recipe
    assert choices.judged == "by 8 rows (20%) that are held out and not learned; the best evaluation is kept"
    folds = train(ROWS, tmp_path / "folds", wait=False, folds=2).choices
    assert folds.judged.startswith("in 2 folds")
    assert "the best number in the folds" in folds.recipe


def test_rare_classes_count_more(tmp_path: Path) -> None:
    """Weighed by hand: with balance 1 both classes have half of the weight."""
    rows = [{"text": f"the cat {at} was {word}", "label": word} for at in range(9) for word in ("good", "good", "bad")]
    task = get_task("classify")
    running = train(rows, tmp_path / "model", wait=False, settings={**SETTINGS, "balance": 1.0, "held_out": 0})
    assert running._prepared.objective.weights == pytest.approx([27 / 2 / 9, 27 / 2 / 18])
    weights = weigh_classes(running._prepared.model, balance=0.5)
    assert weights is not None
    assert weights[0] / weights[1] == pytest.approx(2**0.5)
    assert task.objective(model=running._prepared.model, config=Config()).weights is None
