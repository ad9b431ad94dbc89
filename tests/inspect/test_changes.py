"""Interventions as values: they do what they say in every family, batched, packed and cached alike."""

import pytest
import torch
from tiny_models import EVERY, FAMILIES
from viewed_models import SOURCE, TARGET, logits, model_of, seen

import triform
from triform.core.packed_linear import is_worth_packing
from triform.errors import InputError, TriformError
from triform.inspect.ablations import ablate_with_mean, ablate_with_resample, patch_path, steering_vector
from triform.inspect.activations import collect_activations
from triform.inspect.changes import (
    AddVector,
    ReplaceOutput,
    ScaleOutput,
    UseMask,
    UsePositions,
    UseTemperature,
    apply_changes,
    off,
    patch,
    read_vectors,
)
from triform.inspect.interventions import with_mask, with_temperature, without_feedforward, without_heads
from triform.inspect.locations import Location, locate
from triform.inspect.parse_changes import CHANGES, EXAMPLES, ChangeSources, parse_change
from triform.inspect.patched_model import make_patched_model
from triform.inspect.view import look
from triform.native.native_network import is_worth_native
from triform.weight_kinds import WeightKind

pytestmark = pytest.mark.usefixtures("unchecked")  # shapes: tests/roads, and the shorter proofs beside this one

# A model whose layers share one block has one location for all of them.
SEVERAL = [name for name in EVERY if "albert" not in name and "shared" not in name]
PLACES = ("L1H2", "L0", "L1.attention", "L0.feedforward", "L1H2.q", "L1H2.k@0,2", "L1@-1", "L0.attention@1")


@pytest.mark.parametrize("name", SEVERAL)
def test_a_run_patched_with_itself_stays_and_switched_off_it_changes(name: str) -> None:
    model = model_of(name, torch.float64)
    view = seen(model)
    for place in PLACES:
        with apply_changes(model.network, [patch(view, place)]):
            assert torch.allclose(logits(model), view.logits, rtol=0, atol=1e-13)
        with apply_changes(model.network, off(model.network, place)):
            assert name not in FAMILIES or not torch.equal(logits(model), view.logits), place


@pytest.mark.parametrize("name", [name for name in SEVERAL if name in FAMILIES])
def test_values_and_context_managers_meet(name: str) -> None:
    model = model_of(name, torch.float64)
    pairs = [
        (off(model.network, "L1H2"), without_heads(model.network, {(1, 2)})),
        (off(model.network, "L1.feedforward"), without_feedforward(model.network, [1])),
        ([UseTemperature(0.5)], with_temperature(model.network, 0.5)),
        ([UseMask("all")], with_mask(model.network, "all")),
    ]
    for values, manager in pairs:
        with apply_changes(model.network, values):
            got = logits(model)
        with manager:
            assert torch.equal(got, logits(model))


def test_positions_are_those_of_each_text_in_a_packed_batch() -> None:
    """Planted mistake: counted along the packed row, the second text would stay as it is."""
    model = model_of("gpt2", torch.float64)
    rows, keep = [[3, 4, 5, 6], [7, 8, 9, 0]], [[True] * 4, [True, True, True, False]]
    for place in ("L0@1", "L1H2@-1", "L1.attention@0,-2"):
        changes = off(model.network, place)
        with apply_changes(model.network, changes):
            together = model.logits(rows, keep=keep)
            alone = [model.logits([row[: sum(real)]])[0] for row, real in zip(rows, keep, strict=True)]
        assert torch.allclose(together[0], alone[0], rtol=0, atol=1e-12)
        assert torch.allclose(together[1, :3], alone[1], rtol=0, atol=1e-12)
        assert not torch.allclose(alone[1], model.logits([rows[1][:3]])[0])


def test_a_patched_model_generates_as_its_changes_say() -> None:
    """Cached steps and one whole pass agree, also with a change at one position only."""
    model = model_of("gpt2", torch.float64)
    for change in ("off L1H2", "off L0@2", "scale L1.feedforward 3"):
        changed = make_patched_model(model, change)
        (answer,) = changed.complete([[3, 4, 5, 6]], max_tokens=5, temperature=0.0)
        ids = [3, 4, 5, 6]
        for token in answer.tokens:
            assert int(changed.logits([ids])[0, -1].argmax()) == token
            ids.append(token)
    assert torch.equal(logits(model), logits(model_of("gpt2", torch.float64)))


