"""What a model cannot read is said before the first step; what it learns is seen by all who keep copies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import EVERY
from tiny_runs import VOCAB, digest, network, texts

from triform.core.packed_linear import pack_network
from triform.errors import InputError
from triform.spec import replace
from triform.train.examples import ExampleList, SourceTarget, TagExample, TokenExample, check_examples
from triform.train.loop import NO_TARGET, ignore_event, prepare_run, train
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, Saved, Skipped, Stepped, Watcher
from triform.train.token_objectives import NextToken

DECODER = replace(EVERY["gpt2"], context=8)


def one(ids: list[int]) -> ExampleList[TokenExample]:
    return ExampleList([TokenExample([1]), TokenExample(ids)], lengths=[1, len(ids)])


def test_ids_and_lengths_are_checked_and_the_row_is_named() -> None:
    check_examples(one([0, VOCAB - 1]), spec=DECODER)
    check_examples(one([1] * 9), spec=DECODER)  # the last token is only predicted
    with pytest.raises(InputError, match=f"example 1 has the id {VOCAB}; this model's are 0 to {VOCAB - 1}"):
        check_examples(one([0, VOCAB]), spec=DECODER)
    with pytest.raises(InputError, match="example 1 has the id -1"):
        check_examples(one([-1, 3]), spec=DECODER)
    with pytest.raises(InputError, match="example 1 has 10 tokens, this model reads 8"):
        check_examples(one([1] * 10), spec=DECODER)
    with pytest.raises(InputError, match="has 9 tokens"):
        check_examples(one([1] * 9), spec=replace(EVERY["bert"], context=8))
    pair = ExampleList([SourceTarget([1], [VOCAB + 3])], lengths=[1])
    with pytest.raises(InputError, match=f"id {VOCAB + 3}"):
        check_examples(pair, spec=EVERY["t5"])


def test_examples_without_any_target_are_refused() -> None:
    """A run of them would make all its steps with loss 0 and learn nothing."""
    silent = TokenExample([1, 2, 3], learn=[True, False, False])  # the first token is never predicted
    spoken = TokenExample([1, 2, 3], learn=[False, False, True])
    check_examples(ExampleList([silent, spoken], lengths=[3, 3]), spec=DECODER)
    with pytest.raises(InputError, match="nothing to learn: all labels of the 2 examples are ignored"):
        check_examples(ExampleList([silent, silent], lengths=[3, 3]), spec=DECODER)
    with pytest.raises(InputError, match="nothing to learn"):
        check_examples(ExampleList([TagExample([1, 2], [-100, -100])], lengths=[2]), spec=EVERY["bert"])


def test_a_step_without_targets_is_told_as_not_made() -> None:
    """Not as one whose loss is 0."""
    silent = TokenExample([1, 2, 3, 4], learn=[True, False, False, False])
    seen: list[AnyEvent] = []
    net = network("gpt2", dtype=torch.float32)
    before = digest(net)
    config = Config(steps=2, batch_tokens=8)
    train(
        net,
        objective=NextToken(),
        examples=ExampleList([silent] * 4, lengths=[4] * 4),
        config=config,
        watch=seen.append,
    )
    assert digest(net) == before
    assert not any(isinstance(event, Stepped) for event in seen)
    assert [(event.step, event.reason) for event in seen if isinstance(event, Skipped)] == [
        (1, NO_TARGET),
        (2, NO_TARGET),
    ]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_twin_made_before_a_step_is_not_used_after_it(optimizer: str) -> None:
    """The fused step changes numbers without counting the change; evaluations would go on with the old ones."""
    net = network("gpt2", dtype=torch.float32)
    config = Config(steps=2, batch_tokens=64, learning_rate=0.1, optimizer=optimizer)  # type: ignore[arg-type]
    run = prepare_run(net, objective=NextToken(), examples=texts(9, 9, 9), config=config)
    before = pack_network(net)
    assert pack_network(net) is before
    run.step(next(run.sampler.iterate_steps()))
    assert pack_network(net) is not before


@pytest.mark.parametrize("changes", [{}, {"optimizer": "muon"}, {"accumulate": 3, "ema": 0.9}], ids=repr)
def test_rehearsing_changes_nothing(changes: dict[str, Any]) -> None:
    net = network("gpt2", dtype=torch.float32)
    config = Config(steps=5, batch_tokens=64, dropout=0.2, learning_rate=0.1, **changes)
    run = prepare_run(net, objective=NextToken(), examples=texts(*range(3, 30)), config=config)
    before = {path: value.clone() for path, value in net.state_dict().items()}
    state, random = run.state, torch.random.get_rng_state()
    assert 0 < run.rehearse().seconds < np.inf
    assert all(torch.equal(before[path], value) for path, value in net.state_dict().items())
    assert all(torch.equal(before[path], value) for path, value in run.average.tensors().items())
    assert run.state == state
    assert torch.equal(torch.random.get_rng_state(), random)
    assert not run.optimizer.list_gradients()
    assert not any(value.any() for value in run.optimizer.tensors().values())


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_rehearsed_run_is_the_same_run_also_when_it_goes_on(optimizer: str, tmp_path: Path) -> None:
    class Killed(BaseException): ...

    def kill(event: AnyEvent) -> None:
        if isinstance(event, Saved) and event.step == 4:
            raise Killed

    def walked(folder: Path, *, watch: Watcher = ignore_event, **how: bool) -> dict[str, torch.Tensor]:
        net = network("gpt2", dtype=torch.float32)
        config = Config(steps=6, batch_tokens=64, dropout=0.2, optimizer=optimizer, save_every=2)  # type: ignore[arg-type]
        examples = texts(*range(3, 30))
        prepare_run(
            net, objective=NextToken(), examples=examples, config=config, folder=folder, watch=watch, **how
        ).train(None)
        return net.state_dict()

    plain = walked(tmp_path / "plain")
    with pytest.raises(Killed):
        walked(tmp_path / "rehearsed", rehearse=True, watch=kill)
    again = walked(tmp_path / "rehearsed", rehearse=True, resume=True)
    assert all(torch.equal(plain[path], value) for path, value in again.items())


def test_the_fullest_step_is_rehearsed() -> None:
    tried: list[int] = []

    class Noted(NextToken):
        def batch(self, examples: Sequence[TokenExample], **where: Any) -> Any:
            tried.append(sum(len(each.ids) for each in examples))
            return super().batch(examples, **where)

    lengths = [5] * 40 + [60]
    config = Config(steps=5, batch_tokens=20)
    run = prepare_run(network("gpt2", dtype=torch.float32), objective=Noted(), examples=texts(*lengths), config=config)
    run.rehearse()
    assert tried[0] == 60
    assert len(tried) == 5
