"""Path and shape of every tensor of a model, from the spec alone.

The public paths (`decoder.blocks.3.attention.f.qkv.weight`), their shapes and the part of the model they belong to.
Tests check that the network in `core` has exactly these; weights are compared with them before anything is allocated;
costs are sums over them. Knows nothing of torch and files.
"""

from collections.abc import Iterator
from math import prod
from typing import Literal, NamedTuple, TypeAlias, get_args

from triform.spec import (
    AttentionSpec,
    Buckets,
    Classify,
    FeedForwardSpec,
    Learned,
    ModelSpec,
    NormSpec,
    Own,
    Pooled,
    Span,
    StackSpec,
    Tag,
    Tied,
    Transformed,
)

Part: TypeAlias = Literal["embeddings", "attention", "cross-attention", "feed-forward", "norms", "head"]
PARTS: tuple[Part, ...] = get_args(Part)


class Entry(NamedTuple):
    """One tensor: its path, shape, part of the model, and whether it is trained."""

    path: str
    shape: tuple[int, ...]
    part: Part
    trained: bool = True

    @property
    def size(self) -> int:
        return prod(self.shape)


def inventory(spec: ModelSpec) -> dict[str, Entry]:
    """All tensors by path, in the order of the forward pass."""
    return {entry.path: entry for entry in _tensors(spec)}


def count(spec: ModelSpec) -> dict[Part, int]:
    """Number of trained parameters per part."""
    sizes = dict.fromkeys(PARTS, 0)
    for entry in _tensors(spec):
        if entry.trained:
            sizes[entry.part] += entry.size
    return sizes


def parameters(spec: ModelSpec) -> int:
    """Number of trained parameters."""
    return sum(count(spec).values())


def _tensors(spec: ModelSpec) -> Iterator[Entry]:
    yield Entry("token.weight", (spec.vocab, spec.width), "embeddings")
    for name, stack in spec.stacks.items():
        yield from _embedding(name, spec, stack)
        cross = name == "decoder" and spec.encoder is not None
        for layer in range(stack.layers):
            yield from _block(f"{name}.blocks.{layer}", spec, stack, cross=cross)
        if stack.final_norm:
            yield from _norm(f"{name}.final", stack.norm, spec.width)
    yield from _head(spec)


def _embedding(name: str, spec: ModelSpec, stack: StackSpec) -> Iterator[Entry]:
    if isinstance(spec.position, Learned):
        rows = spec.position.reserved + spec.context
        yield Entry(f"{name}.entry.position.weight", (rows, spec.width), "embeddings")
    if spec.embedding.kinds:
        yield Entry(f"{name}.entry.kinds.weight", (spec.embedding.kinds, spec.width), "embeddings")
    if spec.embedding.norm is not None:
        yield from _norm(f"{name}.entry.norm", spec.embedding.norm, spec.width)
    if isinstance(spec.position, Buckets):
        yield Entry(f"{name}.score_bias.weight", (spec.position.count, stack.attention.heads), "attention")


def _block(path: str, spec: ModelSpec, stack: StackSpec, *, cross: bool) -> Iterator[Entry]:
    yield from _residual(f"{path}.attention", stack, spec.width)
    yield from _attention(f"{path}.attention.f", stack.attention, spec.width)
    if cross:
        yield from _residual(f"{path}.cross", stack, spec.width)
        yield from _cross(f"{path}.cross.f", stack.attention, spec.width)
    yield from _residual(f"{path}.feedforward", stack, spec.width)
    yield from _feedforward(f"{path}.feedforward.f", stack.feedforward, spec.width)


def _residual(path: str, stack: StackSpec, width: int) -> Iterator[Entry]:
    slots = {"pre": ("before",), "post": ("outer",), "sandwich": ("before", "after")}[stack.norm_at]
    for slot in slots:
        yield from _norm(f"{path}.{slot}", stack.norm, width)


def _attention(path: str, a: AttentionSpec, width: int) -> Iterator[Entry]:
    rows = (a.heads + 2 * a.kv_heads) * a.head_width
    yield from _linear(f"{path}.qkv", rows, width, "attention", bias=a.bias)
    if a.qk_norm is not None:
        yield from _norm(f"{path}.q_norm", a.qk_norm, a.head_width)
        yield from _norm(f"{path}.k_norm", a.qk_norm, a.head_width)
    yield from _linear(f"{path}.out", width, a.heads * a.head_width, "attention", bias=a.out_bias)


def _cross(path: str, a: AttentionSpec, width: int) -> Iterator[Entry]:
    yield from _linear(f"{path}.q", a.heads * a.head_width, width, "cross-attention", bias=a.bias)
    yield from _linear(f"{path}.kv", 2 * a.kv_heads * a.head_width, width, "cross-attention", bias=a.bias)
    yield from _linear(f"{path}.out", width, a.heads * a.head_width, "cross-attention", bias=a.out_bias)


def _feedforward(path: str, f: FeedForwardSpec, width: int) -> Iterator[Entry]:
    yield from _linear(f"{path}.up", f.width * (2 if f.gated else 1), width, "feed-forward", bias=f.bias)
    yield from _linear(f"{path}.down", width, f.width, "feed-forward", bias=f.bias)


def _head(spec: ModelSpec) -> Iterator[Entry]:
    match spec.head:
        case Tied(shift=True):
            yield Entry("readout.shift", (spec.vocab,), "head", trained=False)
        case Own():
            yield Entry("readout.own", (spec.vocab, spec.width), "head")
        case Transformed(norm=norm):
            yield from _linear("readout.dense", spec.width, spec.width, "head", bias=True)
            yield from _norm("readout.norm", norm, spec.width)
            yield Entry("readout.free", (spec.vocab,), "head")
        case Pooled():
            yield from _linear("readout.dense", spec.width, spec.width, "head", bias=True)
        case Classify(labels=labels, act=act, bias=bias):
            if act is not None:
                yield from _linear("readout.dense", spec.width, spec.width, "head", bias=True)
            yield from _linear("readout.out", labels, spec.width, "head", bias=bias)
        case Tag(labels=labels):
            yield from _linear("readout.out", labels, spec.width, "head", bias=True)
        case Span():
            yield from _linear("readout.out", 2, spec.width, "head", bias=True)


def _linear(path: str, rows: int, columns: int, part: Part, *, bias: bool) -> Iterator[Entry]:
    yield Entry(f"{path}.weight", (rows, columns), part)
    if bias:
        yield Entry(f"{path}.bias", (rows,), part)


def _norm(path: str, norm: NormSpec, width: int) -> Iterator[Entry]:
    yield Entry(f"{path}.weight", (width,), "norms")
    if norm.kind == "layer":
        yield Entry(f"{path}.bias", (width,), "norms")