def test_a_patched_model_is_changed_again_and_leaves_the_first_alone() -> None:
    model = model_of("llama", torch.float64)
    before = logits(model)
    once = make_patched_model(model, "off L1H2")
    twice = make_patched_model(once, "temperature 0.5")
    with apply_changes(model.network, [*off(model.network, "L1H2"), UseTemperature(0.5)]):
        assert torch.equal(logits(twice), logits(model))
    assert not torch.equal(logits(once), logits(twice))
    assert torch.equal(logits(model), before)
    assert once.network.token.weight is model.network.token.weight


def test_a_network_with_hooks_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triform.core.packed_linear.MIN_PACKED_PARAMETERS", 0)
    monkeypatch.setattr("triform.core.packed_linear.can_pack", lambda network: True)
    model = model_of("gpt2")
    assert is_worth_packing(model.network)
    assert not is_worth_packing(make_patched_model(model, "off L0H0").network)


@pytest.mark.parametrize("weights", ["float32", "q8"])
def test_a_patched_model_large_enough_for_native_kernels_generates_as_its_changes_say(weights: WeightKind) -> None:
    """Planted mistake: with the native copy, which has no hooks, the answer would be that of the model as it is."""
    spec = triform.families.gpt2(width=64, layers=3, heads=4, vocab=512, context=64)
    model = triform.build(spec, seed=0).with_weights(weights)
    assert is_worth_native(model.network)
    changed = make_patched_model(model, "off L0", "off L1", "off L2")
    (plain,), (answer,) = (each.complete([[3, 4, 5, 6]], max_tokens=6, temperature=0.0) for each in (model, changed))
    ids = [3, 4, 5, 6]
    for token in answer.tokens:
        assert int(changed.logits([ids])[0, -1].argmax()) == token
        ids.append(token)
    assert answer.tokens != plain.tokens


def test_adding_and_scaling() -> None:
    model = model_of("gpt2", torch.float64)
    vector = torch.arange(16, dtype=torch.float64)
    view = seen(model)
    with apply_changes(model.network, [AddVector(locate(model.network, "L0@1"), vector, 2.0)]):
        added = read_vectors(seen(model), locate(model.network, "L0")) - read_vectors(view, locate(model.network, "L0"))
    assert torch.allclose(added[1], 2 * vector, rtol=0, atol=1e-12)
    assert not added[[0, 2, 3]].any()
    with apply_changes(model.network, [ScaleOutput(locate(model.network, "L0H1"), 0.5)]):
        halved = read_vectors(seen(model), locate(model.network, "L0H1"))
    # a tap on a kernel's output changes what follows; the kernel's own record stays
    assert torch.equal(halved, read_vectors(view, locate(model.network, "L0H1")))


def test_values_from_runs() -> None:
    model = model_of("gpt2", torch.float64)
    texts = [SOURCE, TARGET, (9, 8, 7)]
    every = collect_activations(model, texts, "L1H2", position="all")
    mean = ablate_with_mean(model, "L1H2@1", texts)
    assert torch.allclose(mean.value, torch.from_numpy(every.values.mean(0)))
    drawn = ablate_with_resample(model, "L1H2", texts, seed=3)
    known = [torch.from_numpy(every.of(i).copy()) for i in range(3)]
    for at, row in enumerate(drawn.value):
        assert any(len(text) > at and torch.equal(text[at], row) for text in known)
    before = logits(model)
    with apply_changes(model.network, [drawn]):
        assert not torch.equal(logits(model), before)
    steer = steering_vector(model, "L0", [SOURCE], [TARGET])
    last = [read_vectors(look(model, ids), locate(model.network, "L0"))[-1] for ids in (SOURCE, TARGET)]
    assert torch.allclose(steer, last[0] - last[1])


