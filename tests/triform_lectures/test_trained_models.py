"""Little models: made once, kept under a name that says all, made again when damaged."""

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from triform.cli import main
from triform.core.initial_weights import build_network
from triform.errors import TriformError
from triform.train import loop
from triform.train.batch_sampler import StepRows
from triform.train.run_config import Config
from triform.weights import model_folder as folders
from triform_lectures import demo, experiments, registry, trained_models
from triform_lectures.assets import DataMissing
from triform_lectures.experiments import masks, recall, recurrent, run_trial, unmasked
from triform_lectures.lesson import Evidence

SHORT = Config(seed=0, steps=2, batch_tokens=256, dropout=0.0)


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRIFORM_LECTURE", str(tmp_path))
    trained_models.load_little_model.cache_clear()
    yield
    trained_models.load_little_model.cache_clear()


def test_a_little_model_is_trained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = trained_models.load_little_model("decoder", config=SHORT)
    trained_models.load_little_model.cache_clear()
    monkeypatch.setattr(trained_models, "train", lambda *args, **settings: pytest.fail("trained again"))
    again = trained_models.load_little_model("decoder", config=SHORT)
    assert first.network.token.weight.equal(again.network.token.weight)
    assert again.tokenizer is not None


def test_a_damaged_one_is_made_again(tmp_path: Path) -> None:
    trained_models.load_little_model("decoder", config=SHORT)
    (place,) = (path for path in tmp_path.iterdir() if path.is_dir())
    (place / "config.json").write_text("{}")
    trained_models.load_little_model.cache_clear()
    assert trained_models.load_little_model("decoder", config=SHORT).spec.form == "decoder"


def test_a_model_that_cannot_prove_all_its_steps_is_trained_again(tmp_path: Path) -> None:
    """As one that an older version kept after half a training; nor one whose files cannot be verified."""
    whole = trained_models.load_little_model("decoder", config=SHORT)
    (place,) = (path for path in tmp_path.iterdir() if path.is_dir())
    for memo in ({}, {trained_models.STEPS_KEY: 1}):
        folders.write(place, model=replace(whole, network=build_network(whole.spec, seed=9), memo=memo))
        trained_models.load_little_model.cache_clear()
        again = trained_models.load_little_model("decoder", config=SHORT)
        assert again.network.token.weight.equal(whole.network.token.weight)
    folders.write(place, model=replace(whole, network=build_network(whole.spec, seed=9)))
    (place / "manifest.json").unlink()
    with pytest.raises(TriformError, match="manifest"):
        trained_models.read_model(place, steps=SHORT.steps)


