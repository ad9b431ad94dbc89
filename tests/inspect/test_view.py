"""What a look shows is what happened: the kernel's answer, the stream, the sum of the heads; and it touches nothing."""

import json

import numpy as np
import pytest
import torch
from tiny_models import EVERY
from viewed_models import SOURCE, TARGET, kernels, logits, model_of, seen

from triform.core.attention import Attend
from triform.errors import InputError
from triform.inspect import attention_view
from triform.inspect.taps import tap_outputs
from triform.inspect.view import look

BOUNDS = {torch.float32: 1e-6, torch.float64: 1e-12}
SPEAKING = [name for name, spec in EVERY.items() if type(spec.head).__name__ in ("Tied", "Own", "Transformed")]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dtype", BOUNDS)
def test_what_is_recomputed_is_what_was_computed(name: str, dtype: torch.dtype) -> None:
    """Attention against the kernel, the sum of heads against the projection, the ledger against the block."""
    model, bound = model_of(name, dtype), BOUNDS[dtype]
    before = logits(model)
    view = seen(model)
    assert torch.equal(view.logits, before), "looking changed a bit"
    for where in kernels(model):
        attention = view.attention(**where)
        assert attention.error < bound
        assert np.allclose(attention.numpy().sum(-1), 1, atol=1e-6)
        heads = view.contributions(**where)
        path = f"{where['stack']}.blocks.{where['layer']}.{'cross' if where['kind'] == 'cross' else 'attention'}"
        projected = view.read(f"{path}.f.out").numpy()
        assert heads.error < bound
        assert np.abs(heads.numpy().sum(0) - projected).max() < bound
        where.pop("kind")
        ledger = view.ledger(**where)
        output = view.read(f"{where['stack']}.blocks.{where['layer']}").numpy()
        assert ledger.error < bound
        assert np.abs(ledger.numpy().sum(0) - output).max() < bound * max(1, np.abs(output).max())
    assert torch.equal(logits(model), before), "looking left something behind"


@pytest.mark.parametrize("name", ["gpt2", "mistral", "t5", "qwen3", "bert"])
def test_the_formula_is_the_kernel_step_by_step(name: str) -> None:
    view = seen(model_of(name, torch.float64))
    for where in kernels(model_of(name, torch.float64)):
        f = view.formula(head=3, **where)
        q, k, v = (x.numpy() for x in (f.q, f.k, f.v))
        scale = view.spec.stacks[where["stack"]].attention.score_scale
        assert np.allclose(f.scores.numpy(), q @ k.T * scale)
        assert np.array_equal(f.masked.numpy(), f.scores.numpy() + f.mask.numpy())
        weights = np.exp(f.masked.numpy())
        assert np.allclose(f.weights.numpy(), weights / weights.sum(-1, keepdims=True))
        assert np.array_equal(f.weights.numpy(), view.attention(head=3, **where).numpy())
        assert np.allclose(f.mixed.numpy(), f.weights.numpy() @ v)
        assert np.allclose(f.weighted_values(2).numpy().sum(0), f.mixed.numpy()[2])
        assert f.mixed.error < 1e-12


def test_q_k_v_of_a_layer_are_one_line() -> None:
    q, k, v = seen(model_of("llama")).qkv(1)
    assert q.shape == (4, 7, 4)
    assert k.shape == v.shape == (1, 7, 4)
    assert q.axes[1].labels == tuple(map(str, SOURCE))


def test_a_decoder_sees_the_past_and_a_window_only() -> None:
    weights = seen(model_of("mistral")).attention(0, 1).numpy()  # a window of 5
    ahead = np.arange(7) - np.arange(7)[:, None]
    assert ((weights > 0) == ((ahead <= 0) & (ahead > -5))).all()


def test_cross_attention_is_target_by_source() -> None:
    view = seen(model_of("bart"))
    crossing = view.attention(1, 2, kind="cross")
    assert [axis.labels for axis in crossing.axes] == [tuple(map(str, ids)) for ids in (TARGET, SOURCE)]
    assert view.attention(1, 2, stack="encoder").shape == (7, 7)
    assert view.attention(1, 2).shape == (4, 4)