def test_path_patching_is_the_direct_path_alone() -> None:
    """Written out by hand: the receiver's query of the clean stream plus what the sender alone changed in it."""
    model = model_of("gpt2", torch.float64)
    clean, source = look(model, SOURCE), look(model, (3, 4, 8, 3, 9, 11, 2))
    change = patch_path(model, clean, source, sender="L0H1", receiver="L1H2.q")
    head = locate(model.network, "L0H1")
    added = (read_vectors(source, head) - read_vectors(clean, head)) @ weight(model, 0)[:, 4:8].T
    stream = read_vectors(clean, locate(model.network, "L0")) + added
    attention = model.network.get_submodule("decoder.blocks.1.attention")
    q = attention.f.qkv(attention.before(stream))[:, 8:12]  # type: ignore[union-attr, operator]
    assert torch.allclose(change.value, q, rtol=0, atol=1e-12)
    with pytest.raises(InputError, match="does not run after"):
        patch_path(model, clean, source, sender="L1H2", receiver="L0H1")


def weight(model: object, layer: int) -> torch.Tensor:
    return model.network.get_submodule(f"decoder.blocks.{layer}.attention.f.out").weight  # type: ignore[attr-defined, no-any-return]


def test_changes_as_text() -> None:
    model = model_of("gpt2", torch.float64)
    sources = ChangeSources(seen(model), [SOURCE, TARGET], torch.zeros(16, dtype=torch.float64))
    for name, example in EXAMPLES.items():
        assert name in CHANGES
        example = example.replace("L3", "L1").replace("L6", "L1")
        for change in parse_change(model, example, sources):
            with change.apply(model.network):
                logits(model)
            assert str(change)
    assert EXAMPLES.keys() == CHANGES.keys()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("of L0H1", "unknown change 'of'"),
        ("off", "is not complete"),
        ("off L7", "its layers are 0 to 1"),
        ("off L0H1@9", "position 9 is not in this text of 7 tokens"),
        ("off L0H1.zz", "is not in this model"),
        ("off L0.feedforwards", "did you mean|is not in this model"),
        ("off L0H1@a", "positions are numbers"),
        ("off decoder.entry[2]", "has no heads"),
        ("off L0H1.feedforward", "has no heads"),
        ("scale L0H1 much", "is not a number"),
        ("patch L0H1", "needs another text"),
        ("mean L0", "needs reference texts"),
        ("steer L0", "needs a vector"),
        ("temperature 0", "out of range"),
        ("mask some", "is unknown"),
        ("positions gone", "positions can be"),
    ],
)
def test_bad_changes_are_one_line(text: str, message: str) -> None:
    model = model_of("gpt2")
    with (
        pytest.raises(TriformError, match=message) as error,
        apply_changes(model.network, parse_change(model, text, ChangeSources())),
    ):
        logits(model)
    assert "\n" not in str(error.value)


def test_a_patch_of_another_length_says_both_and_how_positions_are_matched() -> None:
    model = model_of("gpt2")
    short = look(model, (3, 4, 5))
    with (
        pytest.raises(InputError, match=r"has 7 tokens, the patch .* a text of 3: positions are matched one to one"),
        apply_changes(model.network, [patch(short, "L0")]),
    ):
        logits(model)
    with apply_changes(model.network, [patch(short, "L0@-1")]):  # the last of both
        got = read_vectors(seen(model), locate(model.network, "L0"))
    assert torch.equal(got[-1], read_vectors(short, locate(model.network, "L0"))[-1])
    with pytest.raises(InputError, match="2 source positions for 1 positions"):
        patch(short, "L0@1", source_positions=[0, 1])
    with pytest.raises(InputError, match="position 5 is not in this text of 3 tokens"):
        patch(short, "L0@1", source_positions=[5])


def test_a_vector_of_another_width() -> None:
    model = model_of("gpt2")
    for change in (
        AddVector(Location("decoder.blocks.0"), torch.ones(5)),
        ReplaceOutput(Location("decoder.entry"), torch.ones(5)),
    ):
        with pytest.raises(InputError, match="vectors of 16 numbers, this one has 5"), change.apply(model.network):
            logits(model)


def test_positions_removed_as_a_value() -> None:
    model = model_of("gpt2", torch.float64)
    before = logits(model)
    with apply_changes(model.network, [UsePositions("removed")]):
        assert not torch.equal(logits(model), before)
