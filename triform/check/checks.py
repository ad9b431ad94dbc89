"""The claims that `check` proves: each compares two roads to the same answer, or looks where nothing may be seen."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from triform.check.fixtures import Finding, Lab, each_row, worst
from triform.check.reference_model import Plain
from triform.core import inputs
from triform.core.attention import written_out
from triform.core.build import skeleton
from triform.core.cache import Memory
from triform.core.norms import LayerNorm, RmsNorm
from triform.core.texts import PackedText, Text
from triform.inspect.taps import tapped
from triform.parameters import inventory
from triform.precision import distance
from triform.spec import ModelSpec, NoPosition, Tied, Transformed, replace

SIDES = ("left", "right", "both")

# --- the same answer on two roads -----------------------------------------------------------------------------------


def batched(lab: Lab) -> Iterator[float]:
    ids = lab.ids(8, lab.length)
    together = lab.logits(ids)
    for row in range(len(ids)):
        yield distance(together[row : row + 1], lab.logits(ids[row : row + 1]))


def padding(lab: Lab) -> Iterator[float]:
    texts = lab.texts()
    alone = [lab.logits(text[None])[0] for text in texts]
    for pad in sorted({0, lab.unused, int(texts[0][-1])}):  # the last: the pad token is one that texts end with
        for side in SIDES:
            ids, keep = lab.padded(texts, pad=pad, side=side)
            for got, want in zip(each_row(lab.logits(ids, keep), keep), alone, strict=True):
                yield distance(got, want.view(-1, want.shape[-1]))


def packed(lab: Lab) -> Iterator[float]:
    texts = lab.texts()
    together = lab.hidden(PackedText.join(texts))[0]
    for got, text in zip(torch.split(together, [len(text) for text in texts]), texts, strict=True):
        yield distance(got, lab.hidden(Text.of(text[None]))[0])


def cached(lab: Lab) -> Iterator[float]:
    """Every split of a text into two passes; then rows that stand at different places, roll back and read again."""
    ids = lab.ids(2, lab.length)
    memory = lab.memory(Text.of(ids))
    want = lab.decode(Text.of(ids), memory)
    for split in range(1, lab.length):
        cache = lab.cache(rows=2)
        first = lab.decode(Text.of(ids[:, :split]), memory, cache)
        second = lab.decode(Text.of(ids[:, split:]), memory, cache)
        yield distance(torch.cat((first, second), dim=1), want)
    for split in range(1, lab.length - 1):
        yield from uneven(lab, ids, want, memory, split)


def uneven(lab: Lab, ids: Tensor, want: Tensor, memory: tuple[Memory, ...], split: int) -> Iterator[float]:
    """Row 0 has read all but its last token, row 1 only `split`; the next token of both in one pass, twice."""
    cache = lab.cache(rows=2)
    lab.decode(Text.of(ids[:, :split]), memory, cache)
    own = tuple(Memory(tuple((k[:1], v[:1]) for k, v in m.layers), Text.of(ids[:1])) for m in memory)
    lab.decode(Text.of(ids[:1, split:-1]), own, cache.window(0, 1))
    for _ in range(2):
        got = lab.decode(Text.of(torch.stack((ids[0, -1:], ids[1, split : split + 1]))), memory, cache)
        yield distance(got[:, 0], torch.stack((want[0, -1], want[1, split])))
        cache.roll_back(1)
    cache.reorder([1, 1])
    got = lab.decode(Text.of(ids[1:, split : split + 1].expand(2, 1)), memory[:0] or second_twice(memory, ids), cache)
    yield distance(got[:, 0], want[1, split].expand(2, -1))


def second_twice(memory: tuple[Memory, ...], ids: Tensor) -> tuple[Memory, ...]:
    """Both rows look at the second source."""
    rows = [1, 1]
    return tuple(Memory(tuple((k[rows], v[rows]) for k, v in m.layers), Text.of(ids)) for m in memory)


def stepwise(lab: Lab) -> Iterator[float]:
    ids = lab.ids(2, lab.length)
    memory = lab.memory(Text.of(ids))
    want = lab.decode(Text.of(ids), memory)
    cache = lab.cache(rows=2)
    for t in range(lab.length):
        yield distance(lab.decode(Text.of(ids[:, t : t + 1]), memory, cache)[:, 0], want[:, t])


def repeated(lab: Lab) -> Iterator[float]:
    ids = lab.ids(2, lab.length)
    once = lab.logits(ids)
    yield distance(lab.logits(ids), once)


# --- nothing is seen that may not be ----------------------------------------------------------------------------------


def future(lab: Lab) -> Iterator[float]:
    ids = lab.ids(1, lab.length)
    memory = lab.memory(Text.of(ids))
    before = lab.decode(Text.of(ids), memory)
    for t in range(1, lab.length):
        changed = ids.clone()
        changed[:, t:] = lab.unused
        yield distance(lab.decode(Text.of(changed), memory)[:, :t], before[:, :t])


def pad_tokens(lab: Lab) -> Iterator[float]:
    texts = lab.texts()
    for side in SIDES:
        one, other = (lab.logits(*lab.padded(texts, pad=pad, side=side)) for pad in (0, lab.unused))
        yield distance(other, one)


def neighbours(lab: Lab) -> Iterator[float]:
    texts = lab.texts()
    before = torch.split(lab.hidden(PackedText.join(texts))[0], [len(text) for text in texts])
    for changed in range(len(texts)):
        others = [torch.full_like(text, lab.unused) if i == changed else text for i, text in enumerate(texts)]
        after = torch.split(lab.hidden(PackedText.join(others))[0], [len(text) for text in texts])
        for i in range(len(texts)):
            if i != changed:
                yield distance(after[i], before[i])


def source_padding(lab: Lab) -> Iterator[float]:
    """Sources of unequal length: padded at the door, and side by side in rows with anything behind their ends."""
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


def sight(lab: Lab) -> Iterator[float]:
    """The gradient of position i by the embedding of position j: 0 exactly where i may not see j, and only there."""
    ids = lab.ids(1, min(lab.length, 8))
    read: list[Tensor] = []

    def catch(path: str, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        read.append(output.detach().requires_grad_())
        return read[-1]

    with torch.enable_grad(), tapped(lab.network, "token", catch):
        hidden = lab.hidden(Text.of(ids))
        direction = torch.randn(hidden.shape[-1], generator=lab.dice, dtype=torch.float64).to(hidden.dtype)
        # read[-1] is what the last stack read: the text itself, or the target
        slopes = [torch.autograd.grad(y @ direction, read[-1], retain_graph=True)[0] for y in hidden[0]]
    for i, slope in enumerate(slopes):
        for j, influence in enumerate(slope[0].abs().amax(dim=-1).tolist()):
            if reaches(lab.spec, i, j):
                yield 0.0 if influence > 0 else float("inf")
            else:
                yield influence


def reaches(spec: ModelSpec, i: int, j: int) -> bool:
    """May position i of the output depend on position j of the same text?"""
    if spec.decoder is None:
        return True
    window = spec.decoder.attention.window
    back = i if window is None else spec.decoder.layers * (window - 1)
    return i - back <= j <= i


def not_a_number(lab: Lab) -> Iterator[float]:
    """A token whose embedding is not a number: as padding, as a packed neighbour, in a cache that is rolled back."""
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
            cache.roll_back([0, 2])  # the second row begins again, beside a longer one
            got = lab.decode(Text.of(texts[0][[2, 0], None]), memory, cache)
            yield distance(got[:, 0], want[0, [2, 0]])
    finally:
        row.copy_(clean)


# --- the formulas of the lectures -------------------------------------------------------------------------------------


class Kernel(NamedTuple):
    """What entered and left one attention kernel."""

    path: str
    q: Tensor
    k: Tensor
    v: Tensor
    sight: Any
    output: Tensor


def kernels(lab: Lab) -> list[Kernel]:
    """Every kernel, while packed texts are read."""
    seen: list[Kernel] = []
    with tapped(
        lab.network, "*.attend", lambda path, inputs, output: seen.append(Kernel._make((path, *inputs, output)))
    ):
        lab.hidden(PackedText.join(lab.texts()))
    return seen


def formula(lab: Lab) -> Iterator[float]:
    for path, q, k, v, seen, output in kernels(lab):
        scale = lab.spec.stacks[path.split(".", 1)[0]].attention.score_scale
        added = seen.matrix(q.shape[2], k.shape[2])
        yield distance(output, written_out(q, k, v, added=added, scale=scale).mixed)


def sums(lab: Lab) -> Iterator[float]:
    for path, q, k, v, seen, _ in kernels(lab):
        scale = lab.spec.stacks[path.split(".", 1)[0]].attention.score_scale
        weights = written_out(q, k, v, added=seen.matrix(q.shape[2], k.shape[2]), scale=scale).weights
        yield float((weights.sum(dim=-1) - 1).abs().max())


def lecture(lab: Lab) -> Iterator[float]:
    angles = getattr(lab.network, next(iter(lab.spec.stacks))).angles
    rotary = {name: getattr(angles, name) for name in ("frequencies", "sharpen") if hasattr(angles, name)}
    plain = Plain(lab.spec, {path: x.double() for path, x in lab.network.state_dict().items()}, **rotary)
    for text in lab.texts()[:2]:
        want = plain.logits(text.tolist(), source=text.flip(0).tolist())
        got = lab.logits(text[None], source=text.flip(0)[None])
        yield distance(got.view(-1, got.shape[-1]), want)


def norms(lab: Lab) -> Iterator[float]:
    """Every norm against its formula in float64, of vectors of the usual size, of ones a thousand times as long (real
    streams reach that, and their squares do not fit float16), and of ones far from 0 beside their spread."""
    for module in lab.network.modules():
        if isinstance(module, LayerNorm | RmsNorm):
            x = torch.randn(4, len(module.weight), generator=lab.dice, dtype=torch.float64)
            for vectors in (x, 1000 * x, x + 10):
                given = vectors.to(module.weight.dtype)
                yield distance(module(given), plain_norm(module, given.double()))


def plain_norm(module: LayerNorm | RmsNorm, x: Tensor) -> Tensor:
    """(x − m) / √(mean (x − m)² + eps) · γ + β; RMS norm has m = 0 and β = 0"""
    if isinstance(module, RmsNorm):
        return x / (x.square().mean(-1, keepdim=True) + module.eps).sqrt() * module.weight.double()
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + module.eps).sqrt() * module.weight.double() + module.bias.double()


def permutation(lab: Lab) -> Iterator[float]:
    """The same numbers under a spec without positions: the answer moves with the words."""
    spec = replace(lab.spec, position=NoPosition())
    blind = skeleton(spec).eval()
    state = lab.network.state_dict()
    blind.load_state_dict({path: state[path] for path in inventory(spec)}, assign=True)
    ids = lab.ids(1, lab.length)
    encoder = blind.get_submodule("encoder")
    want = encoder(blind.token(ids), Text.of(ids))
    for _ in range(3):
        shuffle = torch.randperm(lab.length, generator=lab.dice)
        moved = ids[:, shuffle]
        yield distance(encoder(blind.token(moved), Text.of(moved)), want[:, shuffle])


# --- the numbers themselves -------------------------------------------------------------------------------------------


def counted(lab: Lab) -> Iterator[float]:
    """Every tensor has the path and the shape that the spec predicts, and there is no other."""
    state = lab.network.state_dict()
    predicted = inventory(lab.spec)
    for path in predicted.keys() | state.keys():
        same = path in predicted and path in state and predicted[path].shape == tuple(state[path].shape)
        yield 0.0 if same else float("inf")
    trained = sum(entry.size for entry in predicted.values() if entry.trained)
    yield abs(sum(parameter.numel() for parameter in lab.network.parameters()) - trained)


def tied(lab: Lab) -> Iterator[float]:
    table = lab.network.token.weight
    yield 0.0 if lab.network.readout.weight(table).data_ptr() == table.data_ptr() else float("inf")


# --- the table --------------------------------------------------------------------------------------------------------


class Claim(NamedTuple):
    """A sentence, the errors that would refute it, where it applies; `exact`: they must be 0 in any precision;
    `single`: each comparison is of one operation, so that no errors of many layers add up."""

    name: str
    says: str
    errors: Callable[[Lab], Iterator[float]]
    applies: Callable[[ModelSpec], bool] = lambda spec: True
    exact: bool = False
    single: bool = False

    def examine(self, lab: Lab) -> Finding:
        return worst(self.errors(lab))


def has_decoder(spec: ModelSpec) -> bool:
    return spec.decoder is not None


def has_encoder(spec: ModelSpec) -> bool:
    return spec.encoder is not None


def is_pair(spec: ModelSpec) -> bool:
    return spec.form == "encoder-decoder"


def is_tied(spec: ModelSpec) -> bool:
    return isinstance(spec.head, Tied | Transformed)


CLAIMS = (
    Claim("batched = single", "a text's answer does not depend on its batch", batched),
    Claim("padded = unpadded", "padding left, right or both changes nothing, whatever the pad token", padding),
    Claim("packed = separate", "texts packed in one row answer as if alone", packed),
    Claim("cached = uncached", "at every split, rows at unequal places, rolled back, reordered", cached, has_decoder),
    Claim("stepwise = teacher-forced", "one token a step gives what one pass gives", stepwise, has_decoder),
    Claim("same input, same answer", "nothing random is alive", repeated, exact=True),
    Claim("no leak: future", "changing later tokens changes nothing before them", future, has_decoder, exact=True),
    Claim("no leak: padding", "changing pad tokens changes nothing", pad_tokens, exact=True),
    Claim("no leak: neighbours", "changing one packed text changes no other", neighbours, exact=True),
    Claim("no leak: source padding", "cross-attention sees real source tokens only", source_padding, is_pair),
    Claim("who sees whom", "gradients are 0 exactly where the mask forbids, and only there", sight, exact=True),
    Claim("NaN harms nobody", "behind a mask, beside a text, in a cache rolled back", not_a_number),
    Claim("kernel = formula", "softmax(q kᵀ · scale + mask) v, written out", formula, single=True),
    Claim("rows sum to 1", "attention weights of every query and head", sums, single=True),
    Claim("norm = formula", "every norm, of short and of very long vectors", norms, single=True),
    Claim("model = lecture", "the whole model, written plainly in float64", lecture),
    Claim("order needs positions", "without them an encoder's answer moves with its words", permutation, has_encoder),
    Claim("counted = predicted", "every tensor as the spec alone predicts it", counted, exact=True),
    Claim("tied = one tensor", "the head reads with the embedding itself", tied, is_tied, exact=True),
)
