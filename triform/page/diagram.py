"""The parts of a model in order, with sizes, tensors and one sentence each; from the spec alone, for any family."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

import msgspec

from triform import spec as specs
from triform.parameters import TensorInfo, count_parameters, list_tensors
from triform.spec import ModelSpec

Role: TypeAlias = Literal["embedding", "position", "norm", "attention", "cross", "feedforward", "head"]
ARROW = " → "
_BLOCK = re.compile(r"\.blocks\.\d+\.")


class DiagramTensor(msgspec.Struct, frozen=True):
    """A tensor of a part: its path and shape."""

    path: str
    shape: tuple[int, ...]


class DiagramPart(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is its module, with * for every layer; `parameters` and `tensors` are those of one layer, `in_all` counts
    the parameters of all layers: once where they share them."""

    role: Role
    title: str
    path: str
    sizes: str
    says: str
    parameters: int = 0
    in_all: int = 0
    tensors: tuple[DiagramTensor, ...] = ()
    adds: bool = False  # to the residual stream


class DiagramStack(msgspec.Struct, frozen=True, kw_only=True):
    """One stack: the parts before its blocks, of one block, and after them."""

    name: str
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    before: tuple[DiagramPart, ...]
    block: tuple[DiagramPart, ...]
    after: tuple[DiagramPart, ...]


class Diagram(msgspec.Struct, frozen=True, kw_only=True):
    """A model as a diagram: its stacks, their parts and sizes."""

    form: str
    width: int
    vocab: int
    context: int
    parameters: int
    stacks: tuple[DiagramStack, ...]
    head: DiagramPart


def make_diagram(spec: ModelSpec) -> Diagram:
    """The diagram of a spec."""
    tensors = list_tensors(spec)
    floors = tuple(_make_stack(spec, name, stack, tensors) for name, stack in spec.stacks.items())
    sizes, says = _describe_head(spec, spec.head)
    head = _make_part(tensors, role="head", title="head", path="readout", sizes=sizes, says=says)
    return Diagram(
        form=spec.form,
        width=spec.width,
        vocab=spec.vocab,
        context=spec.context,
        parameters=count_parameters(spec),
        stacks=floors,
        head=head,
    )


def _make_part(tensors: dict[str, TensorInfo], *, path: str, **fields: object) -> DiagramPart:
    """With the tensors under its path; of a block, those of the last layer: the first may lack a norm."""
    entries = [entry for entry in tensors.values() if fnmatchcase(f"{entry.path}.", f"{path}.*")]
    layers = dict.fromkeys(_layer_of(entry.path) for entry in entries)
    last = next(reversed(layers), "")
    shown = [entry for entry in entries if _layer_of(entry.path) == last]
    named = tuple(DiagramTensor(_BLOCK.sub(".blocks.*.", entry.path), entry.shape) for entry in shown)
    counts = {
        name: sum(entry.size for entry in some if entry.trained)
        for name, some in (("parameters", shown), ("in_all", entries))
    }
    return msgspec.convert(fields | {"path": path, "tensors": named} | counts, DiagramPart, from_attributes=True)


def _layer_of(path: str) -> str:
    found = _BLOCK.search(path)
    return found[0] if found else ""


def _make_stack(spec: ModelSpec, name: str, stack: specs.StackSpec, tensors: dict[str, TensorInfo]) -> DiagramStack:
    cross = name == "decoder" and spec.encoder is not None
    final = _make_part(
        tensors,
        role="norm",
        title="final norm",
        path=f"{name}.final",
        sizes=f"{spec.width:,}",
        says=_describe_norm(stack.norm),
    )
    return DiagramStack(
        name=name,
        layers=stack.layers,
        heads=stack.attention.heads,
        kv_heads=stack.attention.kv_heads,
        head_width=stack.attention.head_width,
        before=tuple(_parts_before(spec, name, tensors)),
        block=tuple(_parts_of_block(spec, name, stack, tensors, cross=cross)),
        after=(final,) if stack.final_norm else (),
    )


def _parts_before(spec: ModelSpec, name: str, tensors: dict[str, TensorInfo]) -> Iterator[DiagramPart]:
    scale = "" if spec.embedding.scale == 1.0 else f", times {spec.embedding.scale:.4g}"
    yield _make_part(
        tensors,
        role="embedding",
        title="token embedding",
        path="token",
        sizes=f"{spec.vocab:,} × {spec.embedding_width:,}",
        says=f"Each token is a row of one table{scale}.",
    )
    entry = f"{name}.entry"
    if spec.embedding.kinds:
        sizes = f"{spec.embedding.kinds} × {spec.embedding_width:,}"
        says = "Which of the two texts a token belongs to, added as a vector."
        yield _make_part(tensors, role="embedding", title="segment ids", path=f"{entry}.kinds", sizes=sizes, says=says)
    positions = ("position", spec.position), ("distance", spec.score_bias)
    for title, position in positions:
        if position is not None:
            where, sizes, says = _describe_position(spec, position, name)
            yield _make_part(tensors, role="position", title=title, path=where, sizes=sizes, says=says)
    if spec.embedding.norm is not None:
        sizes, says = f"{spec.embedding_width:,}", _describe_norm(spec.embedding.norm)
        yield _make_part(tensors, role="norm", title="norm", path=f"{entry}.norm", sizes=sizes, says=says)
    if spec.embedding.width is not None:
        sizes = ARROW.join((f"{spec.embedding_width:,}", f"{spec.width:,}"))
        says = "The embeddings are made as wide as the model."
        yield _make_part(tensors, role="embedding", title="projection", path=f"{entry}.project", sizes=sizes, says=says)


