"""What would harm the weights never reaches them; the run goes on, and the record names the rows."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_runs import digest, network, texts

from triform.core.forms import Form
from triform.train.examples import ExamplePlace, TokenExample
from triform.train.loop import train
from triform.train.loss_guard import MIN_RECENT_STEPS, WINDOW, Guard, TrainingStopped
from triform.train.objectives import Device, Loss
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, Skipped, Stepped
from triform.train.token_objectives import NextToken, TokenBatch


class Planted(NextToken):
    """The loss of a pass that holds one of these rows, `times` what it is, from the pass with number `begin` on."""

    def __init__(self, rows: set[int], *, times: float, begin: int = 0, passes: int = 10**9) -> None:
        super().__init__()
        self.rows, self.times, self.planted = rows, times, range(begin, begin + passes)
        self.seen, self.bad = 0, False

    def batch(
        self, examples: Sequence[TokenExample], *, places: Sequence[ExamplePlace], device: Device
    ) -> TokenBatch | None:
        self.bad = self.seen in self.planted and bool(self.rows & {place.row for place in places})
        self.seen += 1
        return super().batch(examples, places=places, device=device)

    def loss(self, network: Form, batch: TokenBatch | None) -> Loss:
        loss = super().loss(network, batch)
        return Loss(loss.total * self.times, loss.targets) if self.bad else loss


EXAMPLES = texts(*[6] * 40)
CONFIG = Config(steps=20, batch_tokens=24, accumulate=2, learning_rate=1e-3, clip=1.0, skips=5)


def run(objective: NextToken, *, folder: Path | None = None, **changes) -> tuple[Form, list[AnyEvent], list[str]]:
    """The network, what happened, and the hash of the weights after each step."""
    net, events, hashes = network(dtype=torch.float32), [], []

    def watch(event: AnyEvent) -> None:
        events.append(event)
        if isinstance(event, Stepped | Skipped):
            hashes.append(digest(net))

    config = CONFIG.replace(**changes)
    train(net, objective=objective, examples=EXAMPLES, config=config, folder=folder, watch=watch)
    return net, events, hashes


@pytest.mark.parametrize("times", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("step", [1, 100])
def test_a_loss_that_is_not_a_number(times: float, step: int, tmp_path: Path) -> None:
    """At the first step and later: weights as before, the rows of the guilty pass named, the next step is made."""
    objective = Planted(set(range(40)), times=times, begin=2 * (step - 1), passes=1)
    net, events, hashes = run(objective, folder=tmp_path, steps=step + 2)
    skipped = [event for event in events if isinstance(event, Skipped)]
    assert [event.step for event in skipped] == [step]
    assert len(skipped[0].rows) == 2, "one pass of two rows, not the whole step"
    assert skipped[0].places == tuple(f"example {row}" for row in skipped[0].rows)
    before = digest(network(dtype=torch.float32)) if step == 1 else hashes[step - 2]
    assert hashes[step - 1] == before
    assert len(set(hashes)) == len(hashes) - (step > 1)
    assert all(torch.isfinite(p).all() for p in net.parameters())
    lines = map(msgspec.json.decode, (tmp_path / "metrics.jsonl").read_bytes().splitlines())
    assert [line["rows"] for line in lines if line["event"] == "skipped"] == [list(skipped[0].rows)]


class Broken(Planted):
    """The loss is right, its gradient `times` what it is."""

    def loss(self, network: Form, batch: TokenBatch | None) -> Loss:
        loss = NextToken.loss(self, network, batch)
        if self.bad:
            loss.total.register_hook(lambda slope: slope * self.times)
        return loss


@pytest.mark.parametrize(("kind", "named"), [(Planted, "loss is "), (Broken, "gradient is ")])
def test_a_gradient_ten_thousand_times_too_large(kind: type[Planted], named: str) -> None:
    """With the loss, or alone."""
    _, events, hashes = run(kind(set(range(40)), times=1e4, begin=30, passes=1))
    skipped = [event for event in events if isinstance(event, Skipped)]
    assert [event.step for event in skipped] == [16]
    assert skipped[0].reason.startswith(named)
    assert hashes[15] == hashes[14]
    assert hashes[16] != hashes[15]


def test_without_the_guard_a_gradient_too_large_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: what the hook does is felt."""
    monkeypatch.setattr(Guard, "judge", lambda self, *, loss, norm: "")
    hashes = [run(Broken(set(range(40)), times=times, begin=30, passes=1))[2] for times in (1.0, 1e4)]
    assert [one == other for one, other in zip(*hashes, strict=True)] == [True] * 15 + [False] * 5


@pytest.mark.parametrize("guarded", [True, False])
def test_a_gradient_that_is_not_finite_though_the_loss_is(guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the guard, the negative control, the weights are lost."""
    if not guarded:
        monkeypatch.setattr(Guard, "judge", lambda self, *, loss, norm: "")
    net, events, _ = run(Broken(set(range(40)), times=float("nan"), begin=6, passes=1), steps=6)
    assert [event.step for event in events if isinstance(event, Skipped)] == ([4] if guarded else [])
    assert all(torch.isfinite(p).all() for p in net.parameters()) == guarded


def test_several_in_a_row_stop_the_run(tmp_path: Path) -> None:
    said = r"3 unusable steps in a row; at step 8 the loss is nan \(example \d+, example \d+\)"
    with pytest.raises(TrainingStopped, match=said):
        run(Planted(set(range(40)), times=float("nan"), begin=10), skips=3, folder=tmp_path)
    state = msgspec.json.decode((tmp_path / "checkpoints/step-00000008/state.json").read_bytes())
    assert state["guard"]["in_row"] == 3


@given(st.lists(st.floats(0.5, 2.0), min_size=MIN_RECENT_STEPS, max_size=3 * WINDOW))
def test_ordinary_steps_pass_and_far_ones_do_not(losses: list[float]) -> None:
    guard = Guard(max_skips=5)
    assert not any(guard.judge(loss=loss, norm=loss * 3) for loss in losses)
    again = Guard(max_skips=5, state=guard.state)
    for each in (guard, again):
        assert each.judge(loss=1.0, norm=1e8)
        assert each.judge(loss=1e9, norm=3.0)
        assert not each.judge(loss=1.0, norm=3.0)
    assert guard.state == again.state


def test_a_hard_example_after_easy_ones_is_no_spike() -> None:
    """Where sizes differ by powers of ten anyway, one more is nothing strange."""
    guard = Guard(max_skips=5)
    for number in range(64):
        assert not guard.judge(loss=10.0 ** -(number % 4), norm=10.0 ** -(number % 4))
    assert not guard.judge(loss=5.0, norm=50.0)
