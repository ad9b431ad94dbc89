"""From a data file to a finished model folder: the same weights however often it is interrupted, and nothing lost."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lock_holder import held_by_another
from tiny_tasks import QUESTIONS, begun

import triform
from triform import families
from triform.core.forms import Form
from triform.data.rows import LabelledRow
from triform.errors import TriformError
from triform.files import atomic_folder
from triform.files.errors import FileError
from triform.files.locks import FolderBusy, lock_inside
from triform.pipeline import memory_forecast, run_training, splits
from triform.pipeline.run_training import TrainingRequest, resolve_config
from triform.spec import SpecError
from triform.tasks import get_task
from triform.tasks.classify import ClassifyTask
from triform.tasks.task import Scores
from triform.text.train_tokenizer import train_tokenizer
from triform.train import prepare_network
from triform.train.examples import ExamplePlace, to_json_values
from triform.train.label_objectives import OneLabel
from triform.train.loop import Rehearsal
from triform.train.loss_guard import TrainingStopped
from triform.train.objectives import Loss
from triform.train.run_events import AnyEvent, Saved, Skipped, Stepped
from triform.weights import model_folder

SMALL = families.sized("bert", "tiny", vocab=90)
WORDS = {"good": ("fine", "lovely", "sunny"), "bad": ("sad", "poor", "rainy")}


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("TRIFORM_HOME", str(place))
    return place


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    lines = [
        f"the {thing} number {number} was {word},{label}"
        for number in range(5)
        for thing in ("cat", "house")
        for label, words in WORDS.items()
        for word in words
    ]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(lines) + "\n")
    return tmp_path / "rows.csv"


def release(prepared: Any) -> None:
    """Ends the lock on the run's folder."""
    with prepared.lock:
        pass


def wish(rows: Path, out: Path, **changes: Any) -> TrainingRequest:
    settings = ("eval_every=4", "save_every=3", "batch_tokens=128", "eval_rows=20", "vocab=90", "held_out=0.2")
    asked = TrainingRequest(
        task="classify", data=rows, out=out, size="tiny", settings=settings, length={"steps": 10, "epochs": None}
    )
    return asked._replace(**changes)


def save_known(folder: Path) -> None:
    """A pretrained encoder with a tokenizer, without a head."""
    triform.build(SMALL).replace(tokenizer=train_tokenizer(["a b"], kind="wordpiece", vocab=90)).save(folder)


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


class Killed(BaseException):
    """What no handler catches."""


# --- the folder -----------------------------------------------------------------------------------------------------