def test_a_wrong_recomputation_shows_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative controls: a forgotten mask, a forgotten scale, heads of the wrong group."""
    view = seen(model_of("qwen2"))
    assert view.attention(0).error < 1e-6
    with monkeypatch.context() as patch:
        patch.setattr(attention_view.AttentionCall, "added", lambda self, head, queries: torch.zeros(1, 1, 7, 7))
        assert view.attention(0).error > 1e-3
    with monkeypatch.context() as patch:
        patch.setattr(attention_view.AttentionCall, "head_indices", lambda self, head: (head, 0, 0))
        assert view.attention(0, 0).error < 1e-6
        assert view.attention(0, 3).error > 1e-3
    with monkeypatch.context() as patch:
        patch.setattr(view.network.get_submodule("decoder.blocks.0.attention.f.attend"), "scale", 1.0)
        assert seen(model_of("qwen2")).attention(0).error > 1e-3


def test_a_ledger_without_the_norm_would_not_close() -> None:
    ledger = seen(model_of("bert")).ledger(0)
    names = ledger.axes[0].labels
    assert names == ("input", "attention", "norm after attention", "feedforward", "norm after feedforward")
    output = ledger.numpy().sum(0)
    silent = output - ledger["norm after attention"].numpy()
    assert np.abs(silent - output).max() > 0.1
    assert seen(model_of("gpt2")).ledger(0).axes[0].labels == ("input", "attention", "feedforward")
    assert seen(model_of("t5")).ledger(1).axes[0].labels == ("input", "attention", "cross", "feedforward")


def test_the_smallest_touch_would_be_seen() -> None:
    """Negative control: a tap that moves one block's answer by the last bit moves a logit."""
    model = model_of("gpt2")
    before = logits(model)
    with tap_outputs(model.network, "decoder.blocks.1", lambda path, inputs, output: output * (1 + 2**-23)):
        assert not torch.equal(logits(model), before)


def test_heads_without_the_bias_are_not_the_projection() -> None:
    view = seen(model_of("gpt2"))
    heads = view.contributions(0)[:4].numpy().sum(0)
    assert np.abs(heads - view.read("decoder.blocks.0.attention.f.out").numpy()).max() > 1e-2


def test_shares_sum_to_the_length() -> None:
    view = seen(model_of("vaswani"))
    lengths = view.stream().lengths()["block 1"].numpy()
    assert np.allclose(view.shares(1).numpy().sum(0), lengths, rtol=1e-6)


def test_the_stream_runs_from_the_token_to_the_final_norm() -> None:
    model = model_of("gpt2", torch.float64)
    view = seen(model)
    stream = view.stream()
    assert stream.axes[0].labels == ("token", "entry", "block 0", "block 1", "final")
    assert seen(model_of("albert")).stream().axes[0].labels == ("entry", "block 0", "block 1", "final")
    assert np.array_equal(stream["token"].numpy(), model.network.token.weight[list(SOURCE)].detach().numpy())
    x, y = stream["block 0", 2].numpy(), stream["block 1", 2].numpy()
    turned = np.degrees(np.arccos(x @ y / np.linalg.norm(x) / np.linalg.norm(y)))
    assert view.angles()["block 1"].numpy()[2] == pytest.approx(turned, rel=1e-6)
    pair = seen(model_of("t5"))
    for stack, ids in (("encoder", SOURCE), ("decoder", TARGET)):
        token = pair.network.token.weight[list(ids)].detach().numpy()
        assert np.array_equal(pair.stream(stack=stack)["token"].numpy(), token)


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPEAKING)
def test_the_lens_at_the_last_block_is_the_model(name: str) -> None:
    view = seen(model_of(name, torch.float64))
    chances, ids = view.logits[0].softmax(-1).max(-1)
    place = f"block {list(EVERY[name].stacks.values())[-1].layers - 1}"
    last = view.lens()[place]
    assert np.allclose(last.numpy(), chances)
    assert last.words.tolist() == [str(int(id)) for id in ids]
    assert np.allclose(view.next(5, place=place, position=1).numpy(), view.next(5, position=1).numpy())
    assert view.next(29).numpy().sum() == pytest.approx(1)
    assert not np.allclose(view.lens()["entry"].numpy(), chances)
    assert np.allclose(view.lens(positions=slice(2, 4)).numpy(), view.lens().numpy()[:, 2:4])


@pytest.mark.parametrize("name", [name for name in SPEAKING if EVERY[name].decoder is not None])
def test_each_step_is_what_one_pass_over_all_says(name: str) -> None:
    model = model_of(name, torch.float64)
    view = seen(model)
    steps = view.steps(4, k=29)
    read = TARGET if model.spec.form == "encoder-decoder" else SOURCE
    assert steps.tokens[: len(read)] == tuple(map(str, read))
    for at, step in enumerate(steps.steps):
        ids = (*read, *(earlier.id for earlier in steps.steps[:at]))
        source = SOURCE if model.spec.form == "encoder-decoder" else ids
        whole = logits(model, source, target=ids)[0, -1].softmax(-1)
        assert step.id == int(whole.argmax())
        assert np.allclose(step.next.numpy(), whole.sort(descending=True).values)
        assert step.computed == (tuple(range(len(read))) if at == 0 else (len(ids) - 1,))


