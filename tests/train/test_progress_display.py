"""What is shown is what happened; a run limited by time ends with the time, its rate gone down with it."""

import io
import itertools
import sys
import types

import pytest
import torch
from rich.console import Console
from tiny_runs import digest, network, texts

from triform.train import loop
from triform.train.loop import train
from triform.train.progress_display import BLOCKS, ProgressDisplay, draw_curve, format_clock
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, Began, Evaluated, Skipped, Stepped
from triform.train.tensorboard import make_board
from triform.train.token_objectives import NextToken
from triform.train.validation_loss import Score, mean_loss


def test_a_run_is_shown() -> None:
    console = Console(file=io.StringIO(), width=160, force_terminal=False)
    net, held_out = network(dtype=torch.float32), texts(8, 9)
    with ProgressDisplay(console, flops_per_token=1e5, flops_per_second=1e11) as display:
        train(
            net, objective=NextToken(), examples=texts(9, 12), config=Config(steps=8, eval_every=4), watch=display,
            evaluate=lambda network: mean_loss(network, objective=NextToken(), examples=held_out),
        )  # fmt: skip
        display(Skipped(step=8, reason="loss is nan", rows=(1, 2), places=("a[x].csv:2", "a[x].csv:3")))
        display(Evaluated(step=8, name="f1", value=None, best=False))
        display(Began(step=8, total=8, minutes=None, parameters=1, trained=1, examples=1, damaged=("step-7: [x]",)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "step 4: loss" in text
    assert "the best so far" in text
    assert "finished: 8 steps in" in text
    assert "was skipped: loss is nan; its rows: a[x].csv:2, a[x].csv:3" in text
    assert "step 8: f1 is not finite" in text
    assert "step-7: [x]" in text
    assert "tok/s" in display.bar.tasks[0].description
    assert display.bar.tasks[0].completed == 1.0


def test_curves_and_clocks() -> None:
    assert draw_curve([]) == ""
    assert draw_curve([1.0]) == BLOCKS[0]
    assert draw_curve([8.0, 7, 6, 5, 4, 3, 2, 1]) == BLOCKS[::-1]
    assert len(draw_curve([float(n) for n in range(1000)])) == 24
    assert (format_clock(3723), format_clock(61), format_clock(-1)) == ("1:02:03", "1:01", "0:00")


def test_the_time_ends_a_run_and_its_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(loop.time, "monotonic", lambda: float(next(ticks)))
    rates: list[float] = []

    def watch(event: AnyEvent) -> None:
        if isinstance(event, Stepped):
            rates.append(event.rate)

    config = Config(minutes=5, schedule="linear", warmup=0.2, learning_rate=1.0, batch_tokens=16, clip=0.1)
    outcome = train(network(), objective=NextToken(), examples=texts(9, 12), config=config, watch=watch)
    assert "5 minutes have passed" in outcome.why
    assert 20 < outcome.step < 100
    assert max(rates) > 0.8
    assert rates.index(max(rates)) < len(rates) / 2
    assert rates[-1] < 0.1


def test_a_score_may_be_better_when_lower() -> None:
    assert Score("loss", 1.0, higher=False).beats(2.0)
    assert not Score("loss", 3.0, higher=False).beats(2.0)
    assert Score("f1", 3.0).beats(2.0)
    assert not Score("f1", 2.0).beats(2.0)
    assert not Score("f1", float("nan")).beats(2.0)
    assert not Score("f1", float("inf")).beats(None), "it could not be written down"


def test_an_evaluation_leaves_the_run_as_it_was() -> None:
    """Drawing numbers while evaluating changes no weight; the score rises, so that the last weights are the best."""

    def careless(network: torch.nn.Module) -> Score:
        assert not network.training
        return Score("nothing", float(scored.append(torch.rand(7)) or len(scored)))

    hashes, scored = [], []
    for evaluate in (None, careless):
        net = network(dtype=torch.float32)
        config = Config(steps=6, eval_every=2, dropout=0.3, batch_tokens=16)
        train(net, objective=NextToken(), examples=texts(9, 12), config=config, evaluate=evaluate)
        hashes.append(digest(net))
    assert len(scored) == 3
    assert hashes[0] == hashes[1]


def test_tensorboard_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, int]] = []
    opened: list[str] = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            opened.append(folder)

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, step))

        def flush(self) -> None:
            opened.append("flushed")

        def close(self) -> None:
            opened.append("closed")

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    watch = make_board("somewhere")
    assert watch is not None
    assert opened == [], "a run that is refused leaves no folder"
    scores = iter([float("nan"), 0.5])
    train(
        network(), objective=NextToken(), examples=texts(9), config=Config(steps=2, eval_every=1), watch=watch,
        evaluate=lambda net: Score("f1", next(scores)),
    )  # fmt: skip
    steps = [(name, step) for step in (1, 2) for name in ("loss", "norm", "rate")]
    assert written == [*steps, ("valid/f1", 2)]
    assert opened == ["somewhere", "closed"]
    watch(Skipped(step=3, reason="loss is nan", rows=(1,), places=("row 1",)))
    assert opened[-1] == "flushed", "the next may stop the run"
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert make_board("somewhere") is None
