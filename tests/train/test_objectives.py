"""However many passes a step takes, and however its texts lie in memory, the gradient is the same."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import VOCAB, digest, ids, largest, loss_of, network, texts

from triform.core.texts import PackedText, Text
from triform.errors import TriformError
from triform.spec import Classify
from triform.train.examples import (
    AnswerExample,
    ExampleList,
    ExamplePlace,
    LabelExample,
    RankedTexts,
    SourceTarget,
    TagExample,
    TokenExample,
    TwoTexts,
)
from triform.train.label_objectives import AnswerSpan, OneLabel, Regression, SeveralLabels, TokenLabels
from triform.train.loop import train
from triform.train.objectives import batch_texts
from triform.train.pair_objectives import CosineScores, InBatchNegatives, RankedPassages
from triform.train.run_config import Config
from triform.train.token_objectives import MaskedToken, NextToken, RestoreSpans, SequenceToSequence

LENGTHS = [1, 500, 2, 1, 37, 120, 3, 3, 64, 64, 64, 5, 250, 7, 8, 9]
LENGTHS += [1, 16, 31, 32, 33, 2, 2, 90, 4, 400, 11, 12, 13, 14, 15, 1]


def test_one_batch_of_32_is_4_of_8_is_8_of_4() -> None:
    """Rows of 1 to 500 tokens; what is summed is normalised by all targets of the step."""
    net, examples = network(context=512), [TokenExample(ids(length, seed=i)) for i, length in enumerate(LENGTHS)]
    assert len(examples) == 32
    whole = loss_of(NextToken(), net, examples)
    assert whole[1] == sum(LENGTHS) - 32
    for passes in (4, 8, 32):
        parts = loss_of(NextToken(), net, examples, passes=passes)
        assert parts[1] == whole[1]
        assert abs(parts[0] - whole[0]) / whole[1] < 1e-12
        scaled = [{path: g / whole[1] for path, g in each[2].items()} for each in (whole, parts)]
        assert largest(*scaled) < 1e-12


def test_averaging_averages_is_another_gradient() -> None:
    """Negative control: the mean of the passes' means is what most loops do, and it is wrong."""
    net, examples = network(), [TokenExample(ids(length, seed=length)) for length in (3, 50)]
    (_, n, g), (_, m, h) = (loss_of(NextToken(), net, [each]) for each in examples)
    averaged = {path: (g[path] / n + h[path] / m) / 2 for path in g}
    right = {path: each / (n + m) for path, each in loss_of(NextToken(), net, examples)[2].items()}
    assert largest(averaged, right) > 1e-4


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_in_more_passes_is_the_same_run(optimizer: str) -> None:
    """Without biases: a key's bias has no gradient but rounding, and AdamW makes a whole step of any gradient."""
    made = []
    for passes in (1, 4, 8):
        net = network("llama")
        config = Config(steps=6, batch_tokens=256, accumulate=passes, optimizer=optimizer, learning_rate=1e-3)
        train(net, objective=NextToken(), examples=texts(*(n % 60 + 1 for n in range(40))), config=config)
        made.append(dict(net.named_parameters()))
    for other in made[1:]:
        assert max(float((made[0][path] - other[path]).abs().max().detach()) for path in other) < 1e-10


def test_a_batch_without_targets_changes_nothing() -> None:
    nothing = [TokenExample(ids(1, seed=1)), TokenExample(ids(9, seed=2), learn=[False] * 9)]
    some = [TokenExample(ids(20, seed=3))]
    net = network()
    total, targets, gradients = loss_of(NextToken(), net, nothing)
    assert (total, targets, gradients) == (0.0, 0, {})
    alone, beside = loss_of(NextToken(), net, some), loss_of(NextToken(), net, some + nothing, passes=3)
    assert alone[:2] == beside[:2]
    assert largest(alone[2], beside[2]) == 0.0
    before = digest(net)
    train(net, objective=NextToken(), examples=ExampleList(nothing, lengths=[1, 9]), config=Config(steps=3))
    assert digest(net) == before


