"""A classifier on a known model begins with a linear fit, and ends no worse: chosen by rows it has not learned from."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_tasks import base, tokenizer
from torch.nn import functional as F

from triform.core.initial_weights import build_network
from triform.data.rows import LabelledRow
from triform.model import Model
from triform.pipeline import cross_validation, run_training
from triform.pipeline.report import Finished
from triform.pipeline.run_training import TrainingRequest
from triform.spec import NoHead, Tag, replace
from triform.tasks import initial_head
from triform.tasks.averaging_block import add_averaging_block, can_average
from triform.tasks.classify import ClassifyTask, read_texts
from triform.tasks.encoder_batches import average_windows, split_into_windows
from triform.train.objectives import batch_texts, mean_vectors
from triform.weights import model_folder

WORDS = {"good": ("loves", "goes"), "bad": ("hates", "went"), "ugly": ("Where", "did")}
ROWS = [
    LabelledRow(f"{name} {word} {place} {number}.", (label,))
    for number in range(3)
    for name in ("Jack", "Rose")
    for place in ("Rome", "Paris")
    for label, words in WORDS.items()
    for word in words
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path / "home"))


def known(form: str = "encoder") -> Model:
    spec = base(form)
    spec = replace(spec, head=NoHead()) if form == "encoder" else spec
    return Model(spec=spec, network=build_network(spec, seed=1), tokenizer=tokenizer(form))


@pytest.fixture
def known_folder(tmp_path: Path) -> Path:
    model_folder.write(tmp_path / "known", model=known())
    return tmp_path / "known"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return written(tmp_path / "rows.csv", ROWS)


def written(path: Path, rows: list[LabelledRow]) -> Path:
    path.write_text("text,label\n" + "".join(f"{row.text},{row.labels[0]}\n" for row in rows))
    return path


def wish(data: Path, base: Path, out: Path, *settings: str, **changes: Any) -> TrainingRequest:
    usual = ("batch_tokens=256", "eval_every=2", "steps=4", "learning_rate=1e-3", "folds=3")
    return TrainingRequest(task="classify", data=data, out=out, base=str(base), settings=(*usual, *settings), **changes)


# --- the block that averages ----------------------------------------------------------------------------------------


def test_the_block_gives_the_first_token_the_mean_of_all() -> None:
    model = known()
    model = model.replace(network=model.network.double())
    more = add_averaging_block(model, seed=0)
    text = batch_texts([[2, 9, 11, 40, 3]], device=torch.device("cpu"))
    with torch.no_grad():
        hidden, read = model.network.hidden(text)[0], more.network.hidden(text)[0, 0]
    mean = F.layer_norm(hidden.mean(0), hidden.shape[-1:])
    assert more.spec.encoder is not None
    assert more.spec.encoder.layers == 3
    assert float(F.cosine_similarity(read, mean, dim=0)) > 0.999
    assert float(F.cosine_similarity(F.layer_norm(hidden[0], hidden.shape[-1:]), mean, dim=0)) < 0.99


def test_only_blocks_that_can_average_are_added() -> None:
    assert can_average(known().spec)
    assert not can_average(base("decoder"))
    assert not can_average(base("encoder-decoder"))
    spec = known().spec
    assert spec.encoder is not None
    assert not can_average(replace(spec, encoder=replace(spec.encoder, norm_at="pre", final_norm=True)))


# --- the start ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["encoder", "decoder"])
def test_before_the_first_step_the_model_is_the_linear_fit(form: str, tmp_path: Path, data: Path) -> None:
    model_folder.write(tmp_path / "known", model=known(form))
    prepared = run_training.prepare(wish(data, tmp_path / "known", tmp_path / "out", "folds=0"))
    texts = [row.text for row in ROWS]
    vectors = initial_head.read_vectors(texts, model=prepared.model)
    out = prepared.model.network.state_dict()
    scores = vectors @ out["readout.out.weight"].double().T + out.get("readout.out.bias", torch.zeros(1)).double()
    torch.testing.assert_close(read_texts(texts, model=prepared.model)[0], scores, atol=1e-4, rtol=1e-4)
    learned = list(prepared.material.train)
    assert ClassifyTask().evaluate(learned, model=prepared.model).values["accuracy"] > 90


def test_a_model_that_classifies_keeps_the_vectors_it_has_learned(
    tmp_path: Path, data: Path, known_folder: Path
) -> None:
    first = run_training.train(wish(data, known_folder, tmp_path / "first"))
    other = written(tmp_path / "other.csv", [LabelledRow(row.text, (f"not {row.labels[0]}",)) for row in ROWS])
    prepared = run_training.prepare(wish(other, tmp_path / "first", tmp_path / "second", "folds=0"))
    old, new = first.model.network.state_dict(), prepared.model.network.state_dict()
    assert prepared.model.spec.encoder == first.model.spec.encoder  # no second block
    assert all(torch.equal(new[path], old[path]) for path in old if not path.startswith("readout.out."))
    assert ClassifyTask().evaluate(list(prepared.material.train), model=prepared.model).values["accuracy"] > 90


def test_frozen_vectors_are_the_means_of_the_base() -> None:
    texts = [row.text for row in ROWS[:5]]
    found = initial_head.read_frozen_vectors(texts, base=known())
    means = average_windows(
        split_into_windows(texts, model=known()),
        model=known(),
        read=lambda network, text: mean_vectors(text, network.hidden(text)),
    )
    torch.testing.assert_close(found, F.normalize(means, dim=-1).double())
    assert initial_head.read_frozen_vectors(texts, base=known("decoder")).shape == (5, 16)


# --- the best of start and steps ------------------------------------------------------------------------------------


def test_few_rows_are_all_learned_and_judged_in_turn(tmp_path: Path, data: Path, known_folder: Path) -> None:
    done = run_training.train(wish(data, known_folder, tmp_path / "out"))
    assert done.folds == 3
    assert len(done.material.train) == len(ROWS)
    assert done.scores is not None
    assert done.scores.rows == len(ROWS)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| 3-fold cross-validation | |" in card
    assert "calibration" in card
    assert "linear fit on frozen vectors" in done.baselines
    assert "bag of words" in done.baselines
    kept = json.loads((tmp_path / "out" / cross_validation.VALIDATION_FILE).read_text())
    assert kept["steps"] == done.config.steps
    assert max(kept["curve"].values()) == done.scores.values["accuracy"]


@pytest.mark.parametrize("valid", [False, True])
def test_steps_that_spoil_the_start_are_not_kept(valid: bool, tmp_path: Path, data: Path, known_folder: Path) -> None:
    asked = wish(data, known_folder, tmp_path / "out", "learning_rate=50", valid=data if valid else None)
    start = run_training.prepare(asked).model
    done = run_training.train(asked)
    texts = [row.text for row in ROWS]
    assert (done.outcome.best_step if valid else done.outcome.step) == 0
    answers = (ClassifyTask().run(texts, model=model) for model in (start, done.model))
    assert [one.labels for one in next(answers)] == [one.labels for one in next(answers)]


def test_a_length_that_is_asked_for_is_kept(tmp_path: Path, data: Path, known_folder: Path) -> None:
    asked = TrainingRequest(task="classify", data=data, out=tmp_path / "out", base=str(known_folder))
    few = run_training.resolve_config(asked, ClassifyTask(), rows=100)
    many = run_training.resolve_config(asked, ClassifyTask(), rows=5000)
    mine = run_training.resolve_config(
        asked._replace(length={"steps": None, "epochs": 3, "minutes": None}), ClassifyTask(), rows=100
    )
    assert few.folds == 3
    assert few.patience
    assert (many.folds, many.epochs, many.held_out) == (0, 4, 0.05)
    assert (mine.folds, mine.epochs, mine.steps, mine.held_out) == (0, 3, None, 0.2)
    assert run_training.resolve_config(asked, ClassifyTask(), rows=2000).held_out == 0.1  # 200 rows


def test_a_signal_while_folds_are_trained_ends_it_and_keeps_nothing(
    tmp_path: Path, data: Path, known_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = ClassifyTask.judge_answers

    def interrupted(self: ClassifyTask, *args: Any, **named: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return judged(self, *args, **named)

    monkeypatch.setattr(ClassifyTask, "judge_answers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_training.train(wish(data, known_folder, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_run_that_goes_on_knows_what_was_chosen(tmp_path: Path, data: Path, known_folder: Path) -> None:
    asked = wish(data, known_folder, tmp_path / "out")
    prepared = run_training.prepare(asked)
    run_training.begin_run(prepared)  # and killed before the first step
    again = run_training.prepare(asked._replace(resume=True, settings=()))
    assert again.validated == prepared.validated
    assert again.config == prepared.config


def test_other_software_gives_the_same_probabilities(tmp_path: Path, data: Path, known_folder: Path) -> None:
    """The block that averages, the fit and the temperature are all in the weights of an ordinary BERT."""
    transformers = pytest.importorskip("transformers")
    done = run_training.train(wish(data, known_folder, tmp_path / "out", "folds=0"))
    ClassifyTask().with_last_fit(done.model, {"temperature": 2.5, "why": "planted"})
    model_folder.write(tmp_path / "there", model=done.model)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "there").eval()
    assert type(theirs).__name__ == "BertForSequenceClassification"
    for text in ("Jack loves Rome 1.", "Rose went to Paris."):
        (answer,) = ClassifyTask().run([text], model=done.model, options=ClassifyTask().options(top=3))
        with torch.no_grad():
            chances = theirs(torch.tensor(done.model.require_tokenizer().ids_many([text]))).logits.softmax(-1)[0]
        expected = {theirs.config.id2label[at]: float(chance) for at, chance in enumerate(chances)}
        assert {each.label: each.probability for each in answer.chances} == pytest.approx(expected, abs=1e-5)


# --- what is said of it ---------------------------------------------------------------------------------------------


def test_a_baseline_that_wins_is_said_with_what_to_do(tmp_path: Path, data: Path, known_folder: Path) -> None:
    done = run_training.train(wish(data, known_folder, tmp_path / "out"))
    assert done.scores is not None
    lost: Finished = done._replace(baselines={"bag of words": 200.0, "majority class": 1.0})
    assert lost.best_baseline == ("bag of words", 200.0)
    assert lost.advice.startswith("bag of words is better on the same rows (accuracy 200.00 against ")
    assert "--epochs" in lost.advice
    assert done._replace(baselines={"bag of words": done.scores.values["accuracy"]}).advice == ""
    assert done._replace(baselines={}).best_baseline is None


def test_tags_are_not_a_linear_fit_of_texts() -> None:
    """A head that tags is left as it is: only classifying begins with a fit."""
    from triform.tasks import get_task

    spec = replace(known().spec, head=Tag(labels=3))
    model = known().replace(spec=spec, network=build_network(spec, seed=2), labels=("O", "B-x", "I-x"))
    before = {path: numbers.clone() for path, numbers in model.network.state_dict().items()}
    same = get_task("tag").prepare_head(model, base=known(), seed=0)
    get_task("tag").fit_head([], model=same)
    assert all(torch.equal(before[path], numbers) for path, numbers in same.network.state_dict().items())


@pytest.mark.parametrize(
    "rows",
    [
        [LabelledRow(row.text, ("only",)) for row in ROWS[:6]],
        ROWS[:2],
        [*ROWS[:9], LabelledRow("Rose went home.", ("single",))],
    ],
    ids=["one class", "two rows", "a class of one row"],
)
def test_data_with_little_to_say_is_learned_too(rows: list[LabelledRow], tmp_path: Path, known_folder: Path) -> None:
    done = run_training.train(wish(written(tmp_path / "few.csv", rows), known_folder, tmp_path / "out"))
    assert done.scores is not None
    assert done.scores.rows == len(rows)
    assert str(done.model.memo["calibration"]).startswith("none: ")


def test_several_labels_begin_with_a_fit_too(tmp_path: Path, known_folder: Path) -> None:
    labels = [[*row.labels, "Rome"] if "Rome" in row.text else list(row.labels) for row in ROWS]
    lines = [json.dumps({"text": row.text, "labels": each}) for row, each in zip(ROWS, labels, strict=True)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    done = run_training.train(wish(tmp_path / "rows.jsonl", known_folder, tmp_path / "out"))
    assert done.model.memo["several"]
    assert done.scores is not None
    assert done.scores.values["accuracy"] > 50
