"""Reference implementation of the whole model in plain formulas: one text, one head at a time, masks in loops.

Slow, from the spec and the weights by name, without any code of `core`: the checks compare both.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from triform.spec import (
    Act,
    Alibi,
    AttentionSpec,
    Buckets,
    Classify,
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


class HeadVectors(NamedTuple):
    """One matrix [positions, K] per head."""

    q: list[Tensor]
    k: list[Tensor]
    v: list[Tensor]


class ReferenceModel:
    """hidden(ids) or hidden(target, source); logits the same, through the head."""

    def __init__(self, spec: ModelSpec, weights: Weights, *, frequencies: Sequence[float] = (), sharpen: float = 1.0):
        self.spec = spec
        self.w = weights
        self.frequencies = frequencies  # of rotary positions, scaled
        self.sharpen = sharpen

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
        for layer in range(stack.layers):
            path = f"{name}.blocks.{layer}"
            x = self.add(f"{path}.attention", stack, x, lambda y, p=path: self.self_attention(p, name, stack, y))
            if memory is not None:
                x = self.add(f"{path}.cross", stack, x, lambda y, p=path: self.cross(p, stack.attention, y, memory))
            x = self.add(f"{path}.feedforward", stack, x, lambda y, p=path: self.feedforward(p, stack, y))
        return self.norm(f"{name}.final", stack.norm, x) if stack.final_norm else x

    def add(self, path: str, stack: StackSpec, x: Tensor, f) -> Tensor:  # type: ignore[no-untyped-def]
        if stack.norm_at == "post":
            return self.norm(f"{path}.outer", stack.norm, x + f(x))
        y = f(self.norm(f"{path}.before", stack.norm, x))
        if stack.norm_at == "sandwich":
            y = self.norm(f"{path}.after", stack.norm, y)
        return x + y

    def embed(self, name: str, ids: Sequence[int]) -> Tensor:
        rows = []
        for position, token in enumerate(ids):
            row = self.w["token.weight"][token] * self.spec.embedding.scale
            if self.spec.embedding.kinds:
                row = row + self.w[f"{name}.entry.kinds.weight"][0]
            rows.append(row + self.position_vector(name, position))
        x = torch.stack(rows)
        norm = self.spec.embedding.norm
        return x if norm is None else self.norm(f"{name}.entry.norm", norm, x)

    def position_vector(self, name: str, position: int) -> Tensor:
        width = self.spec.width
        zero = torch.zeros(width, dtype=self.w["token.weight"].dtype)
        if isinstance(self.spec.position, Learned):
            return self.w[f"{name}.entry.position.weight"][position + self.spec.position.reserved]
        if isinstance(self.spec.position, Sinusoid):
            for i in range(width // 2):
                angle = position / 10_000 ** (2 * i / width)
                at = (2 * i, 2 * i + 1) if self.spec.position.layout == "interleaved" else (i, width // 2 + i)
                zero[at[0]], zero[at[1]] = math.sin(angle), math.cos(angle)
        return zero

    # --- the parts of a block -----------------------------------------------------------------------------------------

    def self_attention(self, path: str, name: str, stack: StackSpec, x: Tensor) -> Tensor:
        a = stack.attention
        heads = self.split_heads(self.linear(f"{path}.attention.f.qkv", x), a)
        if a.qk_norm is not None:
            norm_q, norm_k = f"{path}.attention.f.q_norm", f"{path}.attention.f.k_norm"
            heads = HeadVectors(
                [self.norm(norm_q, a.qk_norm, q) for q in heads.q],
                [self.norm(norm_k, a.qk_norm, k) for k in heads.k],
                heads.v,
            )
        if isinstance(self.spec.position, Rotary):
            heads = HeadVectors([self.rotate(q) for q in heads.q], [self.rotate(k) for k in heads.k], heads.v)
        added = [self.make_bias(name, stack, head, len(x)) for head in range(a.heads)]
        return self.linear(f"{path}.attention.f.out", self.attend(heads, added, a))

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

    def make_bias(self, name: str, stack: StackSpec, head: int, length: int) -> Tensor:
        table = torch.zeros(length, length, dtype=self.w["token.weight"].dtype)
        for i in range(length):
            for j in range(length):
                table[i, j] = self.score_bias(name, stack, head, i, j) + self.mask(name, stack, i, j)
        return table

    def mask(self, name: str, stack: StackSpec, i: int, j: int) -> float:
        """0 where query i may attend to key j, else −inf"""
        if name == "encoder":
            return 0.0
        window = stack.attention.window or i + 1
        return 0.0 if i - window < j <= i else float("-inf")

    def score_bias(self, name: str, stack: StackSpec, head: int, i: int, j: int) -> Tensor | float:
        position = self.spec.position
        if isinstance(position, Alibi):
            return -alibi_slope(head, stack.attention.heads) * abs(i - j)
        if isinstance(position, Buckets):
            bucket = t5_bucket(j - i, position, two_sided=name == "encoder")
            return self.w[f"{name}.score_bias.weight"][bucket, head]
        return 0.0

    def rotate(self, x: Tensor) -> Tensor:
        """Each pair (x[i], x[i + K/2]) is a complex number, multiplied by e^(i · position · frequency)."""
        half = x.shape[1] // 2
        pairs = torch.complex(x[:, :half].contiguous(), x[:, half:].contiguous())
        angles = torch.tensor([[p * f for f in self.frequencies] for p in range(len(x))], dtype=x.dtype)
        rotated = pairs * torch.polar(torch.full_like(angles, self.sharpen), angles)
        return torch.cat((rotated.real, rotated.imag), dim=1)

    # --- small parts --------------------------------------------------------------------------------------------------

    def linear(self, path: str, x: Tensor) -> Tensor:
        y = x @ self.w[f"{path}.weight"].T
        return y + self.w[f"{path}.bias"] if f"{path}.bias" in self.w else y

    def norm(self, path: str, norm: NormSpec, x: Tensor) -> Tensor:
        if norm.kind == "rms":
            return x / (x.square().mean(-1, keepdim=True) + norm.eps).sqrt() * self.w[f"{path}.weight"]
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt()
        return scaled * self.w[f"{path}.weight"] + self.w[f"{path}.bias"]

    def apply_head(self, x: Tensor) -> Tensor:
        table = self.w["token.weight"]
        match self.spec.head:
            case Tied(scale=scale, shift=shift):
                return x * scale @ table.T + (self.w["readout.shift"] if shift else 0.0)
            case Own():
                return x @ self.w["readout.own"].T
            case Transformed(act=kind, norm=norm):
                y = self.norm("readout.norm", norm, activate(kind, self.linear("readout.dense", x)))
                return y @ table.T + self.w["readout.free"]
            case Pooled():
                return torch.tanh(self.linear("readout.dense", x[:1]))
            case Classify(act=None, pick=pick):
                return self.linear("readout.out", x[:1] if pick == "first" else x[-1:])
            case Classify(act=str() as kind, pick=pick):
                y = x[:1] if pick == "first" else x[-1:]
                return self.linear("readout.out", activate(kind, self.linear("readout.dense", y)))
            case Tag() | Span():
                return self.linear("readout.out", x)
            case _:
                return x


def activate(kind: Act, x: Tensor) -> Tensor:
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