def interrupt_first_step(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A signal comes while the first step is made."""
    step = loop.TrainingRun.step

    def interrupted(run: loop.TrainingRun, at: StepRows) -> None:
        step(run, at)
        signal.raise_signal(number)

    monkeypatch.setattr(loop.TrainingRun, "step", interrupted)


CALLERS = {
    "little": lambda: trained_models.load_little_model("decoder", config=SHORT),
    "trial": lambda: run_trial.run_trial(run_trial.build_fresh(run_trial.trial_spec()), config=SHORT),
    "experiment": lambda: experiments.run_experiment(experiments.find_experiment("heads")),
    "recall": lambda: recall.measure_recall(distances=(1,), steps=9),
    "race": lambda: experiments.run_experiment(experiments.find_experiment("rnn-world")),
    "unmasked": unmasked.compare_masks,
    "demo": lambda: demo.train_translator(demo.DemoSizes(40, 4, 2, 2, 2), loop.ignore_event),
}


@pytest.mark.parametrize("caller", CALLERS)
def test_a_stopped_training_is_no_result(caller: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_first_step(monkeypatch, signal.SIGINT)
    with pytest.raises(loop.Interrupted):
        CALLERS[caller]()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [["0.5"], ["--experiment", "heads"], ["--all"], ["--book", "book"]])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_training_ends_the_command(
    command: list[str], number: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_first_step(monkeypatch, number)
    monkeypatch.setattr(registry, "all_lessons", lambda: (registry.find_chapter("embeddings").lessons[1],))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["lecture", *command])
    assert stop.value.code == code
    assert not list(tmp_path.iterdir())


def test_sigterm_between_trainings_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def told_to_end() -> Evidence:
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("it went on")

    one = registry.find_lesson("2.5")
    monkeypatch.setattr(registry, "all_lessons", lambda: (msgspec.structs.replace(one, run=told_to_end),))
    with pytest.raises(SystemExit) as stop:
        main(["lecture", "--all"])
    assert stop.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_another_config_is_another_model() -> None:
    recipe = trained_models.decoder_recipe()
    assert recipe.name(SHORT) != recipe.name(SHORT.replace(steps=3))
    assert recipe.name(SHORT) != trained_models.translator_recipe().name(SHORT)


def test_findings_are_remembered_until_something_changes(tmp_path: Path) -> None:
    made = []

    def make() -> dict[str, int]:
        made.append(1)
        return {"found": len(made)}

    ask = {"make": make, "kind": dict[str, int]}
    assert trained_models.remember("x", "a", **ask) == trained_models.remember("x", "a", **ask) == {"found": 1}
    assert trained_models.remember("x", "b", **ask) == {"found": 2}
    (kept,) = (path for path in tmp_path.glob("x-*.json") if b'"found":1' in path.read_bytes())
    kept.write_text("[")
    assert trained_models.remember("x", "a", **ask) == {"found": 3}
    kept.write_bytes(kept.read_bytes().replace(b'"found":3', b'"found":4'))
    assert trained_models.remember("x", "a", **ask) == {"found": 4}, "made again: the changed file is not believed"
    kept.write_text('{"found": 5}')
    assert trained_models.remember("x", "a", **ask) == {"found": 5}, "made again: nothing proves that it was finished"
    assert len(made) == 5


def test_every_word_of_the_world_is_a_token() -> None:
    world = trained_models.load_world()
    text = "The fat ginger cat sat on a mat."
    assert len(world.tokenizer.encode(text, special=False).ids) == 9
    assert world.both_tokenizer.vocab > world.tokenizer.vocab


@pytest.mark.parametrize("name", ["sqrt-d", "mask-after", "positions-joined"])
def test_experiments_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps: not for the verdict, but every way of changing the network trains and is asked."""
    monkeypatch.setattr(run_trial.run_trial, "__kwdefaults__", {"config": SHORT, "setting": run_trial.no_intervention})
    monkeypatch.setattr(run_trial.unseen_examples, "__defaults__", (8,))
    monkeypatch.setattr(masks, "WRITTEN", 2)
    done = experiments.run_experiment(experiments.find_experiment(name))
    assert done.evidence.tables
    assert done.evidence.plots
    assert msgspec.json.decode(msgspec.json.encode(done.evidence), type=Evidence) == done.evidence


def test_recall_runs() -> None:
    found = recall.measure_recall(distances=(1, 2), steps=2)
    assert set(found) == {"RNN", "RNN with attention", "Transformer"}
    assert all(set(each.accuracy) == {1, 2} for each in found.values())


def test_the_three_translators_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps on the little world: judged on the way, as many parameters, compared at equal time."""
    monkeypatch.setattr(recurrent, "WORLD", SHORT.replace(eval_every=1))
    evidence = recurrent.rnn_world.run()
    assert [row[0] for row in evidence.tables[0].rows] == ["RNN", "RNN with attention", "Transformer"]
    assert all(len(each.points) == 2 for each in evidence.plots[0].curves)
    assert evidence.facts[0].holds, evidence.facts[0].found
    assert len(evidence.plots[2].rows) == len(evidence.plots[2].cells) == 11


@pytest.mark.slow
def test_multi30k_is_a_course_of_the_same_kind(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIFORM_SHARED", str(shared.parent))
    course = recurrent.multi30k_course()
    assert (len(course.training.lengths), len(course.unseen.lengths)) == (29_000, 1_000)
    sizes = [sum(p.numel() for p in network.parameters()) for network in recurrent.build_networks(course).values()]
    assert max(sizes) < 1.15 * min(sizes)


def test_without_multi30k_the_experiment_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIFORM_SHARED", str(tmp_path))
    with pytest.raises(DataMissing, match=r"data/multi30k is missing; set TRIFORM_SHARED .* rnn-world"):
        recurrent.rnn_multi30k.run()


def test_at_equal_time_is_the_best_by_then() -> None:
    learned = recurrent.TranslationRun(1, (1, 2, 3), (1.0, 2.0, 3.0), (5.0, 3.0, 4.0))
    assert [learned.best_loss_by(seconds) for seconds in (0.5, 1.5, 2.0, 9.0)] == [5.0, 5.0, 3.0, 3.0]
