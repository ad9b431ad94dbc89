"""Reference implementation of the whole model in plain formulas: one text, one head at a time, masks in loops.

Slow, from the spec and the weights by name, without any code of `core`: the checks compare both.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from triform.spec import (
    Act,
    Alibi,
    AttentionSpec,
    Buckets,
    Classify,
    LayerKind,
    Learned,
    ModelSpec,
    NormSpec,
    Own,
    Pooled,
    Rotary,
    Sinusoid,
    Span,
    StackSpec,
    Tag,
    Tied,
    Transformed,
)

Weights = Mapping[str, Tensor]
Part = Callable[[Tensor], Tensor]


class HeadVectors(NamedTuple):
    """One matrix [positions, K] per head."""

    q: list[Tensor]
    k: list[Tensor]
    v: list[Tensor]


class Turn(NamedTuple):
    """Of rotary positions: the frequency of each pair, scaled, and the factor on all of them."""

    frequencies: Sequence[float]
    sharpen: float


NO_TURNS: Mapping[Rotary, Turn] = {}


class ReferenceModel:
    """hidden(ids) or hidden(target, source); logits the same, through the head."""

    def __init__(self, spec: ModelSpec, weights: Weights, *, turns: Mapping[Rotary, Turn] = NO_TURNS):
        self.spec = spec
        self.w = weights
        self.turns = turns

    def hidden(self, ids: Sequence[int], *, source: Sequence[int] | None = None) -> Tensor:
        if self.spec.encoder is None and self.spec.decoder is not None:
            return self.stack("decoder", self.spec.decoder, ids)
        if self.spec.decoder is None and self.spec.encoder is not None:
            return self.stack("encoder", self.spec.encoder, ids)
        if self.spec.encoder is None or self.spec.decoder is None or source is None:
            raise ValueError("an encoder-decoder needs a source")
        return self.stack("decoder", self.spec.decoder, ids, self.stack("encoder", self.spec.encoder, source))

    def logits(self, ids: Sequence[int], *, source: Sequence[int] | None = None) -> Tensor:
        return self.apply_head(self.hidden(ids, source=source))

    # --- the stack: x → block → … → block -----------------------------------------------------------------------------

    def stack(self, name: str, stack: StackSpec, ids: Sequence[int], memory: Tensor | None = None) -> Tensor:
        x = self.embed(name, ids)
        for layer, kind in enumerate(self.spec.layer_kinds(name)):
            path, given = f"{name}.blocks.{0 if stack.shared else layer}", x
            parts: dict[str, Part] = {"attention": partial(self.self_attention, path, name, stack, kind)}
            if memory is not None:
                parts["cross"] = partial(self.cross, path, stack.attention, memory=memory)
            parts["feedforward"] = partial(self.feedforward, path, stack)
            for part, f in parts.items():
                x = self.add(f"{path}.{part}", stack, x, f, read=given if stack.parts == "parallel" else x)
        return self.norm(f"{name}.final", stack.norm, x) if stack.final_norm else x

    def add(self, path: str, stack: StackSpec, x: Tensor, f: Part, *, read: Tensor) -> Tensor:
        if f"{path}.before.weight" in self.w:
            read = self.norm(f"{path}.before", stack.norm, read)
        y = f(read) * stack.added_scale
        if stack.norm_at in ("sandwich", "after"):
            y = self.norm(f"{path}.after", stack.norm, y)
        return self.norm(f"{path}.outer", stack.norm, x + y) if stack.norm_at == "post" else x + y

    def embed(self, name: str, ids: Sequence[int]) -> Tensor:
        rows = []
        for position, token in enumerate(ids):
            row = self.w["token.weight"][token] * self.spec.embedding.scale
            if self.spec.embedding.kinds:
                row = row + self.w[f"{name}.entry.kinds.weight"][0]
            rows.append(row + self.position_vector(name, position))
        x = torch.stack(rows)
        norm = self.spec.embedding.norm
        x = x if norm is None else self.norm(f"{name}.entry.norm", norm, x)
        return x if self.spec.embedding.width is None else self.linear(f"{name}.entry.project", x)

    def position_vector(self, name: str, position: int) -> Tensor:
        width = self.spec.embedding_width
        zero = torch.zeros(width, dtype=self.w["token.weight"].dtype)
        if isinstance(self.spec.position, Learned):
            return self.w[f"{name}.entry.position.weight"][position + self.spec.position.reserved]
        if isinstance(self.spec.position, Sinusoid):
            layout, half = self.spec.position.layout, width // 2
            for i in range(half):
                exponent = i / (half - 1) if layout == "fairseq" else i / half
                angle = (position + self.spec.position.first) / 10_000**exponent
                at = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, half + i)
                zero[at[0]], zero[at[1]] = math.sin(angle), math.cos(angle)
        return zero

    # --- the parts of a block -----------------------------------------------------------------------------------------

    def self_attention(self, path: str, name: str, stack: StackSpec, kind: LayerKind, x: Tensor) -> Tensor:
        a = stack.attention
        heads = self.split_heads(self.linear(f"{path}.attention.f.qkv", x), a)
        if a.qk_norm is not None:
            q, k = (self.norm_heads(f"{path}.attention.f.{x}_norm", a, getattr(heads, x)) for x in ("q", "k"))
            heads = HeadVectors(q, k, heads.v)
        if isinstance(kind.rotary, Rotary):
            turn = self.turns[kind.rotary]
            heads = HeadVectors([rotate(q, turn) for q in heads.q], [rotate(k, turn) for k in heads.k], heads.v)
        added = [self.make_bias(name, stack, kind, head, len(x)) for head in range(a.heads)]
        return self.linear(f"{path}.attention.f.out", self.attend(heads, added, a))

    def norm_heads(self, path: str, a: AttentionSpec, heads: list[Tensor]) -> list[Tensor]:
        """Each head by itself, or all heads of a position as one vector."""
        if a.qk_norm is None:
            return heads
        if a.qk_normed_over == "head":
            return [self.norm(path, a.qk_norm, x) for x in heads]
        return list(torch.split(self.norm(f"{path}.norm", a.qk_norm, torch.cat(heads, dim=1)), a.head_width, dim=1))

    def cross(self, path: str, a: AttentionSpec, x: Tensor, memory: Tensor) -> Tensor:
        queries = self.linear(f"{path}.cross.f.q", x)
        both = self.linear(f"{path}.cross.f.kv", memory)
        k, v = both[:, : a.kv_heads * a.head_width], both[:, a.kv_heads * a.head_width :]
        heads = HeadVectors(*(list(torch.split(y, a.head_width, dim=1)) for y in (queries, k, v)))
        no_bias = torch.zeros(len(x), len(memory), dtype=x.dtype)
        return self.linear(f"{path}.cross.f.out", self.attend(heads, [no_bias] * a.heads, a))

    def attend(self, heads: HeadVectors, added: list[Tensor], a: AttentionSpec) -> Tensor:
        """Concat over heads of softmax(q kᵀ / √K + added) v"""
        scale = a.head_width**-0.5 if a.scale is None else a.scale
        mixed = []
        for head, q in enumerate(heads.q):
            group = head // (a.heads // a.kv_heads)
            scores = q @ heads.k[group].T * scale + added[head]
            mixed.append(scores.softmax(dim=-1) @ heads.v[group])
        return torch.cat(mixed, dim=1)

    def split_heads(self, x: Tensor, a: AttentionSpec) -> HeadVectors:
        columns = list(torch.split(x, a.head_width, dim=1))
        return HeadVectors(columns[: a.heads], columns[a.heads : a.heads + a.kv_heads], columns[a.heads + a.kv_heads :])

    def feedforward(self, path: str, stack: StackSpec, x: Tensor) -> Tensor:
        y = self.linear(f"{path}.feedforward.f.up", x)
        f = stack.feedforward
        if f.gated:
            return self.linear(f"{path}.feedforward.f.down", activate(f.act, y[:, : f.width]) * y[:, f.width :])
        return self.linear(f"{path}.feedforward.f.down", activate(f.act, y))

    # --- what is added to the scores ----------------------------------------------------------------------------------

    def make_bias(self, name: str, stack: StackSpec, kind: LayerKind, head: int, length: int) -> Tensor:
        table = torch.zeros(length, length, dtype=self.w["token.weight"].dtype)
        for i in range(length):
            for j in range(length):
                table[i, j] = self.score_bias(name, stack, head, i, j) + mask(name, kind, i, j)
        return table

    def score_bias(self, name: str, stack: StackSpec, head: int, i: int, j: int) -> Tensor | float:
        position = self.spec.added_to_scores
        if isinstance(position, Alibi):
            return -alibi_slope(head, stack.attention.heads) * abs(i - j)
        if isinstance(position, Buckets):
            bucket = t5_bucket(j - i, position, two_sided=name == "encoder")
            return self.w[f"{name}.score_bias.weight"][bucket, head]
        return 0.0

    # --- small parts --------------------------------------------------------------------------------------------------

    def linear(self, path: str, x: Tensor) -> Tensor:
        y = x @ self.w[f"{path}.weight"].T
        return y + self.w[f"{path}.bias"] if f"{path}.bias" in self.w else y

    def norm(self, path: str, norm: NormSpec, x: Tensor) -> Tensor:
        if norm.kind == "rms":
            factor = self.w[f"{path}.weight"] + (1.0 if norm.from_one else 0.0)
            return x / (x.square().mean(-1, keepdim=True) + norm.eps).sqrt() * factor
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt()
        return scaled * self.w[f"{path}.weight"] + (self.w[f"{path}.bias"] if norm.bias else 0.0)

    def apply_head(self, x: Tensor) -> Tensor:
        table = self.w["token.weight"]
        match self.spec.head:
            case Tied(scale=scale, shift=shift):
                return x * scale @ table.T + (self.w["readout.shift"] if shift else 0.0)
            case Own(scale=scale):
                return x * scale @ self.w["readout.own"].T
            case Transformed(act=kind, norm=norm, shift=shift):
                y = self.norm("readout.norm", norm, activate(kind, self.linear("readout.dense", x)))
                return y @ table.T + (self.w["readout.free"] if shift else 0.0)
            case Pooled():
                return torch.tanh(self.linear("readout.dense", x[:1]))
            case Classify(pick=pick) as head:
                picked = {"first": x[:1], "last": x[-1:], "mean": x.mean(0, keepdim=True)}[pick]
                return self.linear("readout.out", self.before_labels(head, picked))
            case Tag() | Span() as head:
                return self.linear("readout.out", self.before_labels(head, x))
            case _:
                return x

    def before_labels(self, head: Classify | Tag | Span, x: Tensor) -> Tensor:
        if head.act is None:
            return x
        y = activate(head.act, self.linear("readout.dense", x))
        return y if head.norm is None else self.norm("readout.norm", head.norm, y)


def mask(name: str, kind: LayerKind, i: int, j: int) -> float:
    """0 where query i may attend to key j, else −inf"""
    near = kind.window is None or abs(i - j) < kind.window
    return 0.0 if near and (name == "encoder" or j <= i) else float("-inf")


def rotate(x: Tensor, turn: Turn) -> Tensor:
    """Each pair (x[i], x[i + K/2]) is a complex number, multiplied by e^(i · position · frequency)."""
    half = len(turn.frequencies)  # what stands behind the pairs is not rotated
    pairs = torch.complex(x[:, :half].contiguous(), x[:, half : 2 * half].contiguous())
    angles = torch.tensor([[p * f for f in turn.frequencies] for p in range(len(x))], dtype=x.dtype)
    rotated = pairs * torch.polar(torch.full_like(angles, turn.sharpen), angles)
    return torch.cat((rotated.real, rotated.imag, x[:, 2 * half :]), dim=1)


def activate(kind: Act, x: Tensor) -> Tensor:
    """An activation function, written out."""
    match kind:
        case "relu":
            return x * (x > 0)
        case "gelu":
            return x * (1 + torch.erf(x / math.sqrt(2))) / 2
        case "gelu-tanh":
            return x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
        case "silu":
            return x / (1 + torch.exp(-x))
        case "tanh":
            return torch.tanh(x)
        case "gelu-sigmoid":
            return x / (1 + torch.exp(-1.702 * x))
        case "relu2":
            return (x * (x > 0)) ** 2
        case "mish":
            return x * torch.tanh(torch.log1p(torch.exp(x)))


def t5_bucket(ahead: int, position: Buckets, *, two_sided: bool) -> int:
    """The bucket of a key `ahead` positions after its query (before it, if negative)."""
    count, first = position.count, 0
    if two_sided:
        count //= 2
        first = count if ahead > 0 else 0
        offset = abs(ahead)
    else:
        offset = max(0, -ahead)
    exact = count // 2
    if offset < exact:
        return first + offset
    ratio = torch.log(torch.tensor(offset, dtype=torch.float32) / exact) / math.log(position.distance / exact)
    return first + min(count - 1, exact + int(ratio * (count - exact)))


def alibi_slope(head: int, heads: int) -> float:
    """The geometric series 2^(−8/H) …; heads beyond a power of two take every other slope of the next one."""
    power = 2 ** int(math.log2(heads))
    if head < power:
        return 2.0 ** (-8 * (head + 1) / power)
    return 2.0 ** (-8 * (2 * (head - power) + 1) / (2 * power))
