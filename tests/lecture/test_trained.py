"""Little models: made once, kept under a name that says all, made again when damaged."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from triform.lecture import experiments, trained
from triform.lecture.experiments import masks, recall, recurrent, trial
from triform.lecture.lesson import Evidence
from triform.lecture.real import DataAbsent
from triform.train.config import Config

SHORT = Config(seed=0, steps=2, batch_tokens=256, dropout=0.0)


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRIFORM_LECTURE", str(tmp_path))
    trained.little.cache_clear()
    yield
    trained.little.cache_clear()


def test_a_little_model_is_trained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = trained.little("decoder", config=SHORT)
    trained.little.cache_clear()
    monkeypatch.setattr(trained, "train", lambda *args, **settings: pytest.fail("trained again"))
    again = trained.little("decoder", config=SHORT)
    assert first.network.token.weight.equal(again.network.token.weight)
    assert again.tokenizer is not None


def test_a_damaged_one_is_made_again(tmp_path: Path) -> None:
    trained.little("decoder", config=SHORT)
    (place,) = (path for path in tmp_path.iterdir() if path.is_dir())
    (place / "config.json").write_text("{}")
    trained.little.cache_clear()
    assert trained.little("decoder", config=SHORT).spec.form == "decoder"


def test_another_config_is_another_model() -> None:
    recipe = trained.decoder()
    assert recipe.name(SHORT) != recipe.name(SHORT.replace(steps=3))
    assert recipe.name(SHORT) != trained.pair().name(SHORT)


def test_findings_are_remembered_until_something_changes(tmp_path: Path) -> None:
    made = []

    def make() -> dict[str, int]:
        made.append(1)
        return {"found": len(made)}

    ask = {"make": make, "kind": dict[str, int]}
    assert trained.remembered("x", "a", **ask) == trained.remembered("x", "a", **ask) == {"found": 1}
    assert trained.remembered("x", "b", **ask) == {"found": 2}
    (kept,) = (path for path in tmp_path.glob("x-*.json") if b"1" in path.read_bytes())
    kept.write_text("[")
    assert trained.remembered("x", "a", **ask) == {"found": 3}


def test_every_word_of_the_world_is_a_token() -> None:
    world = trained.world()
    text = "The fat ginger cat sat on a mat."
    assert len(world.tokenizer.encode(text, special=False).ids) == 9
    assert world.both.vocab > world.tokenizer.vocab


@pytest.mark.parametrize("name", ["sqrt-d", "mask-after", "positions-joined"])
def test_experiments_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps: not for the verdict, but every way of changing the network trains and is asked."""
    monkeypatch.setattr(trial.learn, "__kwdefaults__", {"config": SHORT, "setting": trial.nothing})
    monkeypatch.setattr(trial.unseen, "__defaults__", (8,))
    monkeypatch.setattr(masks, "WRITTEN", 2)
    done = experiments.run(experiments.experiment(name))
    assert done.evidence.tables
    assert done.evidence.plots
    assert msgspec.json.decode(msgspec.json.encode(done.evidence), type=Evidence) == done.evidence


def test_recall_runs() -> None:
    found = recall.recall(distances=(1, 2), steps=2)
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
    course = recurrent.multi30k()
    assert (len(course.learned.lengths), len(course.unseen.lengths)) == (29_000, 1_000)
    sizes = [sum(p.numel() for p in network.parameters()) for network in recurrent.networks(course).values()]
    assert max(sizes) < 1.15 * min(sizes)


def test_without_multi30k_the_experiment_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIFORM_SHARED", str(tmp_path))
    with pytest.raises(DataAbsent, match=r"data/multi30k is not here; set TRIFORM_SHARED .* rnn-world"):
        recurrent.rnn_multi30k.run()


def test_at_equal_time_is_the_best_by_then() -> None:
    learned = recurrent.Learned(1, (1, 2, 3), (1.0, 2.0, 3.0), (5.0, 3.0, 4.0))
    assert [learned.at(seconds) for seconds in (0.5, 1.5, 2.0, 9.0)] == [5.0, 5.0, 3.0, 3.0]
