"""The operations of a stack and of a head: the lecture's table, row by row, for every family.

As `core` computes them: one fused QKV matrix, keys and values of the source projected once, one attention kernel.
"""

from collections.abc import Iterator
from fractions import Fraction

import msgspec

from triform.costs.stack_rows import Operation, StackPass, count_numbers
from triform.spec import (
    Classify,
    Learned,
    ModelSpec,
    NoHead,
    Pooled,
    Sinusoid,
    Span,
    Tag,
    Tied,
    Transformed,
)

SCORES = ("scores", "weighted values")
CROSS_SCORES = ("cross scores", "cross values")


def count_stack(walk: StackPass) -> Iterator[Operation]:
    """From the embeddings to the last norm."""
    yield count_embeddings(walk)
    yield from count_self_attention(walk)
    if walk.cross:
        yield from count_cross_attention(walk)
    f = walk.stack.feedforward
    matrices = 3 if f.gated else 2
    widths = 2 * walk.spec.width + matrices * f.width
    yield count_linear(walk, "feed-forward", "feedforward.f", f"{2 * matrices} b N d f L", widths)
    yield count_element_wise(walk)


def count_self_attention(walk: StackPass) -> Iterator[Operation]:
    """The operations of self-attention: projections, scores, weighted values."""
    a, d = walk.stack.attention, walk.spec.width
    q, kv = a.heads * a.head_width, a.kv_heads * a.head_width
    into_cache = 4 * kv if walk.cached else 0  # keys and values read again, and written
    yield count_linear(walk, "QKV projection", "attention.f.qkv", "2 b N d (h+2g) k L", d + q + 2 * kv + into_cache)
    yield from count_attention(walk, SCORES, "attention", written_out=walk.written_out)
    yield count_linear(walk, "output projection", "attention.f.out", "2 b N h k d L", q + d)


def count_cross_attention(walk: StackPass) -> Iterator[Operation]:
    """The source's keys and values are projected once, in the prefill."""
    a, d = walk.stack.attention, walk.spec.width
    q, kv = a.heads * a.head_width, a.kv_heads * a.head_width
    if walk.new == "n":
        yield count_linear(walk._replace(new="m"), "cross keys, values", "cross.f.kv", "4 b N d g k L", d + 2 * kv)
    yield count_linear(walk, "cross query", "cross.f.q", "2 b N d h k L", d + q)
    yield from count_attention(walk._replace(seen="m", allowed=None), CROSS_SCORES, "cross", written_out=False)
    yield count_linear(walk, "cross output", "cross.f.out", "2 b N h k d L", q + d)


def count_attention(walk: StackPass, names: tuple[str, str], part: str, *, written_out: bool) -> Iterator[Operation]:
    """q kᵀ reads queries and keys, the weighted sum reads values and writes one vector per head.

    The kernel's backward pass recomputes the scores, then makes two products for each half. Without the kernel
    (`written_out`) scores and weights are written to memory and read again.
    """
    a, layers = walk.stack.attention, walk.stack.layers
    read = walk.read if part == "attention" else Fraction(1)
    queries, keys = walk.rows * a.heads * a.head_width, int(walk.keys * read) * a.kv_heads * a.head_width
    bias = a.heads * walk.scores if part == "attention" and walk.spec.added_to_scores is not None else 0
    rectangle = 3 * int(walk.size("b")) * a.heads * walk.scores if written_out else 0
    activations = (queries + keys + bias + rectangle, keys + queries + rectangle)
    backward = (2 if written_out else 3, 2)
    path = f"{walk.side}.blocks.*.{part}.f.attend"
    for name, moved, products in zip(names, activations, backward, strict=True):
        row = walk.row(name, path, formula="2 b h N S k L", activations=layers * moved, backward=products)
        yield msgspec.structs.replace(row, forward=int(row.forward * read), useful=int(row.flops * walk.useful))


def count_linear(walk: StackPass, name: str, part: str, formula: str, widths: int) -> Operation:
    """Matrices applied to every position; `widths`: numbers they read and write per position."""
    path = f"{walk.side}.blocks.*.{part}"
    activations = walk.stack.layers * walk.rows * widths
    times = walk.stack.layers if walk.stack.shared else 1
    weights = times * walk.weight_bytes(f"{path}.*")
    return walk.row(name, path, formula=formula, activations=activations, weights=weights)