def test_steps_show_what_the_cache_was_read_for() -> None:
    steps = seen(model_of("gpt2")).steps(3)
    assert [step.read for step in steps.steps] == [(), tuple(range(7)), tuple(range(8))]
    windowed = seen(model_of("mistral")).steps(3)  # five positions, itself included
    assert [step.read for step in windowed.steps] == [(), (3, 4, 5, 6), (4, 5, 6, 7)]
    table = windowed.positions()
    assert table.numpy().tolist() == [
        [2, 2, 2, 2, 2, 2, 2, 0, 0],
        [0, 0, 0, 1, 1, 1, 1, 2, 0],
        [0, 0, 0, 0, 1, 1, 1, 1, 2],
    ]
    assert json.loads(windowed.to_json())["steps"][1]["read"] == [3, 4, 5, 6]
    assert len(seen(model_of("gpt2")).steps(3, ends={steps.steps[0].id}).steps) == 1


# --- what cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ask", "said"),
    [
        ("gpt2", lambda v: v.attention(2, 0), "layer 2 is not in this decoder; its layers are 0 to 1"),
        ("gpt2", lambda v: v.attention(-1, 0), "layer -1 is not in this decoder; its layers are 0 to 1"),
        ("gpt2", lambda v: v.attention(1, 4), "head 4 is not in decoder.blocks.1.attention; its heads are 0 to 3"),
        ("gpt2", lambda v: v.formula(1, -1), "head -1 is not in decoder.blocks.1.attention; its heads are 0 to 3"),
        (
            "gpt2",
            lambda v: v.attention(0, 0, kind="cross"),
            "only the decoder of an encoder-decoder has cross-attention",
        ),
        ("gpt2", lambda v: v.attention(0, 0, kind="both"), "kind='both' is unknown; use 'self' or 'cross'"),
        ("gpt2", lambda v: v.ledger(0, stack="encoder"), "stack='encoder' is not in this model; it has decoder"),
        (
            "t5",
            lambda v: v.qkv(0, kind="cross", stack="encoder"),
            "only the decoder of an encoder-decoder has cross-attention",
        ),
        ("tag", lambda v: v.lens(), "this model has the head Tag; next tokens need a language-model head"),
        ("bert", lambda v: v.steps(), "this model is an encoder: it cannot continue a text"),
        (
            "gpt2",
            lambda v: v.steps(200),
            "200 steps after 7 tokens exceed the context of 130; use 1 to 124",
        ),
        ("gpt2", lambda v: v.next(30), "k=30 tokens cannot be shown; use 1 to 29"),
        ("gpt2", lambda v: v.next(position=7), "position 7 is not in this text; its positions are 0 to 6"),
        ("gpt2", lambda v: v.next(place="block 2"), "its places are token, entry, block 0, block 1, final"),
        ("gpt2", lambda v: v.attention(0, 0, keys=slice(9, 12)), "is empty"),
        ("gpt2", lambda v: v.read("decoder.blocks.7"), "'decoder.blocks.7' is not in this view"),
    ],
)
def test_what_is_not_there_is_one_line_with_the_range(name: str, ask: object, said: str) -> None:
    with pytest.raises(InputError) as caught:
        ask(seen(model_of(name)))  # type: ignore[operator]
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_texts_that_cannot_be_looked_at() -> None:
    decoder, pair = model_of("gpt2"), model_of("t5")
    with pytest.raises(InputError, match=r"has 131 tokens, the model reads 130"):
        look(decoder, [1] * 131)
    with pytest.raises(InputError, match=r"no tokenizer"):
        look(decoder, "text")
    with pytest.raises(InputError, match=r"one list of token ids"):
        look(decoder, [[1, 2], [3, 4]])  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"needs a target: give its ids, or start="):
        look(pair, SOURCE)
    with pytest.raises(InputError, match=r"a target is for encoder-decoders"):
        look(decoder, SOURCE, TARGET)
    with pytest.raises(InputError, match=r"holds no token"):
        look(decoder, [])


