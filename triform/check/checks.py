"""The checks: each compares two call paths to the same result, or changes an input that must have no influence."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from triform.check.fixtures import Lab, each_row
from triform.check.reference_model import ReferenceModel
from triform.core import inputs
from triform.core.attention import WrittenOut, written_out
from triform.core.build import skeleton
from triform.core.cache import Memory
from triform.core.norms import LayerNorm, RmsNorm
from triform.core.texts import PackedText, Text
from triform.inspect.taps import tapped
from triform.parameters import inventory
from triform.precision import distance
from triform.spec import ModelSpec, NoPosition, Tied, Transformed, replace

SIDES = ("left", "right", "both")

# --- the same result by two call paths-------------------------------------------------------------------------------


def compare_batched(lab: Lab) -> Iterator[float]:
    ids = lab.ids(8, lab.length)
    together = lab.logits(ids)
    for row in range(len(ids)):
        yield distance(together[row : row + 1], lab.logits(ids[row : row + 1]))


def compare_padded(lab: Lab) -> Iterator[float]:
    texts = lab.texts()
    alone = [lab.logits(text[None])[0] for text in texts]
    for pad in sorted({0, lab.unused, int(texts[0][-1])}):  # the last one: texts end with the pad token
        for side in SIDES:
            ids, keep = lab.padded(texts, pad=pad, side=side)
            for got, want in zip(each_row(lab.logits(ids, keep), keep), alone, strict=True):
                yield distance(got, want.view(-1, want.shape[-1]))


def compare_packed(lab: Lab) -> Iterator[float]:
    texts = lab.texts()
    together = lab.hidden(PackedText.join(texts))[0]
    for got, text in zip(torch.split(together, [len(text) for text in texts]), texts, strict=True):
        yield distance(got, lab.hidden(Text.of(text[None]))[0])


def compare_cached(lab: Lab) -> Iterator[float]:
    """Every split of a text into two passes; then sequences of different lengths, rolled back and continued."""
    ids = lab.ids(2, lab.length)
    memory = lab.memory(Text.of(ids))
    want = lab.decode(Text.of(ids), memory)
    for split in range(1, lab.length):
        cache = lab.cache(rows=2)
        first = lab.decode(Text.of(ids[:, :split]), memory, cache)
        second = lab.decode(Text.of(ids[:, split:]), memory, cache)
        yield distance(torch.cat((first, second), dim=1), want)
    for split in range(1, lab.length - 1):
        yield from compare_uneven(lab, ids, want, memory, split)


def compare_uneven(lab: Lab, ids: Tensor, want: Tensor, memory: tuple[Memory, ...], split: int) -> Iterator[float]:
    """Sequence 0 has all tokens but the last, sequence 1 only `split`; the next token of both in one pass, twice."""
    cache = lab.cache(rows=2)
    lab.decode(Text.of(ids[:, :split]), memory, cache)
    own = tuple(Memory(tuple((k[:1], v[:1]) for k, v in m.layers), Text.of(ids[:1])) for m in memory)
    lab.decode(Text.of(ids[:1, split:-1]), own, cache.window(0, 1))
    for _ in range(2):
        got = lab.decode(Text.of(torch.stack((ids[0, -1:], ids[1, split : split + 1]))), memory, cache)
        yield distance(got[:, 0], torch.stack((want[0, -1], want[1, split])))
        cache.roll_back(1)
    cache.reorder([1, 1])
    got = lab.decode(
        Text.of(ids[1:, split : split + 1].expand(2, 1)), memory[:0] or repeat_second_source(memory, ids), cache
    )
    yield distance(got[:, 0], want[1, split].expand(2, -1))


def repeat_second_source(memory: tuple[Memory, ...], ids: Tensor) -> tuple[Memory, ...]:
    """Both sequences attend to the second source."""
    rows = [1, 1]
    return tuple(Memory(tuple((k[rows], v[rows]) for k, v in m.layers), Text.of(ids)) for m in memory)


def compare_stepwise(lab: Lab) -> Iterator[float]:
    ids = lab.ids(2, lab.length)
    memory = lab.memory(Text.of(ids))
    want = lab.decode(Text.of(ids), memory)
    cache = lab.cache(rows=2)
    for t in range(lab.length):
        yield distance(lab.decode(Text.of(ids[:, t : t + 1]), memory, cache)[:, 0], want[:, t])


def compare_repeated(lab: Lab) -> Iterator[float]:
    ids = lab.ids(2, lab.length)
    once = lab.logits(ids)
    yield distance(lab.logits(ids), once)


# --- no leaks ---------------------------------------------------------------------------------------------------------


def change_future(lab: Lab) -> Iterator[float]:
    ids = lab.ids(1, lab.length)
    memory = lab.memory(Text.of(ids))
    before = lab.decode(Text.of(ids), memory)
    for t in range(1, lab.length):
        changed = ids.clone()
        changed[:, t:] = lab.unused
        yield distance(lab.decode(Text.of(changed), memory)[:, :t], before[:, :t])


def change_pad_tokens(lab: Lab) -> Iterator[float]:
    texts = lab.texts()
    for side in SIDES:
        one, other = (lab.logits(*lab.padded(texts, pad=pad, side=side)) for pad in (0, lab.unused))
        yield distance(other, one)


def change_neighbours(lab: Lab) -> Iterator[float]:
    texts = lab.texts()
    before = torch.split(lab.hidden(PackedText.join(texts))[0], [len(text) for text in texts])
    for changed in range(len(texts)):
        others = [torch.full_like(text, lab.unused) if i == changed else text for i, text in enumerate(texts)]
        after = torch.split(lab.hidden(PackedText.join(others))[0], [len(text) for text in texts])
        for i in range(len(texts)):
            if i != changed:
                yield distance(after[i], before[i])


def compare_source_padded(lab: Lab) -> Iterator[float]:
    """Sources of different lengths: padded at the public entry, and in rows with large numbers behind their ends."""
    sources = lab.texts()
    target = lab.ids(len(sources), lab.length)
    alone = [lab.logits(target[row : row + 1], source=source[None])[0] for row, source in enumerate(sources)]
    for side in SIDES:
        ids, keep = lab.padded(sources, pad=lab.unused, side=side)
        for got, want in zip(lab.logits(target, source=ids, source_keep=keep), alone, strict=True):
            yield distance(got, want)
    memory = lab.network.encode(PackedText.join(sources)).in_rows()
    for k, v in memory.layers:
        for row, source in enumerate(sources):
            k[row, :, len(source) :], v[row, :, len(source) :] = 1e4, -1e4
    for got, want in zip(lab.network.head(lab.network.decode(Text.of(target), memory)), alone, strict=True):
        yield distance(got, want)


def check_gradients(lab: Lab) -> Iterator[float]:
    """The gradient of output i by the embedding of j is 0 exactly where i may not attend to j, and only there."""
    ids = lab.ids(1, min(lab.length, 8))
    read: list[Tensor] = []

    def catch(path: str, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        read.append(output.detach().requires_grad_())
        return read[-1]

    with torch.enable_grad(), tapped(lab.network, "token", catch):
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
    if spec.decoder is None:
        return True
    window = spec.decoder.attention.window
    back = i if window is None else spec.decoder.layers * (window - 1)
    return i - back <= j <= i


def inject_nan(lab: Lab) -> Iterator[float]:
    """A token whose embedding is NaN: as padding, as a packed neighbour, in a cache that is rolled back."""
    texts = lab.texts()
    ids, keep = lab.padded(texts, pad=lab.unused, side="left")
    text, _ = inputs.Rows(ids, keep, torch.zeros_like(ids)).pack(range(len(texts)))
    memory = lab.memory(Text.of(texts[0].expand(2, -1)))
    want = lab.hidden(text)
    row = lab.network.token.weight.data[lab.unused]
    clean = row.clone()
    row.fill_(float("nan"))
    try:
        yield distance(lab.hidden(text), want)
        yield distance(lab.hidden(PackedText.join([*texts, torch.full((3,), lab.unused)]))[:, :-3], want)
        if lab.spec.decoder is not None and lab.length > 2:
            cache = lab.cache(rows=2)
            lab.decode(Text.of(torch.stack((texts[0][:2], torch.full((2,), lab.unused)))), memory, cache)
            cache.roll_back([0, 2])  # the second sequence starts again, beside a longer one
            got = lab.decode(Text.of(texts[0][[2, 0], None]), memory, cache)
            yield distance(got[:, 0], want[0, [2, 0]])
    finally:
        row.copy_(clean)


# --- formulas ---------------------------------------------------------------------------------------------------------


def recompute_kernels(lab: Lab) -> Iterator[tuple[Tensor, WrittenOut]]:
    """The output of every attention kernel for packed texts, and all its steps recomputed."""
    calls: list[tuple[str, tuple[Any, ...], Tensor]] = []
    with tapped(lab.network, "*.attend", lambda *call: calls.append(call)):
        lab.hidden(PackedText.join(lab.texts()))
    for path, (q, k, v, sight), output in calls:
        scale = lab.spec.stacks[path.split(".", 1)[0]].attention.score_scale
        yield output, written_out(q, k, v, added=sight.matrix(q.shape[2], k.shape[2]), scale=scale)


def compare_kernels(lab: Lab) -> Iterator[float]:
    for output, steps in recompute_kernels(lab):
        yield distance(output, steps.mixed)


def sum_weights(lab: Lab) -> Iterator[float]:
    for _, steps in recompute_kernels(lab):
        yield float((steps.weights.sum(dim=-1) - 1).abs().max())


def compare_reference(lab: Lab) -> Iterator[float]:
    angles = getattr(lab.network, next(iter(lab.spec.stacks))).angles
    rotary = {name: getattr(angles, name) for name in ("frequencies", "sharpen") if hasattr(angles, name)}
    reference = ReferenceModel(lab.spec, {path: x.double() for path, x in lab.network.state_dict().items()}, **rotary)
    for text in lab.texts()[:2]:
        want = reference.logits(text.tolist(), source=text.flip(0).tolist())
        got = lab.logits(text[None], source=text.flip(0)[None])
        yield distance(got.view(-1, got.shape[-1]), want)


def compare_norms(lab: Lab) -> Iterator[float]:
    """Every norm against its formula in float64: on vectors of usual size, a thousand times as long (real residual
    streams reach that, and their squares overflow float16), and with a mean far from 0."""
    for module in lab.network.modules():
        if isinstance(module, LayerNorm | RmsNorm):
            usual = torch.randn(4, len(module.weight), generator=lab.rng, dtype=torch.float64)
            for vectors in (usual, 1000 * usual, usual + 10):
                x = vectors.to(module.weight.dtype)
                yield distance(module(x), compute_norm(module, x.double()))


def compute_norm(module: LayerNorm | RmsNorm, x: Tensor) -> Tensor:
    """(x − m) / √(mean (x − m)² + eps) · γ + β; RMS norm has m = 0 and β = 0"""
    if isinstance(module, RmsNorm):
        return x / (x.square().mean(-1, keepdim=True) + module.eps).sqrt() * module.weight.double()
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + module.eps).sqrt() * module.weight.double() + module.bias.double()


def permute_words(lab: Lab) -> Iterator[float]:
    """The same weights without positions: permuted words give the permuted output."""
    spec = replace(lab.spec, position=NoPosition())
    blind = skeleton(spec).eval()
    state = lab.network.state_dict()
    blind.load_state_dict({path: state[path] for path in inventory(spec)}, assign=True)
    ids = lab.ids(1, lab.length)
    encoder = blind.get_submodule("encoder")
    want = encoder(blind.token(ids), Text.of(ids))
    for _ in range(3):
        shuffle = torch.randperm(lab.length, generator=lab.rng)
        moved = ids[:, shuffle]
        yield distance(encoder(blind.token(moved), Text.of(moved)), want[:, shuffle])


# --- parameters -------------------------------------------------------------------------------------------------------


def compare_parameters(lab: Lab) -> Iterator[float]:
    """Every tensor has the path and shape that the spec predicts, and there is no other."""
    state = lab.network.state_dict()
    predicted = inventory(lab.spec)
    for path in predicted.keys() | state.keys():
        same = path in predicted and path in state and predicted[path].shape == tuple(state[path].shape)
        yield 0.0 if same else float("inf")
    trained = sum(entry.size for entry in predicted.values() if entry.trained)
    yield abs(sum(parameter.numel() for parameter in lab.network.parameters()) - trained)


def compare_tied(lab: Lab) -> Iterator[float]:
    table = lab.network.token.weight
    yield 0.0 if lab.network.readout.weight(table).data_ptr() == table.data_ptr() else float("inf")


# --- the table --------------------------------------------------------------------------------------------------------


class Claim(NamedTuple):
    """A name and a sentence, the errors of all comparisons, and the models it applies to; `exact`: errors must be 0 in
    every dtype; `single`: each comparison is of one operation, so rounding does not add up over layers."""

    name: str
    says: str
    errors: Callable[[Lab], Iterator[float]]
    applies: Callable[[ModelSpec], bool] = lambda spec: True
    exact: bool = False
    single: bool = False


def has_decoder(spec: ModelSpec) -> bool:
    return spec.decoder is not None


def is_pair(spec: ModelSpec) -> bool:
    return spec.form == "encoder-decoder"


CLAIMS = (
    Claim("batched = single", "a text's result does not depend on its batch", compare_batched),
    Claim("padded = unpadded", "padding left, right or both changes nothing, for any pad token", compare_padded),
    Claim("packed = separate", "texts packed in one row give the same results as alone", compare_packed),
    Claim(
        "cached = uncached", "at every split, different lengths, rolled back, reordered", compare_cached, has_decoder
    ),
    Claim("stepwise = teacher-forced", "one token per step gives the same as one pass", compare_stepwise, has_decoder),
    Claim("same input, same result", "nothing is random", compare_repeated, exact=True),
    Claim(
        "no leak: future", "changing later tokens changes nothing before them", change_future, has_decoder, exact=True
    ),
    Claim("no leak: padding", "changing pad tokens changes nothing", change_pad_tokens, exact=True),
    Claim("no leak: neighbours", "changing one packed text changes no other", change_neighbours, exact=True),
    Claim("no leak: source padding", "cross-attention ignores source padding", compare_source_padded, is_pair),
    Claim(
        "mask = gradients",
        "gradients are 0 exactly where the mask forbids, and only there",
        check_gradients,
        exact=True,
    ),
    Claim("NaN does not spread", "from padding, packed neighbours, or a cache rolled back", inject_nan),
    Claim("kernel = formula", "softmax(q kᵀ · scale + mask) v, recomputed step by step", compare_kernels, single=True),
    Claim("rows sum to 1", "attention weights of every query and head", sum_weights, single=True),
    Claim("norm = formula", "every norm, for short and very long vectors", compare_norms, single=True),
    Claim("model = reference", "the whole model, written as plain formulas in float64", compare_reference),
    Claim(
        "order needs positions",
        "without positions, permuted words give the permuted output",
        permute_words,
        lambda spec: spec.encoder is not None,
    ),
    Claim("counted = predicted", "every tensor has the shape that the spec predicts", compare_parameters, exact=True),
    Claim(
        "tied = one tensor",
        "the output head uses the embedding matrix itself",
        compare_tied,
        lambda spec: isinstance(spec.head, Tied | Transformed),
        exact=True,
    ),
)
