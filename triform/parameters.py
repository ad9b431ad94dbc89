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
from triform.weight_kinds import WeightKind, bytes_of_matrix, kind_of_table

ModelPart: TypeAlias = Literal["embeddings", "attention", "cross-attention", "feed-forward", "norms", "head"]
MODEL_PARTS: tuple[ModelPart, ...] = get_args(ModelPart)


class TensorInfo(NamedTuple):
    """One tensor: its path, shape, part of the model, and whether it is trained."""

    path: str
    shape: tuple[int, ...]
    part: ModelPart
    trained: bool = True

    @property
    def size(self) -> int:
        return prod(self.shape)


def list_tensors(spec: ModelSpec) -> dict[str, TensorInfo]:
    """All tensors by path, in the order of the forward pass."""
    return {entry.path: entry for entry in _tensors(spec)}


def count_by_part(spec: ModelSpec) -> dict[ModelPart, int]:
    """Number of trained parameters per part."""
    sizes = dict.fromkeys(MODEL_PARTS, 0)
    for entry in _tensors(spec):
        if entry.trained:
            sizes[entry.part] += entry.size
    return sizes


def count_parameters(spec: ModelSpec) -> int:
    """Number of trained parameters."""
    return sum(count_by_part(spec).values())


def kinds_of_matrices(spec: ModelSpec, kind: WeightKind) -> dict[str, WeightKind]:
    """The tensors that are stored in this kind of weights, by path: the linear layers of blocks, and in the kind of
    tables the token table and the language-model head. All others are small and stay float32."""
    tables = ("token.weight", "readout.own")
    kinds: dict[str, WeightKind] = {}
    for entry in _tensors(spec):
        if entry.path in tables:
            kinds[entry.path] = kind_of_table(kind)
        elif len(entry.shape) == 2 and ".blocks." in entry.path:
            kinds[entry.path] = kind
    return kinds


def bytes_of_weights(spec: ModelSpec, kind: WeightKind) -> int:
    """Of all tensors of a model with this kind of weights, others in float32."""
    kinds = kinds_of_matrices(spec, kind)
    return sum(bytes_of_tensor(entry, kinds.get(entry.path, "float32")) for entry in _tensors(spec))


def bytes_of_tensor(tensor: TensorInfo, kind: WeightKind) -> int:
    return bytes_of_matrix(kind, prod(tensor.shape[:-1]), tensor.shape[-1])


def _tensors(spec: ModelSpec) -> Iterator[TensorInfo]:
    yield TensorInfo("token.weight", (spec.vocab, spec.embedding_width), "embeddings")
    for name, stack in spec.stacks.items():
        yield from _embedding(name, spec, stack)
        cross = name == "decoder" and spec.encoder is not None
        for layer in range(1 if stack.shared else stack.layers):
            yield from _block(f"{name}.blocks.{layer}", spec, stack, cross=cross)
        if stack.final_norm:
            yield from _norm(f"{name}.final", stack.norm, spec.width)
    yield from _head(spec)


def _embedding(name: str, spec: ModelSpec, stack: StackSpec) -> Iterator[TensorInfo]:
    width, buckets = spec.embedding_width, spec.added_to_scores
    if isinstance(spec.position, Learned):
        rows = spec.position.reserved + spec.context
        yield TensorInfo(f"{name}.entry.position.weight", (rows, width), "embeddings")
    if spec.embedding.kinds:
        yield TensorInfo(f"{name}.entry.kinds.weight", (spec.embedding.kinds, width), "embeddings")
    if spec.embedding.norm is not None:
        yield from _norm(f"{name}.entry.norm", spec.embedding.norm, width)
    if spec.embedding.width is not None:
        yield from _linear(f"{name}.entry.project", spec.width, width, "embeddings", bias=True)
    if isinstance(buckets, Buckets):
        yield TensorInfo(f"{name}.score_bias.weight", (buckets.count, stack.attention.heads), "attention")


