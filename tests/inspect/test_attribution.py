"""Gradients meet finite differences, integrated gradients and logits split by component sum to what they explain."""

import numpy as np
import pytest
import torch
from tiny_models import EVERY, FAMILIES
from viewed_models import SOURCE, TARGET, model_of, seen

from triform.errors import InputError
from triform.inspect.attribution import Attribution, roll_out_attention, split_logits
from triform.inspect.location_taps import tap_location
from triform.inspect.locations import locate
from triform.inspect.measures import CosineDistance
from triform.inspect.model_answers import find_kind
from triform.spec import NoHead, Pooled

pytestmark = pytest.mark.usefixtures("unchecked")  # shapes: tests/roads, and the shorter proofs beside this one

# A model whose layers share one block has one location for all of them.
SEVERAL = [name for name in EVERY if "albert" not in name and "shared" not in name]
ANSWERING = [name for name, spec in EVERY.items() if name in SEVERAL and not isinstance(spec.head, NoHead | Pooled)]
PRE_NORM = ["gpt2", "llama", "mistral", "qwen2", "qwen3", "t5", "flan_t5"]


@pytest.mark.parametrize("name", ANSWERING)
def test_gradients_are_the_limit_of_small_changes(name: str) -> None:
    model = model_of(name, torch.float64)
    attribution = Attribution(model, SOURCE, target=TARGET if model.network.sides == 2 else None)
    objective = attribution.objective
    for where in ("encoder.L0",) if model.network.sides == 2 else ("L0", "L0H1"):
        location = locate(model.network, where)
        vectors, gradient = attribution.differentiate(location)
        direction = torch.randn(gradient.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        ends = []
        for step in (1e-6 * direction, -1e-6 * direction):
            with torch.no_grad(), tap_location(model.network, location, lambda x, at, step=step: x + step):
                ends.append(float(attribution.measure_rows(objective, attribution.run_text())))
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(float((gradient * direction).sum()), rel=1e-5, abs=1e-7)
        assert attribution.gradients(where).shape == tuple(vectors.shape)


@pytest.mark.parametrize("name", [name for name in ANSWERING if name in FAMILIES])
def test_integrated_gradients_sum_to_the_change_of_the_measure(name: str) -> None:
    model = model_of(name, torch.float64)
    attribution = Attribution(model, SOURCE, target=TARGET if model.network.sides == 2 else None)
    coarse, fine = (attribution.integrated_gradients(steps=steps) for steps in (4, 200))
    assert fine.error is not None
    assert coarse.error is not None
    assert fine.error < 1e-3
    assert fine.error <= coarse.error  # more steps, less is missing
    assert attribution.gradient_times_input().shape == fine.shape


@pytest.mark.parametrize("name", PRE_NORM)
def test_logits_split_by_component_sum_to_the_logit(name: str) -> None:
    view = seen(model_of(name, torch.float64))
    for split in (split_logits(view, 5), split_logits(view, 5, 7, position=1)):
        assert split.error is not None
        assert split.error < 1e-12
    expected = float(view.logits[0, 1, 5] - view.logits[0, 1, 7])
    assert float(split.values.sum()) == pytest.approx(expected)


def test_a_head_that_is_off_adds_nothing_to_the_logit() -> None:
    model = model_of("gpt2", torch.float64)
    view = seen(model.patched("off L1H2"))
    assert split_logits(view, 5)["L1H2"].values == 0
    assert split_logits(view, 5).error < 1e-12  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "message"), [("bert", "not linear"), ("bart", "only with pre-norm"), ("tag", "needs|need")]
)
def test_logits_that_cannot_be_split(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        split_logits(seen(model_of(name)), 5)


def test_rollout_by_hand() -> None:
    view = seen(model_of("gpt2", torch.float64))
    rolled = roll_out_attention(view).values
    layers = [(view.attention(layer).values.mean(0) + np.eye(7)) / 2 for layer in (0, 1)]
    np.testing.assert_allclose(rolled, layers[1] @ layers[0])
    np.testing.assert_allclose(rolled.sum(1), 1)


def test_bad_input() -> None:
    model = model_of("gpt2")
    with pytest.raises(InputError, match="use at least 1"):
        Attribution(model, SOURCE).integrated_gradients(steps=0)
    with pytest.raises(InputError, match="use 'mean' or 'zeros'"):
        Attribution(model, SOURCE).integrated_gradients(baseline="none")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="name a measure"):
        Attribution(model_of("no head"), SOURCE).gradients("L0")
    assert Attribution(model_of("no head"), SOURCE, CosineDistance()).gradients("L0").shape == (7, 16)
    assert find_kind(model_of("no head")) == "vector"
    with pytest.raises(InputError, match="position 9 is not in this text"):
        split_logits(seen(model), 5, position=9)
