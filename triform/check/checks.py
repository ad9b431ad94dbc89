"""The checks: each compares two call paths to the same result, or changes an input that must have no influence."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from triform.check.fixtures import CheckFixture, split_rows
from triform.check.reference_model import ReferenceModel, Turn
from triform.core import inputs
from triform.core.attention import AttentionSteps, compute_attention_steps
from triform.core.build import build_skeleton
from triform.core.cache import SourceMemory
from triform.core.norms import LayerNorm, LayerNormWithoutBias, RmsNorm
from triform.core.texts import PackedText, Text
from triform.inspect.taps import tap_outputs
from triform.parameters import list_tensors
from triform.precision import relative_error
from triform.spec import ModelSpec, NoPosition, Rotary, StackSpec, Tied, Transformed, replace

SIDES = ("left", "right", "both")

# --- the same result by two call paths-------------------------------------------------------------------------------


def compare_batched(lab: CheckFixture) -> Iterator[float]:
    """A batch of rows against each row alone."""
    ids = lab.random_ids(8, lab.length)
    together = lab.logits(ids)
    for row in range(len(ids)):
        yield relative_error(together[row : row + 1], lab.logits(ids[row : row + 1]))


def compare_padded(lab: CheckFixture) -> Iterator[float]:
    """Texts padded on either side, with several pad tokens, against each text alone."""
    texts = lab.random_texts()
    alone = [lab.logits(text[None])[0] for text in texts]
    for pad in sorted({0, lab.unused_id, int(texts[0][-1])}):  # the last one: texts end with the pad token
        for side in SIDES:
            ids, keep = lab.pad_texts(texts, pad_id=pad, side=side)
            for got, want in zip(split_rows(lab.logits(ids, keep), keep), alone, strict=True):
                yield relative_error(got, want.view(-1, want.shape[-1]))


def compare_packed(lab: CheckFixture) -> Iterator[float]:
    """Texts packed one behind another against each text alone."""
    texts = lab.random_texts()
    together = lab.hidden(PackedText.join(texts))[0]
    for got, text in zip(torch.split(together, [len(text) for text in texts]), texts, strict=True):
        yield relative_error(got, lab.hidden(Text.of(text[None]))[0])


def compare_cached(lab: CheckFixture) -> Iterator[float]:
    """Every split of a text into two passes; then sequences of different lengths, rolled back and continued."""
    ids = lab.random_ids(2, lab.length)
    memory = lab.encode_source(Text.of(ids))
    want = lab.decode(Text.of(ids), memory)
    for split in range(1, lab.length):
        cache = lab.cache(rows=2)
        first = lab.decode(Text.of(ids[:, :split]), memory, cache)
        second = lab.decode(Text.of(ids[:, split:]), memory, cache)
        yield relative_error(torch.cat((first, second), dim=1), want)
    for split in range(1, lab.length - 1):
        yield from compare_uneven(lab, ids, want, memory, split)


def compare_uneven(
    lab: CheckFixture, ids: Tensor, want: Tensor, memory: tuple[SourceMemory, ...], split: int
) -> Iterator[float]:
    """Sequence 0 has all tokens but the last, sequence 1 only `split`; the next token of both in one pass, twice."""
    cache = lab.cache(rows=2)
    lab.decode(Text.of(ids[:, :split]), memory, cache)
    own = tuple(SourceMemory(tuple((k[:1], v[:1]) for k, v in m.layers), Text.of(ids[:1])) for m in memory)
    lab.decode(Text.of(ids[:1, split:-1]), own, cache.view_rows(0, 1))
    for _ in range(2):
        got = lab.decode(Text.of(torch.stack((ids[0, -1:], ids[1, split : split + 1]))), memory, cache)
        yield relative_error(got[:, 0], torch.stack((want[0, -1], want[1, split])))
        cache.roll_back(1)
    cache.reorder([1, 1])
    got = lab.decode(
        Text.of(ids[1:, split : split + 1].expand(2, 1)), memory[:0] or repeat_second_source(memory, ids), cache
    )
    yield relative_error(got[:, 0], want[1, split].expand(2, -1))


def repeat_second_source(memory: tuple[SourceMemory, ...], ids: Tensor) -> tuple[SourceMemory, ...]:
    """Both sequences attend to the second source."""
    rows = [1, 1]
    return tuple(SourceMemory(tuple((k[rows], v[rows]) for k, v in m.layers), Text.of(ids)) for m in memory)


def compare_stepwise(lab: CheckFixture) -> Iterator[float]:
    """One token per step through the cache against all tokens at once."""
    ids = lab.random_ids(2, lab.length)
    memory = lab.encode_source(Text.of(ids))
    want = lab.decode(Text.of(ids), memory)
    cache = lab.cache(rows=2)
    for t in range(lab.length):
        yield relative_error(lab.decode(Text.of(ids[:, t : t + 1]), memory, cache)[:, 0], want[:, t])


def compare_repeated(lab: CheckFixture) -> Iterator[float]:
    ids = lab.random_ids(2, lab.length)
    once = lab.logits(ids)
    yield relative_error(lab.logits(ids), once)


# --- no leaks ---------------------------------------------------------------------------------------------------------


def change_future(lab: CheckFixture) -> Iterator[float]:
    """Scores of a position must not change when later tokens do."""
    ids = lab.random_ids(1, lab.length)
    memory = lab.encode_source(Text.of(ids))
    before = lab.decode(Text.of(ids), memory)
    for t in range(1, lab.length):
        changed = ids.clone()
        changed[:, t:] = lab.unused_id
        yield relative_error(lab.decode(Text.of(changed), memory)[:, :t], before[:, :t])


def change_pad_tokens(lab: CheckFixture) -> Iterator[float]:
    """Scores must not change with the ids at padding positions."""
    texts = lab.random_texts()
    for side in SIDES:
        one, other = (lab.logits(*lab.pad_texts(texts, pad_id=pad, side=side)) for pad in (0, lab.unused_id))
        yield relative_error(other, one)


def change_neighbours(lab: CheckFixture) -> Iterator[float]:
    """A packed text's hidden states must not change when its neighbours do."""
    texts = lab.random_texts()
    before = torch.split(lab.hidden(PackedText.join(texts))[0], [len(text) for text in texts])
    for changed in range(len(texts)):
        others = [torch.full_like(text, lab.unused_id) if i == changed else text for i, text in enumerate(texts)]
        after = torch.split(lab.hidden(PackedText.join(others))[0], [len(text) for text in texts])
        for i in range(len(texts)):
            if i != changed:
                yield relative_error(after[i], before[i])