def _block(path: str, spec: ModelSpec, stack: StackSpec, *, cross: bool) -> Iterator[TensorInfo]:
    if stack.first_norm or not path.endswith("blocks.0"):
        yield from _residual(f"{path}.attention", stack, spec.width)
    yield from _attention(f"{path}.attention.f", stack.attention, spec.width)
    if cross:
        yield from _residual(f"{path}.cross", stack, spec.width)
        yield from _cross(f"{path}.cross.f", stack.attention, spec.width)
    yield from _residual(f"{path}.feedforward", stack, spec.width)
    yield from _feedforward(f"{path}.feedforward.f", stack.feedforward, spec.width)


def _residual(path: str, stack: StackSpec, width: int) -> Iterator[TensorInfo]:
    slots = {"pre": ("before",), "post": ("outer",), "sandwich": ("before", "after"), "after": ("after",)}[
        stack.norm_at
    ]
    for slot in slots:
        yield from _norm(f"{path}.{slot}", stack.norm, width)


def _attention(path: str, a: AttentionSpec, width: int) -> Iterator[TensorInfo]:
    rows = (a.heads + 2 * a.kv_heads) * a.head_width
    yield from _linear(f"{path}.qkv", rows, width, "attention", bias=a.bias)
    if a.qk_norm is not None:
        for name, heads in (("q_norm", a.heads), ("k_norm", a.kv_heads)):
            if a.qk_normed_over == "head":
                yield from _norm(f"{path}.{name}", a.qk_norm, a.head_width)
            else:
                yield from _norm(f"{path}.{name}.norm", a.qk_norm, heads * a.head_width)
    yield from _linear(f"{path}.out", width, a.heads * a.head_width, "attention", bias=a.out_bias)


def _cross(path: str, a: AttentionSpec, width: int) -> Iterator[TensorInfo]:
    yield from _linear(f"{path}.q", a.heads * a.head_width, width, "cross-attention", bias=a.bias)
    yield from _linear(f"{path}.kv", 2 * a.kv_heads * a.head_width, width, "cross-attention", bias=a.bias)
    yield from _linear(f"{path}.out", width, a.heads * a.head_width, "cross-attention", bias=a.out_bias)


def _feedforward(path: str, f: FeedForwardSpec, width: int) -> Iterator[TensorInfo]:
    yield from _linear(f"{path}.up", f.width * (2 if f.gated else 1), width, "feed-forward", bias=f.bias)
    yield from _linear(f"{path}.down", width, f.width, "feed-forward", bias=f.has_down_bias)


def _head(spec: ModelSpec) -> Iterator[TensorInfo]:
    match spec.head:
        case Tied(shift=True):
            yield TensorInfo("readout.shift", (spec.vocab,), "head", trained=False)
        case Own():
            yield TensorInfo("readout.own", (spec.vocab, spec.width), "head")
        case Transformed(norm=norm, bias=bias, shift=shift):
            yield from _linear("readout.dense", spec.embedding_width, spec.width, "head", bias=bias)
            yield from _norm("readout.norm", norm, spec.embedding_width)
            if shift:
                yield TensorInfo("readout.free", (spec.vocab,), "head")
        case Pooled():
            yield from _linear("readout.dense", spec.width, spec.width, "head", bias=True)
        case Classify(labels=labels, bias=bias):
            yield from _dense(spec.head, spec.width)
            yield from _linear("readout.out", labels, spec.width, "head", bias=bias)
        case Tag(labels=labels):
            yield from _dense(spec.head, spec.width)
            yield from _linear("readout.out", labels, spec.width, "head", bias=True)
        case Span():
            yield from _dense(spec.head, spec.width)
            yield from _linear("readout.out", 2, spec.width, "head", bias=True)


def _dense(head: Classify | Tag | Span, width: int) -> Iterator[TensorInfo]:
    if head.act is not None:
        yield from _linear("readout.dense", width, width, "head", bias=head.dense_bias)
    if head.norm is not None:
        yield from _norm("readout.norm", head.norm, width)


def _linear(path: str, rows: int, columns: int, part: ModelPart, *, bias: bool) -> Iterator[TensorInfo]:
    yield TensorInfo(f"{path}.weight", (rows, columns), part)
    if bias:
        yield TensorInfo(f"{path}.bias", (rows,), part)


def _norm(path: str, norm: NormSpec, width: int) -> Iterator[TensorInfo]:
    yield TensorInfo(f"{path}.weight", (width,), "norms")
    if norm.has_bias:
        yield TensorInfo(f"{path}.bias", (width,), "norms")