def test_packed_is_unpacked() -> None:
    """Texts of one length lie in rows; beside a text of another length they are packed: the same gradients."""
    assert isinstance(batch_texts([ids(4, seed=1), ids(4, seed=2)], device="cpu"), Text)
    assert isinstance(batch_texts([ids(4, seed=1), ids(5, seed=2)], device="cpu"), PackedText)
    examples = [TokenExample(ids(12, seed=i)) for i in range(4)] + [TokenExample(ids(3, seed=9))]
    for name in ("gpt2", "llama", "mistral"):
        net = network(name)
        whole, alone = (loss_of(NextToken(), net, examples, passes=passes) for passes in (1, 5))
        assert abs(whole[0] - alone[0]) < 1e-12 * whole[0]
        assert largest(whole[2], alone[2]) < 1e-12


def two(length: int, seed: int) -> SourceTarget:
    return SourceTarget(ids(length, seed=seed), ids(length % 7 + 1, seed=seed + 50))


SIZES = (1, 2, 9, 9, 30, 4, 17, 2)
CASES = {
    "masked": ("bert", MaskedToken(mask=4, vocab=VOCAB), lambda n, i: TokenExample(ids(n, seed=i))),
    "pairs": ("vaswani", SequenceToSequence(start=1, smoothing=0.1), lambda n, i: two(n, i)),
    "pairs of t5": ("t5", SequenceToSequence(start=0), lambda n, i: two(n, i)),
    "spans": (
        "t5",
        RestoreSpans(sentinels=range(28, 20, -1), end=1, start=0),
        lambda n, i: TokenExample(ids(n, seed=i)),
    ),
    "label": ("classify", OneLabel(smoothing=0.1), lambda n, i: LabelExample(ids(n, seed=i), i % 3)),
    "label, decoder": ("classify by a decoder", OneLabel(), lambda n, i: LabelExample(ids(n, seed=i), i % 3)),
    "labels": ("classify", SeveralLabels(labels=3), lambda n, i: LabelExample(ids(n, seed=i), [0, 2][: i % 3])),
    "tags": ("tag", TokenLabels(), lambda n, i: TagExample(ids(n, seed=i), [(k % 6) - 1 for k in range(n)])),
    "answer": ("span", AnswerSpan(), lambda n, i: AnswerExample(ids(n, seed=i), n // 3, n // 2)),
    "likeness": ("no head", CosineScores(), lambda n, i: TwoTexts(ids(n, seed=i), ids(5, seed=i + 9), i / 9)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_objective_in_one_pass_or_many(case: str) -> None:
    """Laid out together or alone, in any order."""
    name, objective, make = CASES[case]
    net, examples = network(name), [make(length, i) for i, length in enumerate(SIZES)]
    whole = loss_of(objective, net, examples)
    assert whole[1] > 0
    for passes in (3, 8):
        parts = loss_of(objective, net, examples, passes=passes)
        assert parts[1] == whole[1]
        assert abs(parts[0] - whole[0]) < 1e-11 * max(1.0, whole[0])
        assert largest(whole[2], parts[2]) < 1e-11


def test_more_passes_are_refused_where_they_are_another_loss(tmp_path: Path) -> None:
    """The other pairs of a pass are the wrong answers: fewer of them is an easier question."""
    net, folder = network("no head"), tmp_path / "run"
    pairs = [TwoTexts(ids(n, seed=n), ids(n, seed=n + 9)) for n in SIZES]
    whole, parts = (loss_of(InBatchNegatives(), net, pairs, passes=passes) for passes in (1, 4))
    assert parts[0] < 0.9 * whole[0]
    examples = ExampleList(pairs, lengths=[2 * n for n in SIZES])
    said = (
        r"accumulate=2: InBatchNegatives compares the examples of a pass .* use accumulate=1, and a smaller batch_tok"
    )
    with pytest.raises(TriformError, match=said):
        train(net, objective=InBatchNegatives(), examples=examples, config=Config(steps=1, accumulate=2), folder=folder)
    assert not folder.exists()
    train(net, objective=CosineScores(), examples=examples, config=Config(steps=1, accumulate=2))


def test_the_same_text_once_more_is_no_wrong_answer() -> None:
    """Two questions about one passage have nothing to be told apart from; a third passage is as wrong as it was."""
    net, passage, other = network("no head"), ids(9, seed=1), ids(9, seed=2)
    first, again, third = (TwoTexts(ids(7, seed=3 + i), text) for i, text in enumerate((passage, passage, other)))
    assert loss_of(InBatchNegatives(), net, [first, again])[0] == 0
    whole = loss_of(InBatchNegatives(), net, [first, again, third])[0]
    one, two = (loss_of(InBatchNegatives(), net, [each, third])[0] for each in (first, again))
    assert max(one, two) < whole < one + two


def test_a_number_for_each_text() -> None:
    net = network("classify", head=Classify(labels=1, pick="first"))
    examples = [LabelExample(ids(n, seed=n), n / 10) for n in SIZES]
    whole, parts = (loss_of(Regression(), net, examples, passes=passes) for passes in (1, 4))
    assert abs(whole[0] - parts[0]) < 1e-12
    assert largest(whole[2], parts[2]) < 1e-12


def test_what_is_drawn_belongs_to_the_place() -> None:
    objective, example = MaskedToken(mask=4, vocab=VOCAB, never=[5]), TokenExample(ids(200, seed=1))
    one, again, other = (objective.make_item(example, ExamplePlace(1, epoch, 7)) for epoch in (0, 0, 1))
    assert np.array_equal(one.ids, again.ids)
    assert np.array_equal(one.targets, again.targets)
    assert not np.array_equal(one.targets, other.targets)
    assert not (one.targets == 5).any()


def test_masks_in_their_shares() -> None:
    """15% are to be told: 80% masked, 10% another token, 10% as they were."""
    objective = MaskedToken(mask=4, vocab=10_000)
    original = np.full(200, 9_999)
    masked = other = same = 0
    for row in range(400):
        item = objective.make_item(TokenExample(original), ExamplePlace(0, 0, row))
        chosen = np.asarray(item.ids)[item.targets >= 0]
        assert len(chosen) == 30
        assert (np.asarray(item.ids)[item.targets < 0] == 9_999).all()
        masked, same = masked + (chosen == 4).sum(), same + (chosen == 9_999).sum()
        other += ((chosen != 4) & (chosen != 9_999)).sum()
    for share, count in ((0.8, masked), (0.1, other), (0.1, same)):
        assert abs(count / 12_000 - share) < 0.015


def test_spans_are_put_back() -> None:
    """Source and target together are the text again, in the order of the sentinels."""
    objective = RestoreSpans(sentinels=range(99, 89, -1), end=1, start=0)
    for length in (2, 3, 10, 100):
        text = np.arange(200, 200 + length)
        item = objective.make_item(TokenExample(text), ExamplePlace(5, 0, length))
        assert item.targets[-1] == 1
        assert item.ids[0] == 0
        assert list(item.ids[1:]) == list(item.targets[:-1])
        spans: dict[int, list[int]] = {}
        for token in item.targets[:-1].tolist():
            if token < 100:
                spans[token] = []
            else:
                spans[next(reversed(spans))].append(token)
        back = [t for token in list(item.source)[:-1] for t in (spans.pop(token) if token < 100 else [token])]
        assert back == text.tolist()
        assert not spans


def test_ranked_passages_are_the_formula_text_by_text() -> None:
    """The slow twin reads each text alone; a passage that is relevant to a query too is no wrong answer to it."""
    net, query, other = network("no head"), ids(5, seed=1), ids(6, seed=2)
    texts = [ids(4 + at, seed=10 + at) for at in range(6)]
    examples = [
        RankedTexts(query, texts[0], np.concatenate([texts[1], texts[2]]), [len(texts[1]), len(texts[2])]),
        RankedTexts(query, texts[3]),
        RankedTexts(other, texts[4], texts[0], [len(texts[0])]),
    ]

    def vector(text: np.ndarray) -> torch.Tensor:
        hidden = net.hidden(batch_texts([text], device="cpu")).detach()
        return torch.nn.functional.normalize(hidden.reshape(-1, hidden.shape[-1]).mean(0), dim=-1)

    passages = [texts[0], texts[3], texts[4], texts[1], texts[2], texts[0]]
    right = {0: {0}, 1: {1}, 2: {2}}
    hidden = {0: {1, 5}, 1: {0, 5}, 2: set()}
    total = 0.0
    for row, asked in enumerate((query, query, other)):
        scores = [20.0 * float(vector(asked) @ vector(text)) for text in passages]
        kept = [score for at, score in enumerate(scores) if at not in hidden[row]]
        (own,) = right[row]
        total -= scores[own] - float(torch.tensor(kept, dtype=torch.float64).logsumexp(0))
    loss, targets, _ = loss_of(RankedPassages(), net, examples)
    assert targets == 3
    assert loss == pytest.approx(total, abs=1e-9)