def compare_source_padded(lab: CheckFixture) -> Iterator[float]:
    """Sources of different lengths: padded at the public entry, and in rows with large numbers behind their ends."""
    sources = lab.random_texts()
    target = lab.random_ids(len(sources), lab.length)
    alone = [lab.logits(target[row : row + 1], source=source[None])[0] for row, source in enumerate(sources)]
    for side in SIDES:
        ids, keep = lab.pad_texts(sources, pad_id=lab.unused_id, side=side)
        for got, want in zip(lab.logits(target, source=ids, source_keep=keep), alone, strict=True):
            yield relative_error(got, want)
    memory = lab.network.encode(PackedText.join(sources)).in_rows()
    for k, v in memory.layers:
        for row, source in enumerate(sources):
            k[row, :, len(source) :], v[row, :, len(source) :] = 1e4, -1e4
    for got, want in zip(lab.network.head(lab.network.decode(Text.of(target), memory)), alone, strict=True):
        yield relative_error(got, want)


def check_gradients(lab: CheckFixture) -> Iterator[float]:
    """The gradient of output i by the embedding of j is 0 exactly where i may not attend to j, and only there."""
    ids = lab.random_ids(1, min(lab.length, 8))
    read: list[Tensor] = []

    def catch(path: str, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        read.append(output.detach().requires_grad_())
        return read[-1]

    with torch.enable_grad(), tap_outputs(lab.network, "token", catch):
        hidden = lab.hidden(Text.of(ids))
        direction = torch.randn(hidden.shape[-1], generator=lab.rng, dtype=torch.float64).to(hidden.dtype)
        # read[-1] is the input of the last stack: the text itself, or the target
        gradients = [torch.autograd.grad(y @ direction, read[-1], retain_graph=True)[0] for y in hidden[0]]
    for i, gradient in enumerate(gradients):
        for j, influence in enumerate(gradient[0].abs().amax(dim=-1).tolist()):
            if can_attend(lab.spec, i, j):
                yield 0.0 if influence > 0 else float("inf")
            else:
                yield influence


def can_attend(spec: ModelSpec, i: int, j: int) -> bool:
    """May position i of the output depend on position j of the same text?"""
    (name,) = list(spec.stacks)[-1:]
    windows = [kind.window for kind in spec.layer_kinds(name)]
    far = math.inf if None in windows else sum(window - 1 for window in windows if window is not None)
    return abs(i - j) <= far and (spec.decoder is None or j <= i)


def inject_nan(lab: CheckFixture) -> Iterator[float]:
    """A token whose embedding is NaN: as padding, as a packed neighbour, in a cache that is rolled back."""
    texts = lab.random_texts()
    ids, keep = lab.pad_texts(texts, pad_id=lab.unused_id, side="left")
    text, _ = inputs.TokenRows(ids, keep, torch.zeros_like(ids)).pack(range(len(texts)))
    memory = lab.encode_source(Text.of(texts[0].expand(2, -1)))
    want = lab.hidden(text)
    row = lab.network.token.weight.data[lab.unused_id]
    clean = row.clone()
    row.fill_(float("nan"))
    try:
        yield relative_error(lab.hidden(text), want)
        yield relative_error(lab.hidden(PackedText.join([*texts, torch.full((3,), lab.unused_id)]))[:, :-3], want)
        if lab.spec.decoder is not None and lab.length > 2:
            cache = lab.cache(rows=2)
            lab.decode(Text.of(torch.stack((texts[0][:2], torch.full((2,), lab.unused_id)))), memory, cache)
            cache.roll_back([0, 2])  # the second sequence starts again, beside a longer one
            got = lab.decode(Text.of(texts[0][[2, 0], None]), memory, cache)
            yield relative_error(got[:, 0], want[0, [2, 0]])
    finally:
        row.copy_(clean)


# --- formulas ---------------------------------------------------------------------------------------------------------


def recompute_kernels(lab: CheckFixture) -> Iterator[tuple[Tensor, AttentionSteps]]:
    """The output of every attention kernel for packed texts, and all its steps recomputed."""
    calls: list[tuple[str, tuple[Any, ...], Tensor]] = []
    with tap_outputs(lab.network, "*.attend", lambda *call: calls.append(call)):
        lab.hidden(PackedText.join(lab.random_texts()))
    for path, (q, k, v, sight), output in calls:
        scale = lab.spec.stacks[path.split(".", 1)[0]].attention.score_scale
        yield output, compute_attention_steps(q, k, v, added=sight.matrix(q.shape[2], k.shape[2]), scale=scale)


def compare_kernels(lab: CheckFixture) -> Iterator[float]:
    for output, steps in recompute_kernels(lab):
        yield relative_error(output, steps.mixed)


def sum_weights(lab: CheckFixture) -> Iterator[float]:
    for _, steps in recompute_kernels(lab):
        yield float((steps.weights.sum(dim=-1) - 1).abs().max())


def compare_reference(lab: CheckFixture) -> Iterator[float]:
    """The network against the plain reference model."""
    turns = {
        kind.rotary: Turn(angles.frequencies, angles.sharpen)
        for name in lab.spec.stacks
        for kind, angles in zip(
            dict.fromkeys(lab.spec.layer_kinds(name)), getattr(lab.network, name).angles, strict=True
        )
        if isinstance(kind.rotary, Rotary)
    }
    weights = {path: x.double() for path, x in lab.network.state_dict().items()}
    reference = ReferenceModel(lab.spec, weights, turns=turns)
    for text in lab.random_texts()[:2]:
        want = reference.logits(text.tolist(), source=text.flip(0).tolist())
        got = lab.logits(text[None], source=text.flip(0)[None])
        yield relative_error(got.view(-1, got.shape[-1]), want)


def compare_norms(lab: CheckFixture) -> Iterator[float]:
    """Every norm against its formula in float64: on vectors of usual size, a thousand times as long (real residual
    streams reach that, and their squares overflow float16), and with a mean far from 0."""
    for module in lab.network.modules():
        if isinstance(module, LayerNorm | LayerNormWithoutBias | RmsNorm):
            usual = torch.randn(4, len(module.weight), generator=lab.rng, dtype=torch.float64)
            for vectors in (usual, 1000 * usual, usual + 10):
                x = vectors.to(module.weight.dtype)
                yield relative_error(module(x), compute_norm(module, x.double()))


def compute_norm(module: LayerNorm | LayerNormWithoutBias | RmsNorm, x: Tensor) -> Tensor:
    """(x − m) / √(mean (x − m)² + eps) · γ + β; RMS norm has m = 0 and β = 0"""
    if isinstance(module, RmsNorm):
        return x / (x.square().mean(-1, keepdim=True) + module.eps).sqrt() * module.factor.double()
    x = x - x.mean(-1, keepdim=True)
    scaled = x / (x.square().mean(-1, keepdim=True) + module.eps).sqrt() * module.weight.double()
    return scaled + module.bias.double() if isinstance(module, LayerNorm) else scaled


def see_everything(stack: StackSpec) -> StackSpec:
    """The same blocks without windows, and without rotations of their own."""
    return replace(stack, pattern=(), attention=replace(stack.attention, window=None))


def permute_words(lab: CheckFixture) -> Iterator[float]:
    """The same weights without positions: permuted words give the permuted output."""
    encoder_spec = see_everything(lab.spec.stacks["encoder"])
    spec = replace(lab.spec, position=NoPosition(), score_bias=None, encoder=encoder_spec)
    blind = build_skeleton(spec).eval()
    state = lab.network.state_dict()
    blind.load_state_dict({path: state[path] for path in list_tensors(spec)}, assign=True)
    ids = lab.random_ids(1, lab.length)
    encoder = blind.get_submodule("encoder")
    want = encoder(blind.token(ids), Text.of(ids))
    for _ in range(3):
        shuffle = torch.randperm(lab.length, generator=lab.rng)
        moved = ids[:, shuffle]
        yield relative_error(encoder(blind.token(moved), Text.of(moved)), want[:, shuffle])


# --- parameters -------------------------------------------------------------------------------------------------------


def compare_parameters(lab: CheckFixture) -> Iterator[float]:
    """Every tensor has the path and shape that the spec predicts, and there is no other."""
    state = lab.network.state_dict()
    predicted = list_tensors(lab.spec)
    for path in predicted.keys() | state.keys():
        same = path in predicted and path in state and predicted[path].shape == tuple(state[path].shape)
        yield 0.0 if same else float("inf")
    trained = sum(entry.size for entry in predicted.values() if entry.trained)
    yield abs(sum(parameter.numel() for parameter in lab.network.parameters()) - trained)


def compare_tied(lab: CheckFixture) -> Iterator[float]:
    table = lab.network.token.weight
    yield 0.0 if lab.network.readout.weight(table).data_ptr() == table.data_ptr() else float("inf")


# --- the table --------------------------------------------------------------------------------------------------------


class Check(NamedTuple):
    """A name and a sentence, the errors of all comparisons, and the models it applies to; `exact`: errors must be 0 in
    every dtype; `single`: each comparison is of one operation, so rounding does not add up over layers."""

    name: str
    says: str
    errors: Callable[[CheckFixture], Iterator[float]]
    applies: Callable[[ModelSpec], bool] = lambda spec: True
    exact: bool = False
    single: bool = False


def has_decoder(spec: ModelSpec) -> bool:
    return spec.decoder is not None


def is_pair(spec: ModelSpec) -> bool:
    return spec.form == "encoder-decoder"


CHECKS = (
    Check("batched = single", "a text's result does not depend on its batch", compare_batched),
    Check("padded = unpadded", "padding left, right or both changes nothing, for any pad token", compare_padded),
    Check("packed = separate", "texts packed in one row give the same results as alone", compare_packed),
    Check(
        "cached = uncached", "at every split, different lengths, rolled back, reordered", compare_cached, has_decoder
    ),
    Check("stepwise = teacher-forced", "one token per step gives the same as one pass", compare_stepwise, has_decoder),
    Check("same input, same result", "nothing is random", compare_repeated, exact=True),
    Check(
        "no leak: future", "changing later tokens changes nothing before them", change_future, has_decoder, exact=True
    ),
    Check("no leak: padding", "changing pad tokens changes nothing", change_pad_tokens, exact=True),
    Check("no leak: neighbours", "changing one packed text changes no other", change_neighbours, exact=True),
    Check("no leak: source padding", "cross-attention ignores source padding", compare_source_padded, is_pair),
    Check(
        "mask = gradients",
        "gradients are 0 exactly where the mask forbids, and only there",
        check_gradients,
        exact=True,
    ),
    Check("NaN does not spread", "from padding, packed neighbours, or a cache rolled back", inject_nan),
    Check("kernel = formula", "softmax(q kᵀ · scale + mask) v, recomputed step by step", compare_kernels, single=True),
    Check("rows sum to 1", "attention weights of every query and head", sum_weights, single=True),
    Check("norm = formula", "every norm, for short and very long vectors", compare_norms, single=True),
    Check("model = reference", "the whole model, written as plain formulas in float64", compare_reference),
    Check(
        "order needs positions",
        "without positions, permuted words give the permuted output",
        permute_words,
        lambda spec: spec.encoder is not None,
    ),
    Check("counted = predicted", "every tensor has the shape that the spec predicts", compare_parameters, exact=True),
    Check(
        "tied = one tensor",
        "the output head uses the embedding matrix itself",
        compare_tied,
        lambda spec: isinstance(spec.head, Tied | Transformed),
        exact=True,
    ),
)