def test_a_data_file_becomes_a_model_folder(rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "run" / "model"
    finished = run_training.train(wish(rows, out))
    assert finished.outcome.step == 10
    assert {"config.json", "model.safetensors", "tokenizer.json", "manifest.json", "triform.json"} <= set(
        os.listdir(out)
    )
    assert {"checkpoints", "run.toml", "metrics.jsonl", "data.json", "samples.jsonl"} <= set(os.listdir(out))
    model = triform.load(out)
    assert (model.labels, model.memo["task"]) == (("bad", "good"), "classify")
    texts = ["the cat number 3 was fine", "a house"]
    before = [str(answer) for answer in ClassifyTask().run(texts, model=finished.model)]
    assert [str(answer) for answer in ClassifyTask().run(texts, model=model)] == before


def test_the_record_says_what_was_done(rows: Path, tmp_path: Path) -> None:
    rows.write_text(rows.read_text() + "\x00,good\n,bad\n")
    finished = run_training.train(wish(rows, tmp_path / "out", settings=(*wish(rows, rows).settings, "seed=7")))
    card = (tmp_path / "out" / "README.md").read_text()
    data = json.loads((tmp_path / "out" / "data.json").read_text())
    (digest,) = data["train"].values()
    assert digest in card
    for told in (
        "| accuracy |",
        "| seed | 7 |",
        "peak memory",
        "torch",
        "held out",
        "1 NUL",
        "1 blank",
        "10, the best",
    ):
        assert told in card, told
    assert finished.scores is not None
    assert f"| accuracy | {finished.scores.format_value('accuracy')} |" in card
    assert {problem["kind"]: problem["count"] for problem in data["lint"]["problems"]} == {"NUL": 1, "blank": 1}
    assert data["rows"] == {"train": 48, "valid": 12, "held_out": True}
    assert (tmp_path / "out" / "learning-curve.svg").read_text().count("<svg") == 3
    assert len((tmp_path / "out" / "samples.jsonl").read_text().splitlines()) == len(finished.samples) > 0


def test_the_config_is_accepted_back(rows: Path, tmp_path: Path) -> None:
    run_training.train(wish(rows, tmp_path / "one"))
    again = TrainingRequest(task="classify", data=rows, out=tmp_path / "two", config=tmp_path / "one" / "run.toml")
    run_training.train(again)
    assert weights(tmp_path / "one") == weights(tmp_path / "two")


# --- interrupted ----------------------------------------------------------------------------------------------------


def test_killed_and_resumed_it_is_the_same_model(rows: Path, tmp_path: Path) -> None:
    run_training.train(wish(rows, tmp_path / "whole"))

    def kill(event: AnyEvent) -> None:
        if isinstance(event, Saved) and event.step == 6:
            raise Killed

    with pytest.raises(Killed):
        run_training.train(wish(rows, tmp_path / "cut"), watch=kill)
    assert not (tmp_path / "cut" / "model.safetensors").exists()
    run_training.train(TrainingRequest(task="classify", data=rows, out=tmp_path / "cut", resume=True))
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


def test_a_signal_leaves_a_model_that_goes_on(rows: Path, tmp_path: Path) -> None:
    run_training.train(wish(rows, tmp_path / "whole"))

    def press(event: AnyEvent) -> None:
        if isinstance(event, Stepped) and event.step == 5:
            signal.raise_signal(signal.SIGINT)

    stopped = run_training.train(wish(rows, tmp_path / "cut"), watch=press)
    assert stopped.outcome.stopped
    assert stopped.outcome.step == 5
    assert triform.load(tmp_path / "cut").memo["task"] == "classify"
    gone_on = run_training.train(wish(rows, tmp_path / "cut", resume=True))
    assert not gone_on.outcome.stopped
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


def test_a_finished_run_resumed_is_the_same_again(rows: Path, tmp_path: Path) -> None:
    run_training.train(wish(rows, tmp_path / "out"))
    before = weights(tmp_path / "out")
    assert run_training.train(wish(rows, tmp_path / "out", resume=True)).outcome.step == 10
    assert weights(tmp_path / "out") == before


def faulty(function: Callable[..., Any], *, at: int) -> Callable[..., Any]:
    calls = iter(range(at))

    def sometimes(*args: Any, **kwargs: Any) -> Any:
        if next(calls, None) is None:
            raise Killed
        return function(*args, **kwargs)

    return sometimes


def state(out: Path) -> str:
    try:
        model_folder.read(out)
    except FileError as error:
        return "none" if "holds no config.json" in str(error) else str(error)
    return "whole"


def test_killed_while_it_moves_in_there_is_no_model_or_a_whole_one(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = run_training.train(wish(rows, tmp_path / "out")).model
    out, others = tmp_path / "out", {"run.toml", "metrics.jsonl", "checkpoints", "README.md"}
    torch.nn.init.constant_(model.network.token.weight, 0.5)
    outcomes = set()
    for name in ("replace", "fsync", "open"):
        for at in range(40):
            with monkeypatch.context() as patch:
                patch.setattr(atomic_folder.os, name, faulty(getattr(os, name), at=at))
                try:
                    model_folder.write_into_run(out, model=model)
                except Killed:
                    pass
                else:
                    break
            outcomes.add(state(out))
            assert others <= set(os.listdir(out))
    (out / ".moving-in.dead").mkdir()
    model_folder.write_into_run(out, model=model)
    assert not list(out.glob(".moving-in.*"))
    assert bool((model_folder.read(out).network.token.weight == 0.5).all())
    assert outcomes == {"whole", "none"}


# --- what a run begins with -----------------------------------------------------------------------------------------


def test_from_a_model_keeps_its_body_and_makes_a_new_head(rows: Path, tmp_path: Path) -> None:
    run_training.train(wish(rows, tmp_path / "first"))
    known = triform.load(tmp_path / "first")
    other = tmp_path / "other.csv"
    other.write_text(rows.read_text().replace("good", "fair").replace("bad", "foul"))
    from_first = {"size": None, "base": str(tmp_path / "first"), "settings": ("batch_tokens=128", "eval_rows=20")}
    again = run_training.prepare(wish(other, tmp_path / "second", **from_first))
    new, old = again.model.network.state_dict(), known.network.state_dict()
    assert again.model.labels == ("fair", "foul")
    assert all(torch.equal(new[path], old[path]) for path in old if not path.startswith("readout."))
    assert not torch.equal(new["readout.out.weight"], old["readout.out.weight"])
    same = run_training.prepare(wish(rows, tmp_path / "third", **from_first))
    assert torch.equal(same.model.network.state_dict()["readout.out.weight"], old["readout.out.weight"])
    assert same.config.learning_rate == ClassifyTask().recipe("encoder", fresh=False).learning_rate


def test_the_recipe_is_of_the_form_that_a_run_begins_with(tmp_path: Path) -> None:
    task = get_task("answer")
    model_folder.write(tmp_path / "decoder", model=begun(task, QUESTIONS, form="decoder"))
    asked = TrainingRequest(task="answer", data="rows.json", out=tmp_path / "out", base=str(tmp_path / "decoder"))
    recipe = task.recipe("decoder", fresh=False)
    assert recipe != task.recipe("encoder", fresh=False)
    assert resolve_config(asked, task) == recipe.replace(task="answer", base=asked.base)
    with pytest.raises(TriformError, match="has the form 'decoder'; to tag, start from one of the form 'encoder'"):
        resolve_config(asked._replace(task="tag"), get_task("tag"))


@pytest.mark.parametrize("key", ["family=gpt2", "width=8", "layers=1", "heads=2", "context=9", "vocab=9", "size=tiny"])
def test_what_is_asked_of_a_new_model_is_refused_of_a_known_one(key: str, rows: Path, tmp_path: Path) -> None:
    asked = TrainingRequest(task="classify", data=rows, out=tmp_path / "out", base="first", settings=(key,))
    with pytest.raises(TriformError, match=f"^{key}: --from first brings its own; leave that out$"):
        resolve_config(asked, ClassifyTask())


def test_settings_lie_over_the_recipe(rows: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("learning_rate = 0.5\nschedule = 'constant'\nlayers = 1\n")
    asked = TrainingRequest(
        task="classify", data=rows, out=tmp_path / "x", config=file, settings=("learning_rate=0.25",)
    )
    config = resolve_config(asked, ClassifyTask())
    recipe = ClassifyTask().recipe("encoder", fresh=True)
    assert (config.learning_rate, config.schedule, config.layers) == (0.25, "constant", 1)
    assert (config.warmup, config.epochs, config.family, config.task) == (0.1, recipe.epochs, "bert", "classify")
    shorter = resolve_config(asked._replace(length={"steps": 3, "epochs": None, "minutes": None}), ClassifyTask())
    assert (shorter.steps, shorter.epochs) == (3, None)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("freeze=*", "all weights are frozen"),
        ("freeze=readout.out.nothing", "unknown path of weights to freeze"),
        ("lora=encoder.nothing", "unknown path of a linear layer"),
        ("precision=bfloat16", "the cpu of this machine does not support it"),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_settings_are_refused_before_the_data_is_read(
    setting: str, says: str, known: bool, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare_network, "has_bfloat16", lambda device: False)
    monkeypatch.setattr(run_training, "collect_rows", lambda *_, **__: pytest.fail("the data was read"))
    asked = TrainingRequest(task="classify", data=rows, out=tmp_path / "out", settings=(setting,))
    if known:
        triform.build(SMALL).replace(tokenizer=train_tokenizer(["a b"], kind="wordpiece", vocab=90)).save(
            tmp_path / "known"
        )
        asked = asked._replace(base=str(tmp_path / "known"))
    with pytest.raises(TriformError, match=says):
        run_training.prepare(asked)


def test_a_new_head_alone_may_be_trained(rows: Path, tmp_path: Path) -> None:
    """The paths of the new head are known before its labels are."""
    base = tmp_path / "known"
    save_known(base)
    frozen = ("freeze=token.weight,encoder.*", "batch_tokens=128", "held_out=0.2")
    asked = TrainingRequest(task="classify", data=rows, out=tmp_path / "out", base=str(base), settings=frozen)
    prepared = run_training.prepare(asked._replace(length={"steps": 1}))
    with prepared.lock:
        run = run_training.begin_run(prepared)
    assert all(path.startswith("readout.") for path in run.optimizer.named)


def test_sizes_that_no_model_has_and_a_missing_base_are_refused_before_the_data_is_read(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_training, "collect_rows", lambda *_, **__: pytest.fail("the data was read"))
    asked = TrainingRequest(task="classify", data=rows, out=tmp_path / "out")
    with pytest.raises(SpecError, match="heads"):
        run_training.prepare(asked._replace(settings=("width=30", "heads=4")))
    triform.build(SMALL).save(tmp_path / "wordless")
    with pytest.raises(TriformError, match="has no tokenizer"):
        run_training.prepare(asked._replace(base=str(tmp_path / "wordless")))


def test_missing_validation_files_are_named_before_the_data_is_read(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "lint_data", lambda *_, **__: pytest.fail("the data was read"))
    with pytest.raises(TriformError, match=r"there is no file .*row\.csv; did you mean rows\.csv"):
        run_training.prepare(wish(rows, tmp_path / "out", valid=rows.with_name("row.csv")))


def test_another_config_is_refused_before_the_data_is_read(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    length = {"steps": 1, "epochs": None}
    run_training.train(wish(rows, tmp_path / "out", length=length))
    monkeypatch.setattr(run_training, "collect_rows", lambda *_, **__: pytest.fail("the data was read"))
    for setting, says in (("ema=0.5", "ema was 0.0, is 0.5"), ("seed=3", "seed was 0, is 3")):
        asked = wish(rows, tmp_path / "out", resume=True, settings=(setting,), size=None, length=length)
        with pytest.raises(TriformError, match=f"cannot be resumed: {says}"):
            run_training.prepare(asked)


# --- one writer -----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_second_run_in_the_folder_is_refused_before_its_data_is_read(rows: Path, tmp_path: Path) -> None:
    steps: list[str] = []
    with (
        held_by_another(lambda: lock_inside(tmp_path / "out")) as child,
        pytest.raises(FolderBusy, match=f"out is being written by process {child}"),
    ):
        run_training.prepare(wish(rows, tmp_path / "out"), progress=steps.append)
    assert steps == []
    release(run_training.prepare(wish(rows, tmp_path / "out")))  # a killed one is in nobody's way
    assert os.listdir(tmp_path / "out") == []


# --- memory ---------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_said_and_fitted(rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_forecast, "resident_bytes", lambda: 0)
    whole = run_training.prepare(wish(rows, tmp_path / "out"))
    release(whole)
    smaller = memory_forecast.forecast(whole.model.spec, whole.examples, config=whole.config.replace(accumulate=8))
    between = int((whole.forecast.memory + smaller.memory) / 2 / memory_forecast.USABLE_SHARE)
    monkeypatch.setattr(memory_forecast, "free_bytes", lambda: between)
    with pytest.raises(TriformError, match=r"--fit, or --set accumulate=\d"):
        run_training.prepare(wish(rows, tmp_path / "out"))
    fitted = run_training.prepare(wish(rows, tmp_path / "out", fit=True))
    release(fitted)
    assert fitted.config.accumulate > 1
    assert fitted.forecast.fits
    monkeypatch.setattr(memory_forecast, "free_bytes", lambda: 1)
    with pytest.raises(TriformError, match="even with one row per pass"):
        run_training.prepare(wish(rows, tmp_path / "out", fit=True))
    assert not (tmp_path / "out").exists()


def test_a_step_that_cannot_be_divided_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_forecast, "resident_bytes", lambda: 0)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("source\ttarget\n" + "".join(f"who is {n}?\tthe {n}th is here\n" for n in range(20)))
    asked = TrainingRequest(task="search", data=pairs, out=tmp_path / "out", size="tiny", settings=("vocab=60",))
    release(run_training.prepare(asked))
    with pytest.raises(TriformError, match="accumulate=2: InBatchNegatives compares the examples of a pass"):
        run_training.prepare(asked._replace(settings=("vocab=60", "accumulate=2")))
    monkeypatch.setattr(memory_forecast, "free_bytes", lambda: 1)
    with pytest.raises(TriformError, match=r"accumulation would change the loss; use --set batch_tokens=… below 4096"):
        run_training.prepare(asked._replace(fit=True))
    assert not (tmp_path / "out").exists()


# --- what is strange is named ---------------------------------------------------------------------------------------


class Lost(OneLabel):
    """A loss that is no number."""

    def loss(self, network: Form, batch: Any) -> Loss:
        found = super().loss(network, batch)
        return Loss(found.total * float("nan"), found.targets)


def test_a_run_that_stops_names_lines_of_the_file(rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are held out and blank ones skipped, so the number of an example is not that of its line."""
    rows.write_text(rows.read_text().replace("text,label\n", "text,label\n,good\n"))
    monkeypatch.setattr(ClassifyTask, "objective", lambda self, *, model, config: Lost())
    skipped: list[Skipped] = []
    settings = (*wish(rows, rows).settings, "batch_tokens=16", "skips=2")
    with pytest.raises(TrainingStopped) as stop:
        run_training.train(
            wish(rows, tmp_path / "out", settings=settings),
            watch=lambda event: skipped.append(event) if isinstance(event, Skipped) else None,
        )
    prepared = run_training.prepare(wish(rows, tmp_path / "other", settings=settings))
    lines = rows.read_text().splitlines()
    for event in skipped:
        assert all(place.startswith(f"{rows}:") for place in event.places)
        named = [lines[int(place.rpartition(":")[2]) - 1].split(",") for place in event.places]
        told = ClassifyTask().examples([LabelledRow(text, (label,)) for text, label in named], model=prepared.model)
        for number, row in enumerate(event.rows):
            assert to_json_values(told.at(ExamplePlace(0, 0, number))) == to_json_values(
                prepared.examples.at(ExamplePlace(0, 0, row))
            )
    assert str(stop.value).startswith("2 unusable steps in a row; at step 2 the loss is nan (")
    assert f"({', '.join(skipped[-1].places)})" in str(stop.value)


def test_the_heap_is_tidied_between_the_passes_of_an_evaluation(rows: Path, tmp_path: Path) -> None:
    prepared = run_training.prepare(wish(rows, tmp_path / "out"))
    run = run_training.begin_run(prepared)
    run.rehearsal = Rehearsal(seconds=1.0, memory=1, resting=1)
    tidied: list[int] = []
    run.heap.trim_free = lambda *, above=0, **_: tidied.append(above)
    run_training.make_evaluation(prepared, run_training.sample_validation(prepared), run)(run.network)
    assert tidied
    assert set(tidied) == {1}


def test_a_score_that_is_no_number_does_not_end_a_finished_run(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = Scores(main="accuracy", values={"accuracy": float("nan")}, rows=1)
    monkeypatch.setattr(ClassifyTask, "evaluate", lambda self, rows, *, model: nothing)
    finished = run_training.train(wish(rows, tmp_path / "out"))
    assert (finished.outcome.step, finished.outcome.best) == (10, None)
    assert "| accuracy | nan |" in (tmp_path / "out" / "README.md").read_text()
    assert (tmp_path / "out" / "learning-curve.svg").exists()


def test_a_draft_of_a_run_that_was_killed_is_no_run(rows: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".run.toml.123").write_text("task")
    assert run_training.train(wish(rows, tmp_path / "out")).outcome.step == 10