def count_embeddings(walk: StackPass) -> Operation:
    """One table row read and written per token; each further table is a sum, a norm reads and writes."""
    spec = walk.spec
    sums = isinstance(spec.position, Sinusoid | Learned) + (spec.embedding.kinds > 0)
    norms = spec.embedding.norm is not None
    width, projected = spec.embedding_width, spec.embedding.width is not None
    activations = width * (2 + 3 * sums + 2 * norms) + projected * (width + spec.width)
    row = walk.row(
        "embeddings",
        f"{walk.side}.entry",
        formula="2 b N e d" if projected else "",
        activations=walk.rows * activations,
        weights=walk.weight_bytes(f"{walk.side}.entry.project.*"),
    )
    first = walk.side == next(iter(spec.stacks))  # the stacks share the table: counted once
    return msgspec.structs.replace(row, parameters=row.parameters + (spec.vocab * width if first else 0))


def count_element_wise(walk: StackPass) -> Operation:
    """Norms, residual sums, activation, rotary positions: bytes, no FLOPs."""
    stack, a, f = walk.stack, walk.stack.attention, walk.stack.feedforward
    residuals = 3 if walk.cross else 2
    norms = stack.layers * residuals * (2 if stack.norm_at == "sandwich" else 1) + stack.final_norm
    norms -= not stack.first_norm
    turned = (walk.rotated_layers + stack.layers * (a.qk_norm is not None)) * 2 * (a.heads + a.kv_heads)
    activation = (3 if f.gated else 2) * f.width
    per_layer = 3 * residuals * walk.spec.width + activation
    activations = walk.rows * (2 * norms * walk.spec.width + stack.layers * per_layer + turned * a.head_width)
    row = walk.row("norms, sums, activation", walk.side, activations=activations)
    whole, entry, matrices, head_norms = (
        count_numbers(walk.spec, f"{walk.side}.{part}")
        for part in ("*", "entry.*", "blocks.*.f.*", "blocks.*.f.?_norm.*")
    )  # what is left are the norms, and T5's score biases
    return msgspec.structs.replace(row, parameters=whole - entry - matrices + head_norms)


# --- the head -------------------------------------------------------------------------------------------------------


def count_head(walk: StackPass) -> Iterator[Operation]:
    """The output head, at every position or at one per text."""
    spec = walk.spec
    letter, widths = head_matrices(spec)
    if not letter:
        return
    read = walk._replace(side="head", new=head_positions(walk))
    table = walk.weight_bytes("token.weight") if isinstance(spec.head, Tied | Transformed) else 0
    weights = walk.weight_bytes("readout.*") + table
    narrow = isinstance(spec.head, Transformed) and spec.embedding.width is not None
    formula = f"2 b N {'e' if narrow else 'd'} {letter}"  # e: the width of the embeddings
    yield read.row("head", "readout", formula=formula, activations=read.rows * widths, weights=weights)


def head_positions(walk: StackPass) -> str:
    """The letter of the positions it reads: a prefill needs the last one, a classifier the first or last."""
    single = walk.cached or isinstance(walk.spec.head, Pooled | Classify)
    return "1" if single and walk.new == "n" else walk.new


def head_matrices(spec: ModelSpec) -> tuple[str, int]:
    """The outputs of the head's matrices as a letter, and the numbers they read and write per position."""
    d = spec.width
    match spec.head:
        case NoHead():
            return "", 0
        case Transformed():
            return "(V+d)", d + 2 * spec.embedding_width + spec.vocab
        case Pooled():
            return "d", 2 * d
        case Classify(labels=labels, act=act):
            return (f"{labels}", d + labels) if act is None else (f"({labels}+d)", 3 * d + labels)
        case Tag(labels=labels, act=act):
            return (f"{labels}", d + labels) if act is None else (f"({labels}+d)", 3 * d + labels)
        case Span(act=act):
            return ("2", d + 2) if act is None else ("(2+d)", 3 * d + 2)
        case _:
            return "V", d + spec.vocab