def _describe_position(spec: ModelSpec, position: specs.Position, name: str) -> tuple[str, str, str]:
    """Module, sizes, sentence"""
    entry = f"{name}.entry.position"
    match position:
        case specs.Sinusoid():
            return (
                entry,
                f"{spec.embedding_width:,} waves",
                "sin and cos of pos / 10000^(2i/D), added to the embedding.",
            )
        case specs.Learned():
            return (
                entry,
                f"{spec.context:,} × {spec.embedding_width:,}",
                "A trained vector per position, added to the embedding.",
            )
        case specs.Rotary():
            kinds = spec.layer_kinds(name)
            turned = sum(isinstance(kind.rotary, specs.Rotary) for kind in kinds)
            layers = "every layer" if turned == len(kinds) else f"{turned} of {len(kinds)} layers"
            pairs = position.width(spec.stacks[name].attention.head_width) // 2
            return f"{name}.angles", f"{pairs} angles", f"q and k are rotated by pos · base^(−2i/K) in {layers}."
        case specs.Buckets():
            heads = spec.stacks[name].attention.heads
            says = "A trained number per head and bucket of distance, added to the scores of every layer."
            return f"{name}.score_bias", f"{position.count} buckets × {heads} heads", says
        case specs.Alibi():
            says = "Each head subtracts its slope times the distance from the scores of every layer."
            return f"{name}.score_bias", f"{spec.stacks[name].attention.heads} slopes", says
    return entry, "none", "This model has no position encoding."


def _parts_of_block(
    spec: ModelSpec, name: str, stack: specs.StackSpec, tensors: dict[str, TensorInfo], *, cross: bool
) -> Iterator[DiagramPart]:
    a, f = stack.attention, stack.feedforward
    kv = f"k, v {a.kv_heads} × {a.head_width}"
    path = f"{name}.blocks.*"
    queries = f"q {a.heads} × {a.head_width} · {kv}"
    scale = f" · {a.scale:g}" if a.scale is not None else " / √K"
    says = f"softmax(q kᵀ{scale} + mask) v in each head; a token attends to {_describe_sight(spec, name)}."
    parts: list[tuple[Role, str, str, str, str]] = [("attention", "self-attention", "attention", queries, says)]
    if cross:
        parts.append(
            ("cross", "cross-attention", "cross", queries, "Queries from the target, keys and values from the source.")
        )
    parts.append(("feedforward", "feed-forward", "feedforward", _describe_widths(spec, f), _describe_feedforward(f)))
    for role, title, own, sizes, sentence in parts:
        place = {"pre": "normed before", "post": "normed after the sum", "sandwich": "normed before and after"}
        place |= {"after": "normed before it is added"}
        note = f"{sentence} {place[stack.norm_at].capitalize()} ({stack.norm.kind})."
        yield _make_part(tensors, role=role, title=title, path=f"{path}.{own}", sizes=sizes, says=note, adds=True)


def _describe_sight(spec: ModelSpec, name: str) -> str:
    """Which tokens a token sees; where layers differ, in how many of them."""
    windows = [kind.window for kind in spec.layer_kinds(name)]
    sights = []
    for window in dict.fromkeys(windows):
        sees = "the whole text" if name == "encoder" else "itself and the tokens before it"
        if window is not None and name == "encoder":
            sees = f"tokens less than {window:,} positions away"
        elif window is not None:
            sees += f", at most {window:,} positions"
        some = windows.count(window)
        sights.append(sees if some == len(windows) else f"{sees} (in {some} of {len(windows)} layers)")
    return "; ".join(sights)


def _describe_widths(spec: ModelSpec, f: specs.FeedForwardSpec) -> str:
    inner = f"2 × {f.width:,}" if f.gated else f"{f.width:,}"
    return ARROW.join((f"{spec.width:,}", inner, f"{spec.width:,}"))


def _describe_feedforward(f: specs.FeedForwardSpec) -> str:
    return f"down({f.act}(gate x) · up x)." if f.gated else f"down({f.act}(up x))."


def _describe_norm(norm: specs.NormSpec) -> str:
    if norm.kind == "rms":
        return "x / √(mean x² + ε) · γ"
    return "(x − mean) / √(variance + ε) · γ + β"


def _describe_head(spec: ModelSpec, head: specs.Head) -> tuple[str, str]:
    """Sizes and sentence"""
    words = f"{spec.width:,}{ARROW}{spec.vocab:,}"
    match head:
        case specs.Tied():
            return words, "A score per token: the stream times the embedding table (tied weights)."
        case specs.Own():
            return words, "A score per token, with its own matrix."
        case specs.Transformed():
            return words, "norm(act(x W + b)) times the embedding table: predicts masked words."
        case specs.Classify(labels=labels) | specs.Tag(labels=labels):
            of = "each token" if isinstance(head, specs.Tag) else f"the {head.pick} token"
            return f"{spec.width:,}{ARROW}{labels:,}", f"A score per label, from {of}."
        case specs.Span():
            return f"{spec.width:,}{ARROW}2", "Start and end of the answer."
        case specs.Pooled():
            return f"{spec.width:,}{ARROW}{spec.width:,}", "tanh(W x + b) of the first token: a summary of the text."
        case specs.NoHead():
            return f"{spec.width:,}", "The hidden states are the output."
