"""A sweep's cells are what one pass per cell gives; and comparisons, measures and attributions of all forms."""

import numpy as np
import pytest
import torch
from tiny_models import EVERY, FAMILIES, word_tokenizer
from viewed_models import SOURCE, TARGET, model_of, seen

from triform.core.texts import Text
from triform.errors import InputError, TriformError
from triform.inspect import sweeps
from triform.inspect.changes import ScaleOutput, apply_changes, patch
from triform.inspect.compare_models import compare
from triform.inspect.measures import (
    AnswerScore,
    CosineDistance,
    Divergence,
    LogitDifference,
    Probability,
    default_measure,
)
from triform.inspect.model_answers import find_kind, read_scores, read_text, run_network
from triform.inspect.patched_model import make_patched_model
from triform.inspect.sweeps import make_cells, read_texts, sweep
from triform.inspect.view import look
from triform.model import Model

pytestmark = pytest.mark.usefixtures("unchecked")  # shapes: tests/roads, and the shorter proofs beside this one

# A model whose layers share one block has one location for all of them.
SEVERAL = [name for name in EVERY if "albert" not in name and "shared" not in name]
TEXTS = [list(SOURCE), [5, 6, 7, 1, 2, 3, 4], [1, 2, 3]]
TARGETS = [[1, 5, 6, 2], [3, 4, 5, 6], [1, 2]]


@torch.no_grad()
def scores_of(model: Model, text: list[int], target: list[int] | None, *changes: ScaleOutput) -> torch.Tensor:
    read = read_text(model, text, target)
    source, goal = Text(read.ids, read.kinds), None if read.target is None else Text.of(read.target)
    with apply_changes(model.network, changes):
        return read_scores(model, goal or source, run_network(model, source, goal), read.position)


@pytest.mark.parametrize("name", SEVERAL)
def test_every_cell_is_what_its_own_pass_gives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "PASS_TOKENS", 40)  # several passes for a layer
    model = model_of(name, torch.float64)
    pair = model.network.sides == 2
    targets = TARGETS if pair else None
    cases = [(over, stack, "self") for stack in model.spec.stacks for over in ("heads", "sublayers")]
    for over, stack, kind in [*cases, *([("heads", "decoder", "cross")] if pair else [])]:
        got = sweep(model, TEXTS, targets, over=over, stack=stack, kind=kind)
        read = read_texts(model, TEXTS, targets, position=None)
        cells = make_cells(model, read, over=over, kind=kind, stack=stack, component="stream")
        for value, location in list(zip(got.values.ravel(), cells.locations, strict=True))[::3]:
            alone = 0.0
            for i, text in enumerate(TEXTS):
                target = targets[i] if targets else None
                clean = scores_of(model, text, target)
                changed = scores_of(model, text, target, ScaleOutput(location))
                alone += float(default_measure(model).measure(model, changed, clean, [i]))
            assert abs(value - alone / 3) < 1e-12, location


def test_patching_over_positions_ends_at_the_source() -> None:
    """The whole stream of the last position of the last layer: then the answer is the source's."""
    model = model_of("gpt2", torch.float64)
    got = sweep(model, TEXTS[0], over="positions", source=TEXTS[1], measure=LogitDifference(5, 7))
    ends = [scores_of(model, text, None)[0] for text in TEXTS[:2]]
    moved = float((ends[1][5] - ends[1][7]) - (ends[0][5] - ends[0][7]))
    assert abs(got.values[-1, -1] - moved) < 1e-12
    assert got.shape == (2, 7)
    other = look(model, TEXTS[1])
    same = sweep(model, TEXTS[0], over="positions", change=lambda at: patch(other, at), measure=LogitDifference(5, 7))
    np.testing.assert_array_equal(got.values, same.values)


def test_a_source_of_another_length_is_refused_with_both_lengths() -> None:
    with pytest.raises(InputError, match="the source has 3 tokens and the text has 7"):
        sweep(model_of("gpt2"), TEXTS[0], over="positions", source=[1, 2, 3])


def test_a_list_of_locations_and_progress() -> None:
    model, seen_counts = model_of("gpt2", torch.float64), []
    got = sweep(
        model,
        TEXTS[0],
        over=["L0H1", "L1.feedforward", "decoder.entry@2"],
        progress=lambda *done: seen_counts.append(done),
    )
    whole = sweep(model, TEXTS[0], over="heads")
    assert abs(got.values[0, 0] - whole.values[0, 1]) < 1e-12
    assert seen_counts[-1] == (3, 3)


