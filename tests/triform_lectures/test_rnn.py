"""The recurrent family: texts do not see each other, fillings are not seen, and the one loop trains it."""

from typing import cast

import numpy as np
import pytest
import torch

from triform.core.forms import Form
from triform.core.texts import PackedText, Pair, Text
from triform.train.examples import ExampleList, SourceTarget
from triform.train.loop import train
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, Stepped
from triform.train.token_objectives import SequenceToSequence
from triform_lectures.rnn import Bahdanau, Recurrent, align


@pytest.fixture(params=[True, False], ids=["with attention", "without"])
def network(request: pytest.FixtureRequest) -> Recurrent:
    return Recurrent(vocab=12, width=8, attention=request.param).double().eval()


def test_packed_texts_are_answered_as_alone(network: Recurrent) -> None:
    sources, targets = [torch.tensor([3, 4, 5, 6]), torch.tensor([7])], [torch.tensor([1, 2]), torch.tensor([1, 8, 9])]
    with torch.no_grad():
        packed = network(Pair(PackedText.join(sources), PackedText.join(targets)))[0]
        alone = [network(Pair(Text.of(s[None]), Text.of(t[None])))[0] for s, t in zip(sources, targets, strict=True)]
    torch.testing.assert_close(packed, torch.cat(alone))


def test_a_later_target_token_changes_nothing_before_it(network: Recurrent) -> None:
    source = Text.of(torch.tensor([[3, 4, 5]]))
    with torch.no_grad():
        one, other = (network(Pair(source, Text.of(torch.tensor([row]))))[0] for row in ([1, 2, 3], [1, 2, 9]))
    assert torch.equal(one[:2], other[:2])
    assert not torch.equal(one[2], other[2])


def test_every_source_word_reaches_the_answer(network: Recurrent) -> None:
    x = Text.of(torch.tensor([[3, 4, 5]]))
    with torch.no_grad():
        base = network(Pair(x, Text.of(torch.tensor([[1]]))))
        for place in range(3):
            other = x.ids.clone()
            other[0, place] = 9
            assert not torch.allclose(base, network(Pair(Text.of(other), Text.of(torch.tensor([[1]])))))


def test_attention_never_looks_at_filling() -> None:
    network = Recurrent(vocab=12, width=8, attention=True).double()
    read = network.encode(PackedText.join([torch.tensor([3, 4, 5]), torch.tensor([6])]))
    attend = cast(Bahdanau, network.context)
    weights = attend.weights(torch.zeros(2, 8, dtype=torch.float64), attend.make_keys(read), read)
    assert weights[1].tolist() == [1.0, 0.0, 0.0]
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, dtype=torch.float64))


def test_the_one_loop_trains_it() -> None:
    network = Recurrent(vocab=12, width=16, attention=True)
    chance = np.random.default_rng(0)
    rows = [SourceTarget(row, [int(row[0])]) for row in chance.integers(1, 12, (64, 3))]
    losses: list[float] = []

    def watch(event: AnyEvent) -> None:
        if isinstance(event, Stepped):
            losses.append(event.loss)

    config = Config(steps=30, batch_tokens=128, learning_rate=1e-2, dropout=0.0)
    examples = ExampleList(rows, lengths=[4] * 64)
    train(cast(Form, network), objective=SequenceToSequence(start=0), examples=examples, config=config, watch=watch)
    assert losses[-1] < 0.7 * losses[0]


def test_the_same_seed_gives_the_same_numbers_and_leaves_chance_alone() -> None:
    torch.manual_seed(5)
    after = torch.rand(1)
    torch.manual_seed(5)
    one = Recurrent(vocab=12, width=8, attention=True, seed=3)
    assert torch.equal(after, torch.rand(1))
    other = Recurrent(vocab=12, width=8, attention=True, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_the_alignment_is_what_each_step_looks_at() -> None:
    network = Recurrent(vocab=12, width=8, attention=True).double()
    pair = Pair(Text.of(torch.tensor([[3, 4, 5]])), Text.of(torch.tensor([[1, 2]])))
    weights = align(network, pair)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, dtype=torch.float64))
    with torch.no_grad():
        read = network.encode(pair.source)
        contexts = torch.cat([step.context for step in network.decode_steps(pair.target.ids, read)])
    torch.testing.assert_close(contexts, weights @ read.states[0])
