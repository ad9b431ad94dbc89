"""The record of a run is read back whatever happened to it: a score that is no number, a line that was cut short."""

from pathlib import Path

import torch
from tiny_runs import network, texts

from triform.core.forms import Form
from triform.pipeline.report import plot_curve
from triform.train.loop import train
from triform.train.run_config import Config
from triform.train.run_events import Evaluated, Skipped, Stepped, read_events
from triform.train.token_objectives import NextToken
from triform.train.validation_loss import Score


def test_a_score_that_is_not_a_number_is_read_back(tmp_path: Path) -> None:
    scores = iter([float("nan"), float("inf"), 0.5, float("nan")])

    def evaluate(network: Form) -> Score:
        return Score("f1", next(scores), others={"p": float("nan")})

    outcome = train(
        network(dtype=torch.float32), objective=NextToken(), examples=texts(9, 12), folder=tmp_path,
        config=Config(steps=4, eval_every=1), evaluate=evaluate,
    )  # fmt: skip
    assert (outcome.best, outcome.best_step) == (0.5, 3)
    events = read_events(tmp_path / "metrics.jsonl")
    scored = [event for event in events if isinstance(event, Evaluated)]
    assert [event.value for event in scored] == [None, None, 0.5, None]
    assert all(event.others == {"p": None} for event in scored)
    assert plot_curve(events, title="a run") is not None


def test_lines_that_are_none_are_passed_over(tmp_path: Path) -> None:
    place = tmp_path / "metrics.jsonl"
    assert read_events(place) == []
    stepped = (
        b'{"event":"stepped","step":%d,"loss":1.0,"norm":1.0,"rate":0.1,"targets":1,"tokens":1,"epoch":0,"seconds":1.0,'
        b'"elapsed":1.0}'
    )
    torn = [stepped % 2 + b'{"event":"st', b'{"event":"danced","step":1}', b"\xff\xfe", b""]
    older = b'{"event":"skipped","step":4,"reason":"loss is nan","rows":[3]}'
    place.write_bytes(b"\n".join([stepped % 1, *torn, older, stepped % 5, stepped[:20]]))
    events = read_events(place)
    assert [event.step for event in events] == [1, 4, 5]
    assert [type(event) for event in events] == [Stepped, Skipped, Stepped]
