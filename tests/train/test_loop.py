"""A run that is killed and resumed makes the same weights, hash for hash, as one never killed."""

import itertools
import os
import random
import signal
import time
from pathlib import Path

import msgspec
import pytest
import run_in_child
import torch
from tiny_runs import digest, network, texts

from triform.core.forms import Form
from triform.train.checkpoint import CheckpointError
from triform.train.loop import Interrupted, Outcome, ignore_event, prepare_run, train
from triform.train.run_config import Config, parse_config
from triform.train.run_events import AnyEvent, Began, Saved, Stepped
from triform.train.token_objectives import NextToken
from triform.train.validation_loss import Score

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_in_child.run(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="module")
def duration(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Seconds of a child that nobody disturbs."""
    begun = time.monotonic()
    killed_after(tmp_path_factory.mktemp("timed") / "run", NEVER)
    return time.monotonic() - begun


def child(folder: Path) -> tuple[int, int]:
    """Its number, and where its lines can be read."""
    read, write = os.pipe()
    process = os.fork()
    if not process:
        try:
            tell = lambda line: os.write(write, f"{line}\n".encode()) and None  # noqa: E731
            tell(f"weights {run_in_child.run(folder, tell)}")
        finally:
            os._exit(0)
    os.close(write)
    return process, read


def killed_within(folder: Path, seconds: float) -> bool:
    """Wherever a child is by then: in a step, in a save, not yet begun; not if it is done."""
    process, read = child(folder)
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    os.close(read)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL


def killed_after(folder: Path, lines: int, *, by: signal.Signals = signal.SIGKILL) -> str:
    """The last line of a child that was sent the signal after so many lines; it may be done by then."""
    process, read = child(folder)
    last = ""
    with os.fdopen(read) as told:
        for number, line in enumerate(told):
            last = line
            if number == lines:
                os.kill(process, by)
    os.waitpid(process, 0)
    return last.strip()


NEVER = 10**9


def kills(folder: Path, moments: list[int], expected: str) -> None:
    for moment in moments:
        assert not killed_after(folder, moment).startswith("weights")
    assert killed_after(folder, NEVER) == f"weights {expected}"


def test_killed_and_resumed_is_never_killed(tmp_path: Path, undisturbed: str) -> None:
    """Dropout, shuffling, an average, Muon, evaluations; killed before the first checkpoint, and four times more."""
    kills(tmp_path, [3, 14, 25, 9, 11], undisturbed)
    lines = (tmp_path / "metrics.jsonl").read_bytes().splitlines()
    steps = [event["step"] for event in map(msgspec.json.decode, lines) if event["event"] == "stepped"]
    assert steps == list(range(1, run_in_child.STEPS + 1)), "each step is recorded once"


@pytest.mark.parametrize("count", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_random_moments(count: int, tmp_path: Path, undisturbed: str, duration: float) -> None:
    """As many comparisons as kills; every other one at a moment of the clock, not behind a line."""
    chance, killed = random.Random(1), 0
    for number in itertools.count():
        folder = tmp_path / str(number)
        if number % 2:
            kills(folder, [chance.randrange(45)], undisturbed)
        elif killed_within(folder, chance.uniform(0, 0.9) * duration):
            kills(folder, [], undisturbed)
        else:
            continue  # it was faster than usual
        killed += 1
        if killed == count:
            return


def test_asked_to_stop_it_saves_and_stops(tmp_path: Path, undisturbed: str) -> None:
    """And says so by an exception: the child never comes to the line that tells the weights."""
    last = killed_after(tmp_path, 12, by=signal.SIGTERM)
    assert last.startswith("Ended")
    steps = [path.name for path in (tmp_path / "checkpoints").iterdir()]
    assert any(int(name.removeprefix("step-")) % 7 for name in steps), "saved where it was, not at a round number"
    kills(tmp_path, [], undisturbed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("at", "ended_by_it"), [(2, True), (3, False)])
def test_a_signal_is_never_taken_for_an_end(number: int, at: int, ended_by_it: bool) -> None:
    """Not even where it comes during the last step: what follows the training must not go on."""

    def press(event: AnyEvent) -> None:
        if isinstance(event, Stepped) and event.step == at:
            signal.raise_signal(number)

    before = signal.getsignal(signal.SIGINT)  # ignored, where the tests run in the background of a shell
    with pytest.raises(Interrupted) as stop:
        run(None, steps=3, watch=press)
    assert stop.value.number == number
    assert stop.value.outcome.step == at
    assert stop.value.outcome.signal == (number if ended_by_it else 0)
    assert signal.getsignal(signal.SIGINT) is before


# --- within one process ---------------------------------------------------------------------------------------------


def run(
    folder: Path | None, *, name: str = "gpt2", resume: bool = False, watch=ignore_event, **changes
) -> tuple[Form, Outcome]:
    net = network(name, dtype=torch.float32)
    config = Config(steps=12, batch_tokens=50, save_every=3, learning_rate=1e-3).replace(**changes)
    examples = texts(9, 20, 3, 31, 8, 8, 12)
    keywords = {"config": config, "folder": folder, "resume": resume, "watch": watch}
    return net, train(net, objective=NextToken(), examples=examples, **keywords)


class Dies(Exception):
    pass


def dies_at(step: int):
    def watch(event: AnyEvent) -> None:
        if isinstance(event, Stepped) and event.step == step:
            raise Dies

    return watch


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("name", ["dropout", "lora", "recompute"])
def test_resumed_with(name: str, optimizer: str, tmp_path: Path) -> None:
    changes = {
        "dropout": {"dropout": 0.3, "ema": 0.9},
        "lora": {"lora": ("*.attention.f.qkv",), "freeze": ("*.blocks.0.*",)},
        "recompute": {"recompute": True, "dropout": 0.1, "accumulate": 3},
    }[name] | {"optimizer": optimizer}
    whole, _ = run(None, **changes)
    with pytest.raises(Dies):
        run(tmp_path, watch=dies_at(8), **changes)
    again, outcome = run(tmp_path, resume=True, **changes)
    assert outcome.step == 12
    assert digest(again) == digest(whole)
    assert digest(again) != digest(network(dtype=torch.float32))


def test_recomputed_blocks_change_nothing() -> None:
    plain, recomputed = (run(None, recompute=each, dropout=0.2)[0] for each in (False, True))
    assert digest(plain) == digest(recomputed)


def test_the_callers_random_numbers_are_left_alone() -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    run(None, dropout=0.5)
    assert torch.equal(torch.rand(3), expected)


def test_the_seed_decides() -> None:
    one, again, other = (digest(run(None, dropout=0.2, seed=seed)[0]) for seed in (1, 1, 2))
    assert one == again != other


def test_another_config_or_other_data_is_named(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(CheckpointError, match=r"learning_rate was 0\.001, is 0\.5"):
        run(tmp_path, resume=True, learning_rate=0.5)
    net = network(dtype=torch.float32)
    config = Config(steps=12, batch_tokens=50, save_every=3, learning_rate=1e-3)
    with pytest.raises(CheckpointError, match="the training data was"):
        train(net, objective=NextToken(), examples=texts(4, 5), config=config, folder=tmp_path, resume=True)
    with pytest.raises(CheckpointError, match="another model"):
        run(tmp_path, resume=True, name="llama")
    with pytest.raises(CheckpointError, match="already holds step-00000012"):
        run(tmp_path)
    with pytest.raises(CheckpointError, match="holds no run"):
        run(tmp_path / "nowhere", resume=True)
    _, outcome = run(tmp_path, resume=True, save_every=5)
    assert outcome.step == 12, "what changes no number may change"
    assert parse_config((tmp_path / "run.toml").read_text()).save_every == 5


def test_other_validation_data_is_named(tmp_path: Path) -> None:
    def stands(valid: str, *, resume: bool = True) -> None:
        config = Config(steps=2, batch_tokens=50)
        keywords = {"objective": NextToken(), "examples": texts(9, 20), "config": config, "folder": tmp_path}
        prepare_run(network(dtype=torch.float32), valid=valid, resume=resume, **keywords).train(None)

    stands("one", resume=False)
    stands("one")
    with pytest.raises(CheckpointError, match=r"resumed: the validation data was one, is other; start a new one"):
        stands("other")


def kept(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("step", [2, 8])
def test_a_refused_resume_changes_nothing(step: int, tmp_path: Path) -> None:
    """Killed before the first checkpoint, and behind the second: config and data are compared, and nothing is cut."""
    whole, _ = run(None)
    with pytest.raises(Dies):
        run(tmp_path, watch=dies_at(step))
    before = kept(tmp_path)
    assert any("step-" in name for name in before) == (step > 3)
    with pytest.raises(CheckpointError, match=r"resumed: learning_rate was 0\.001, is 0\.5; start"):
        run(tmp_path, resume=True, learning_rate=0.5)
    config = Config(steps=12, batch_tokens=50, save_every=3, learning_rate=1e-3)
    with pytest.raises(CheckpointError, match=r"resumed: the training data was \w+, is \w+; start"):
        train(network(), objective=NextToken(), examples=texts(4, 5), config=config, folder=tmp_path, resume=True)
    if step > 3:
        with pytest.raises(CheckpointError, match="another model"):
            run(tmp_path, resume=True, name="llama")
    else:
        with pytest.raises(CheckpointError, match="base was None, is other"):
            run(tmp_path, resume=True, base="other")
    assert kept(tmp_path) == before
    again, _ = run(tmp_path, resume=True, save_every=5)
    assert digest(again) == digest(whole)
    assert parse_config((tmp_path / "run.toml").read_text()).save_every == 5


def test_killed_while_it_began(tmp_path: Path) -> None:
    """With run.toml alone it begins; a beginning that cannot be read is said."""
    whole, _ = run(None)
    with pytest.raises(Dies):
        run(tmp_path, watch=dies_at(1))
    (tmp_path / "begun.json").write_text('{"config":')
    with pytest.raises(CheckpointError, match=r"cannot read .*begun\.json"):
        run(tmp_path, resume=True)
    (tmp_path / "begun.json").unlink()
    again, _ = run(tmp_path, resume=True)
    assert digest(again) == digest(whole)


def test_damaged_checkpoints_do_not_push_out_whole_ones(tmp_path: Path) -> None:
    run(tmp_path, keep=4)
    for step in (9, 12):
        (tmp_path / f"checkpoints/step-{step:08}/state.json").write_text("{}")
    with pytest.raises(Dies):
        run(tmp_path, resume=True, keep=1, watch=dies_at(10))
    begun: list[int] = []
    run(tmp_path, resume=True, keep=1, watch=lambda event: isinstance(event, Began) and begun.append(event.step))
    assert begun == [9], "the one written since, not the one before it"


@pytest.mark.parametrize("ema", [0.5, 0.0])
@pytest.mark.parametrize("on_disk", [True, False])
def test_the_best_is_kept_and_patience_ends(on_disk: bool, ema: float, tmp_path: Path) -> None:
    net, held = network(dtype=torch.float32), []

    def evaluate(network) -> Score:
        held.append(digest(network))
        return Score("accuracy", [0.1, 0.7, 0.3, 0.2, 0.9][len(held) - 1])

    config = Config(steps=50, batch_tokens=50, eval_every=2, patience=2, save_every=100, keep=1, ema=ema)
    folder = tmp_path if on_disk else None
    outcome = train(
        net, objective=NextToken(), examples=texts(9, 20, 3), config=config, evaluate=evaluate, folder=folder
    )
    assert (outcome.best, outcome.best_step, outcome.step) == (0.7, 4, 8)
    assert "no better score" in outcome.why
    assert digest(net) == held[1], "the weights that were scored best, averaged where they were"
    if on_disk:
        assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-00000004", "step-00000008"]


def test_one_save_a_step_and_the_best_may_be_damaged(tmp_path: Path) -> None:
    """Evaluated first, then saved: a checkpoint is never written over one of the same step that is whole."""
    saved: list[int] = []
    values = [3.0, 2.0, 1.0, 0.5]

    def once(stop: int | None = None) -> tuple[Outcome, list[str]]:
        left, damaged = list(values), []

        def watch(event: AnyEvent) -> None:
            if isinstance(event, Saved):
                saved.append(event.step)
            if isinstance(event, Began):
                damaged.extend(event.damaged)
            if isinstance(event, Stepped) and event.step == stop:
                raise Dies

        config = Config(steps=12, batch_tokens=50, save_every=3, eval_every=3, keep=1)
        outcome = train(
            network(dtype=torch.float32), objective=NextToken(), examples=texts(9, 20, 3), config=config,
            folder=tmp_path, resume=stop is None, watch=watch, evaluate=lambda net: Score("score", left.pop(0)),
        )  # fmt: skip
        return outcome, damaged

    with pytest.raises(Dies):
        once(8)
    assert saved == [3, 6]
    (tmp_path / "checkpoints/step-00000003/state.json").write_text("{}")
    outcome, damaged = once()
    assert len(damaged) == 1
    assert "step-00000003" in damaged[0]
    assert saved == [3, 6, 9, 12]
    assert outcome.best_step == 9, "the best of those evaluated since"