def test_a_million_weights_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("gpt2")
    view = look(model, SOURCE * 18)  # 126 tokens
    monkeypatch.setattr(attention_view, "MAX_ARRAY_NUMBERS", 126 * 126)
    monkeypatch.setattr(attention_view, "compute_attention_steps", None)
    with pytest.raises(InputError, match=r"4 heads × 126 queries × 126 keys are 63,504 weights, the limit is 15,876;"):
        view.attention(0)
    monkeypatch.undo()
    part = view.attention(0, 1, queries=slice(100, 110), keys=slice(90, 126))
    assert np.array_equal(part.numpy(), view.attention(0, 1).numpy()[100:110, 90:126])
    assert part.error < 1e-6


def test_keeping_one_layer_shows_that_layer() -> None:
    view = look(model_of("gpt2"), SOURCE, keep="decoder.blocks.1*")
    assert view.ledger(1).error < 1e-6
    assert view.attention(1, 0).error < 1e-6
    with pytest.raises(InputError, match=r"keep='decoder.blocks.1\*'"):
        view.ledger(0)


def test_half_precision_is_looked_at_in_single() -> None:
    model = model_of("llama", torch.bfloat16)
    view = seen(model)
    assert torch.equal(view.logits, logits(model))
    assert view.attention(0, 0).numpy().dtype == np.float32
    assert view.attention(0, 0).error < 0.02
    assert view.ledger(0).error < 0.02


def test_looking_works_where_gradients_are_on() -> None:
    model = model_of("gpt2")
    view = seen(model)
    assert not view.logits.requires_grad
    assert not view.attention(0, 0).numpy().flags.writeable
    assert isinstance(model.network.get_submodule("decoder.blocks.0.attention.f.attend"), Attend)


@pytest.mark.parametrize("name", EVERY)
def test_a_pass_may_end_behind_what_is_asked_for(name: str) -> None:
    """The same numbers, and nothing above has run; without `until` it would have."""
    model = model_of(name)
    stack = list(model.spec.stacks)[-1]
    goal = TARGET if model.network.sides == 2 else None
    whole = look(model, SOURCE, goal)
    ran: list[str] = []
    with tap_outputs(model.network, f"{stack}.blocks.1 readout", lambda path, inputs, output: ran.append(path)):
        part = look(model, SOURCE, goal, until=f"{stack}.blocks.0")
        assert ran == []
        look(model, SOURCE, goal)
        assert set(ran) == {f"{stack}.blocks.1", "readout"}
    assert np.array_equal(part.attention(0).numpy(), whole.attention(0).numpy())
    assert np.array_equal(part.ledger(0).numpy(), whole.ledger(0).numpy())
    for asked in (lambda: part.attention(1), lambda: part.logits, lambda: part.logits_at(0)):
        with pytest.raises(InputError, match="is not in this view"):
            asked()


@pytest.mark.parametrize("name", EVERY)
def test_logits_made_later_have_the_same_bits(name: str) -> None:
    model = model_of(name)
    goal = TARGET if model.network.sides == 2 else None
    later = look(model, SOURCE, goal, until=f"{list(model.spec.stacks)[-1]}.final")
    assert later.scores is None
    assert torch.equal(later.logits, logits(model))
    if later.logits.dim() == 3:
        assert torch.allclose(later.logits_at(2), later.logits[0, 2], atol=1e-5)


def test_a_pass_that_ends_leaves_no_tap_behind() -> None:
    model = model_of("gpt2")
    look(model, SOURCE, until="decoder.blocks.0")
    assert torch.equal(look(model, SOURCE).logits, logits(model))
    assert not any(module._forward_hooks for module in model.network.modules())
    with pytest.raises(InputError, match=r"no module path matches 'decoder\.block'"):
        look(model, SOURCE, until="decoder.block")


@pytest.mark.parametrize("name", ["gpt2", "bert", "vaswani"])
def test_some_positions_are_those_of_all(name: str) -> None:
    view = seen(model_of(name))
    some = slice(1, 3)
    assert np.array_equal(view.ledger(0, positions=some).numpy(), view.ledger(0).numpy()[:, some])
    assert np.array_equal(view.stream(positions=some).numpy(), view.stream().numpy()[:, some])
    assert np.array_equal(view.angles(positions=some).numpy(), view.angles().numpy()[:, some])
    assert np.allclose(view.contributions(0, positions=some).numpy(), view.contributions(0).numpy()[:, some], atol=1e-6)
    assert view.shares(0, positions=some).axes[1].labels == view.shares(0).axes[1].labels[some]