def test_names_one_per_text() -> None:
    model = model_of("gpt2", torch.float64)
    each = sweep(model, TEXTS[:2], measure=LogitDifference([5, 6], [7, 8]))
    alone = [
        sweep(model, text, measure=LogitDifference(right, right + 2))
        for text, right in zip(TEXTS, (5, 6), strict=False)
    ]
    np.testing.assert_allclose(each.values, (alone[0].values + alone[1].values) / 2, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"over": "headz"}, "is unknown; use 'heads'"),
        ({"over": "positions"}, "tokens; a sweep over positions needs equal"),
        ({"source": [1, 2]}, "needs one text, here are 3"),
        ({"measure": LogitDifference([1, 2], 3)}, "2 names and at least 3 texts"),
        ({"measure": Probability(99)}, "99 is not among the 29 scores"),
        ({"measure": Probability("cat")}, "no tokenizer"),
        ({"position": 5}, "position 5 is not in this text of 3 tokens"),
        ({"kind": "cross"}, "only the decoder of an encoder-decoder"),
        ({"stack": "encoder"}, "is not in this model"),
        ({"targets": [[1]] * 3}, "a target is for encoder-decoders"),
    ],
)
def test_bad_sweeps_are_one_line(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        sweep(model_of("gpt2"), TEXTS, **arguments)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_a_component_that_is_unknown_and_a_word_of_several_tokens() -> None:
    with pytest.raises(InputError, match="use stream, attention, feedforward"):
        sweep(model_of("gpt2"), TEXTS[0], over="positions", component="mlp")
    model = model_of("gpt2").replace(tokenizer=word_tokenizer([f"w{i}" for i in range(29)]))
    with pytest.raises(InputError, match="is 2 tokens"):
        sweep(model, "w1 w2 w3", measure=Probability("w4 w5"))


@pytest.mark.parametrize("name", SEVERAL)
def test_a_comparison_has_before_after_and_difference(name: str) -> None:
    model = model_of(name, torch.float64)
    target = TARGET if model.network.sides == 2 else None
    changed = make_patched_model(model, "off L1H2", "off L0.feedforward")
    comparison = compare(model, changed, SOURCE, target, neighbours=[TARGET])
    table = comparison.answers(4)
    before, after, difference = table.values.T
    np.testing.assert_allclose(difference, after - before, rtol=0, atol=1e-12)
    assert comparison.divergence() > 0
    assert compare(model, model, SOURCE, target).divergence() < 1e-12
    if find_kind(model) == "vector":
        assert before[0] == pytest.approx(1)
        assert table.axes[0].labels[1] == "1 5 6 2"
    if name != "electra_small":  # its embeddings are narrower than its stream
        assert comparison.views().stream().shape[1] == len(TARGET if target else SOURCE)
    assert "divergence" in repr(comparison)


def test_both_continuations_are_written() -> None:
    for name in ("gpt2", "t5"):
        model = model_of(name, torch.float64).replace(tokenizer=word_tokenizer([f"w{i}" for i in range(29)]))
        model = model.replace(generation=model.generation.__class__(first=0)) if name == "t5" else model
        before, after = compare(
            model, make_patched_model(model, "scale decoder.final -1"), "w3 w4 w5", "w1" if name == "t5" else None
        ).written()
        assert before
        assert after
        assert before != after
    with pytest.raises(InputError, match="writes no text"):
        compare(model_of("bert"), model_of("bert"), SOURCE).written()


def test_models_of_different_kinds_are_not_compared() -> None:
    with pytest.raises(InputError, match="compare models of the same kind"):
        compare(model_of("gpt2"), model_of("classify"), SOURCE)


def test_measures() -> None:
    model = model_of("gpt2", torch.float64)
    clean, changed = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[3.0, 2.0, 1.0]])
    assert float(AnswerScore(2).measure(model, changed, clean, [0])) == 1.0
    assert float(LogitDifference(0, 2).measure(model, changed, clean, [0])) == 2.0
    assert float(Probability(0).measure(model, changed, clean, [0])) == pytest.approx(0.6652, abs=1e-4)
    p, q = clean.double().softmax(-1), changed.double().softmax(-1)
    assert float(Divergence().measure(model, changed, clean, [0])) == pytest.approx(float((p * (p / q).log()).sum()))
    assert float(CosineDistance().measure(model, changed, clean, [0])) == pytest.approx(1 - 10 / 14)
    with pytest.raises(TriformError, match="neither tokens nor labels"):
        Probability(0).measure(model_of("no head"), changed, clean, [0])
    assert FAMILIES
    assert str(seen(model))
