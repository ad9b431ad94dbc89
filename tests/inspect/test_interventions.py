"""Interventions do what they say, on every family, and leave the network as it was."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import deepcopy
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tiny_models import EVERY, FAMILIES
from viewed_models import SOURCE, TARGET, kernels, logits, model_of, seen

from triform.core.build import build_skeleton
from triform.core.forms import Form
from triform.core.initial_weights import build_network
from triform.errors import InputError
from triform.inspect.interventions import (
    shuffle_positions,
    with_mask,
    with_output,
    with_positions,
    with_temperature,
    without_feedforward,
    without_heads,
)
from triform.inspect.view import look
from triform.model import Model
from triform.spec import ModelSpec, NoPosition, NormSpec, replace

ENCODERS = [name for name, spec in EVERY.items() if spec.form == "encoder" and spec.head == EVERY["bert"].head]
WAYS: dict[str, Callable[[Form], AbstractContextManager[None]]] = {
    "heads": lambda network: without_heads(network, {(0, 1), (1, 2)}),
    "feed-forward": lambda network: without_feedforward(network, [0, 1]),
    "patch": lambda network: with_output(network, "*.blocks.0", torch.zeros(1, 7, 16)),
    "mask": lambda network: with_mask(network, "all"),
    "removed": lambda network: with_positions(network, "removed"),
    "shuffled": lambda network: with_positions(network, "shuffled"),
    "temperature": lambda network: with_temperature(network, 0.3),
}


def with_changed(model: Model, change: Callable[[Form], None]) -> Model:
    network = deepcopy(model.network)
    with torch.no_grad():
        change(network)
    return Model(model.spec, network)


def without_sharing(model: Model) -> Model:
    """Every layer with a copy of the weights, where one block is that of all."""
    if not any(stack.shared for stack in model.spec.stacks.values()):
        return model
    spec = replace(model.spec, encoder=replace(model.spec.encoder, shared=False))
    network = build_network(spec, dtype=model.network.dtype)
    state = model.network.state_dict()
    network.load_state_dict({path: state[re.sub(r"blocks\.\d+", "blocks.0", path)] for path in network.state_dict()})
    return Model(spec, network)


def hooks(network: Form) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in network.modules())


@pytest.mark.parametrize("way", WAYS)
def test_everything_is_restored_exceptions_included(way: str) -> None:
    model = model_of("gpt2")
    before, state = logits(model), {path: x.clone() for path, x in model.network.state_dict().items()}
    with WAYS[way](model.network):
        assert not torch.equal(logits(model), before), "the intervention changed nothing"
    with pytest.raises(KeyboardInterrupt), WAYS[way](model.network):
        raise KeyboardInterrupt
    assert hooks(model.network) == 0
    assert torch.equal(logits(model), before)
    assert all(torch.equal(x, state[path]) for path, x in model.network.state_dict().items())


@pytest.mark.parametrize("name", EVERY)
def test_a_head_off_is_its_columns_of_the_output_at_zero(name: str) -> None:
    model = model_of(name, torch.float64)
    for where in kernels(model)[1::2]:
        part = "cross" if where["kind"] == "cross" else "attention"
        path = f"{where['stack']}.blocks.{where['layer']}.{part}.f"
        width = model.network.get_submodule(path).head_width  # type: ignore[union-attr]

        def zero(network: Form, path: str = path, width: Any = width) -> None:
            network.get_parameter(f"{path}.out.weight")[:, width : 3 * width] = 0

        layer = where.pop("layer")
        with without_heads(model.network, {(layer, 1), (layer, 2)}, **where):
            got = logits(model)
            view = seen(model)
        assert torch.allclose(got, logits(with_changed(without_sharing(model), zero)), rtol=0, atol=1e-14)
        assert view.attention(layer, **where).error < 1e-12  # its own answer is still shown,
        heads = view.contributions(layer, **where)
        assert heads.error < 1e-12
        assert not heads["1"].numpy().any()  # but it gave nothing
        assert heads["0"].numpy().any()


@pytest.mark.parametrize("name", FAMILIES)
def test_without_feedforward_its_layer_adds_nothing(name: str) -> None:
    model = model_of(name, torch.float64)
    with without_feedforward(model.network, [1]):
        view = seen(model)
    assert not view.ledger(1)["feedforward"].numpy().any()
    assert view.ledger(0)["feedforward"].numpy().any()
    assert view.ledger(1).error < 1e-12


def test_nothing_is_added_even_behind_a_norm_with_a_bias() -> None:
    """A layer norm after the feed-forward would make its bias of nothing."""
    spec = EVERY["sandwich norm"]
    spec = replace(spec, decoder=msgspec.structs.replace(spec.decoder, norm=NormSpec()))
    model = Model(spec, build_network(spec))
    for block in model.network.get_submodule("decoder.blocks"):
        torch.nn.init.ones_(block.feedforward.after.bias)
    with without_feedforward(model.network, [1]):
        assert not seen(model).ledger(1)["feedforward"].numpy().any()


@pytest.mark.parametrize("name", EVERY)
def test_patching_a_run_with_itself_changes_no_bit(name: str) -> None:
    model = model_of(name)
    view = seen(model)
    for path in ("token", "*.entry", "*.score_bias", "*.blocks.0.attention.f.attend", "*.blocks.1", "*.angles"):
        with with_output(model.network, path, view):
            assert torch.equal(logits(model), view.logits)


def test_patching_carries_one_run_into_another() -> None:
    model = model_of("gpt2", torch.float64)
    one, other = look(model, SOURCE), look(model, tuple(reversed(SOURCE)))
    with with_output(model.network, "decoder.blocks.1", other):
        assert torch.equal(look(model, SOURCE).logits, other.logits)
    with with_output(model.network, "decoder.blocks.0", other, positions=[2]):
        changed = look(model, SOURCE)
    block = [view.read("decoder.blocks.0").numpy() for view in (one, other, changed)]
    assert np.array_equal(block[2][2], block[1][2])
    assert np.array_equal(np.delete(block[2], 2, axis=0), np.delete(block[0], 2, axis=0))
    assert torch.equal(changed.logits[0, :2], one.logits[0, :2])
    assert not torch.equal(changed.logits[0, 3:], one.logits[0, 3:])


@pytest.mark.parametrize("name", ENCODERS)
def test_without_positions_an_encoder_moves_with_its_words(name: str) -> None:
    model = model_of(name, torch.float64)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(3))
    ids = tuple(torch.tensor(SOURCE)[order].tolist())
    with with_positions(model.network, "removed"):
        assert torch.allclose(logits(model, ids), logits(model)[:, order], rtol=0, atol=1e-12)
    assert not torch.allclose(logits(model, ids), logits(model)[:, order], atol=1e-3)


@pytest.mark.parametrize("name", EVERY)
def test_positions_removed_are_the_model_without_them(name: str) -> None:
    """Against the same numbers under a spec without positions; yarn sharpens q and k beside turning them."""
    model = model_of(name, torch.float64)
    spec = without_positions(model.spec)
    blind = Model(spec, skeleton_with(spec, model))
    with with_positions(model.network, "removed"):
        got = logits(model)
    assert torch.allclose(got, logits(blind), rtol=0, atol=1e-12) is (name != "yarn scaling")


def without_positions(spec: ModelSpec) -> ModelSpec:
    """Neither added, nor rotating in any kind of layer, nor added to the scores."""
    stacks = {
        name: replace(stack, pattern=tuple(replace(kind, rotary=NoPosition()) for kind in stack.pattern))
        for name, stack in spec.stacks.items()
    }
    return replace(spec, position=NoPosition(), score_bias=None, **stacks)


def skeleton_with(spec: ModelSpec, model: Model) -> Form:
    network = build_skeleton(spec).eval()
    state = model.network.state_dict()
    network.load_state_dict({path: state[path] for path in network.state_dict()}, assign=True)
    return network


@pytest.mark.parametrize("name", ENCODERS)
def test_shuffled_positions_are_shuffled_words(name: str) -> None:
    """Word i told to stand at p(i) answers as if it stood there."""
    model = model_of(name, torch.float64)
    p = shuffle_positions(torch.arange(7)[None], 5)[0]
    assert sorted(p.tolist()) == list(range(7))
    moved = torch.empty(7, dtype=torch.long).scatter(0, p, torch.tensor(SOURCE))
    with with_positions(model.network, "shuffled", seed=5):
        got = logits(model)
    assert torch.allclose(got, logits(model, tuple(moved.tolist()))[:, p], rtol=0, atol=1e-12)
    assert not torch.allclose(got, logits(model), atol=1e-3)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "alibi decoder", "t5"])
def test_shuffled_positions_keep_the_mask(name: str) -> None:
    view = None
    with with_positions(model_of(name).network, "shuffled"):
        view = seen(model_of(name))
    plain = seen(model_of(name)).attention(0).numpy()
    assert ((view.attention(0).numpy() > 0) == (plain > 0)).all()
    assert not np.allclose(view.attention(0).numpy(), plain)


def test_packed_texts_are_shuffled_each_in_itself() -> None:
    model = model_of("bert", torch.float64)
    ids, keep = [[3, 4, 5, 6], [7, 8, 0, 0]], [[True] * 4, [True, True, False, False]]
    with with_positions(model.network, "shuffled"):
        together = logits(model, ids, keep=keep)
        alone = logits(model, (7, 8))
    assert torch.allclose(together[1, :2], alone[0])


@pytest.mark.parametrize("name", FAMILIES)
def test_another_mask_is_obeyed(name: str) -> None:
    model = model_of(name)
    tokens = len(TARGET if model.spec.form == "encoder-decoder" else SOURCE)
    random = torch.rand(tokens, tokens, generator=torch.Generator().manual_seed(0)) < 0.4
    random |= torch.eye(tokens, dtype=torch.bool)
    rules = {"all": torch.ones(tokens, tokens), "past": torch.ones(tokens, tokens).tril(), "own": random}
    for rule, allowed in rules.items():
        with with_mask(model.network, random if rule == "own" else rule):
            attention = seen(model).attention(1)
        assert ((attention.numpy() > 0) == allowed.bool().numpy()).all()
        assert attention.error < 1e-6


def test_the_own_mask_given_back_changes_nothing() -> None:
    """Also where a bias by distance stands beside the mask."""
    for name in ("gpt2", "alibi decoder", "t5"):
        model = model_of(name, torch.float64)
        with with_mask(model.network, "past"):
            assert torch.allclose(logits(model), seen(model).logits)
        before = logits(model)
        with with_mask(model.network, "past"):
            assert torch.allclose(logits(model), before, rtol=0, atol=1e-13)


def test_a_source_can_be_hidden() -> None:
    model = model_of("bart")
    hidden = torch.ones(4, 7, dtype=torch.bool)
    hidden[:, 3] = False
    with with_mask(model.network, hidden, kind="cross"):
        view = seen(model)
    assert not view.attention(1, kind="cross").numpy()[:, :, 3].any()
    assert view.attention(1).error < 1e-6


@pytest.mark.parametrize("name", FAMILIES)
def test_temperature_divides_all_scores(name: str) -> None:
    model = model_of(name, torch.float64)
    plain = seen(model)
    with with_temperature(model.network, 2.0):
        warm = seen(model)
    stack = next(iter(model.spec.stacks))  # its first layer reads the same in both runs
    scores = plain.formula(0, 1, stack=stack).masked.numpy() / 2
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True)
    assert np.allclose(warm.attention(0, 1, stack=stack).numpy(), want, rtol=0, atol=1e-12)
    assert warm.attention(0, stack=stack).error < 1e-12


def test_interventions_reach_generation() -> None:
    model = model_of("gpt2")
    view = seen(model)
    with without_heads(model.network, {(layer, head) for layer in range(2) for head in range(4)}):
        changed = view.steps(3)
    assert not np.allclose(changed.steps[2].next.numpy(), view.steps(3).steps[2].next.numpy())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda n: without_heads(n, {(0, 9)}), "head 9 is not in decoder.blocks.0.attention; its heads are 0 to 3"),
        (lambda n: without_heads(n, {(5, 0)}), "layer 5 is not in this decoder; its layers are 0 to 1"),
        (lambda n: without_feedforward(n, [2]), "layer 2 is not in this decoder; its layers are 0 to 1"),
        (lambda n: with_output(n, "decoder.block.0", torch.zeros(1)), "no module path matches 'decoder.block.0'"),
        (lambda n: with_output(n, "token", torch.zeros(1, 3, 16)), "token outputs [1, 7, 16], the patch is [1, 3, 16]"),
        (lambda n: with_output(n, "token", torch.zeros(1, 7, 16), positions=[7]), "its positions are 0 to 6"),
        (lambda n: with_mask(n, "none"), "mask 'none' is unknown"),
        (lambda n: with_mask(n, [[True, False], [False, False]]), "query 1 has no allowed key"),
        (lambda n: with_mask(n, [[True]]), "the mask has [1, 1] queries and keys, this pass has [7, 7]"),
        (lambda n: with_mask(n, [[1.0]]), "a mask is a matrix queries × keys of True and False"),
        (lambda n: with_mask(n, "all", kind="cross"), "only the decoder of an encoder-decoder has cross-attention"),
        (lambda n: with_positions(n, "lost"), "positions can be 'removed' or 'shuffled', not 'lost'"),
        (lambda n: with_temperature(n, 0.0), "temperature=0.0 is out of range"),
    ],
)
def test_what_cannot_be_done_is_one_line(make: Any, said: str) -> None:
    model = model_of("gpt2")
    with pytest.raises(InputError) as caught, make(model.network):
        logits(model)
    assert said in str(caught.value)
    assert hooks(model.network) == 0


def test_shuffling_a_text_that_goes_on_is_refused() -> None:
    view = seen(model_of("gpt2"))
    with pytest.raises(InputError, match=r"continues from a cache"), with_positions(view.network, "shuffled"):
        view.steps(2)
