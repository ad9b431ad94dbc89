"""Activation memory: what autograd saves for the backward pass, and the peak of temporary activations in inference.

As `core` computes: a matrix saves its input, the kernel its queries, keys, values, output and one number per query, a
norm its input and two numbers per position (RMS also the quotient), dropout one byte per number, an activation its
input or, where the derivative follows from it, its result. What two operations share is saved once; a slice saves the
whole tensor. Does not import torch: the tests compare with what torch saves.
"""

from triform.costs.operations import CROSS_SCORES, head_matrices, head_positions
from triform.costs.stack_rows import StackPass
from triform.spec import (
    Act,
    Alibi,
    Buckets,
    Classify,
    Learned,
    NoHead,
    NormSpec,
    Pooled,
    Rotary,
    Span,
    Tag,
    Transformed,
)

INDEX_BYTES = 8  # of an int64


def count_stack(walk: StackPass) -> dict[str, int]:
    """Bytes saved in training, by the name of the row."""
    if not walk.training:
        return {}
    layers, rows, number = walk.stack.layers, walk.rows, walk.bytes_per_number
    per_layer = {
        "QKV projection": walk.spec.width * rows,
        **count_attention(walk),
        **(count_cross(walk) if walk.cross else {}),
        "feed-forward": count_feedforward(walk) * rows,
    }
    kept = {name: layers * size * number for name, size in per_layer.items()}
    kept["scores"] += walk.rotated_layers * count_rotated(walk) * number
    kept["norms, sums, activation"] = layers * count_residuals(walk)
    if not walk.stack.first_norm:
        kept["norms, sums, activation"] -= count_norm(walk, walk.stack.norm)
    kept["embeddings"] = count_entry(walk)
    kept["scores"] += count_shared(walk)
    if walk.stack.final_norm:
        kept["norms, sums, activation"] += count_norm(walk, walk.stack.norm)
    if walk.cross:  # the encoder's output, one tensor for all layers
        kept["cross keys, values"] += walk.spec.width * count_sources(walk) * number
    return kept


def count_attention(walk: StackPass) -> dict[str, int]:
    """Numbers per layer, without rotated queries and keys."""
    a, rows = walk.stack.attention, walk.rows
    q, kv, fused = a.heads * a.head_width, a.kv_heads * a.head_width, (a.heads + 2 * a.kv_heads) * a.head_width
    if walk.written_out:
        single_text = walk.size("b") == 1 and walk.bytes_per_number >= 4  # its heads need no copy: slices of the whole
        return {
            "scores": rows * 2 * q * float32_factor(walk),
            "weighted values": rows * (fused if single_text else q * float32_factor(walk))
            + int(walk.size("b")) * a.heads * walk.scores * float32_factor(walk),
            "output projection": rows * q,
        }
    # In 16 bits the norm's input is copied to float32; else it is a slice of the fused projection.
    vectors = 2 if a.qk_normed_over == "all heads" else a.heads + a.kv_heads
    normed = 0 if a.qk_norm is None else float32_factor(walk) * (float32_factor(walk) * (q + kv) + 2 * vectors)
    from_one = a.qk_norm is not None and a.qk_norm.from_one
    factors = 2 * a.head_width * float32_factor(walk) if from_one else 0  # 1 + w, of the norms of q and k
    return {
        "scores": rows * (fused + normed) + factors,
        "weighted values": rows * (q + a.heads * float32_factor(walk)),
        "output projection": 0,  # reads the kernel's output without a copy
    }


def count_rotated(walk: StackPass) -> int:
    """Numbers per layer that rotates: queries and keys are new tensors, saved where the kernel reads them."""
    a = walk.stack.attention
    return 0 if walk.written_out else walk.rows * (a.heads + a.kv_heads) * a.head_width


def float32_factor(walk: StackPass) -> int:
    """Softmax and norms compute in float32 at least: in 16 bits, what they save counts twice."""
    return max(4 // walk.bytes_per_number, 1)


def count_cross(walk: StackPass) -> dict[str, int]:
    """Numbers that cross-attention saves for its backward pass."""
    a = walk.stack.attention
    q, kv = a.heads * a.head_width, a.kv_heads * a.head_width
    return {
        "cross keys, values": count_sources(walk) * 2 * kv,
        "cross query": walk.rows * walk.spec.width,
        CROSS_SCORES[0]: walk.rows * q,
        CROSS_SCORES[1]: walk.rows * (q + a.heads * float32_factor(walk)),
    }


def count_sources(walk: StackPass) -> int:
    return int(walk.size("b") * walk.size("m"))


def count_feedforward(walk: StackPass) -> int:
    f = walk.stack.feedforward
    return walk.spec.width + (4 * f.width if f.gated else f.width * count_activation(f.act))


def count_activation(act: Act) -> int:
    """1 if the result is saved, 2 if its input too."""
    return 1 if act in ("relu", "tanh") else 2


def count_norm(walk: StackPass, norm: NormSpec, *, width: int | None = None) -> int:
    """Bytes of one norm; a layer norm in 16 bits also saves its weight and bias in float32."""
    width = walk.spec.width if width is None else width
    numbers = walk.rows * (2 + (2 * width if norm.kind == "rms" else width))
    weights = (1 + norm.bias) * width if norm.kind == "layer" and float32_factor(walk) > 1 else 0
    return (numbers + norm.from_one * width) * float32_factor(walk) * walk.bytes_per_number + 4 * weights


def count_residuals(walk: StackPass) -> int:
    """Bytes of one block's norms and dropouts."""
    norms, parts = 2 if walk.stack.norm_at == "sandwich" else 1, 3 if walk.cross else 2
    saved = parts * (norms * count_norm(walk, walk.stack.norm) + count_dropout(walk) * walk.rows)
    if walk.stack.parts == "parallel" and walk.stack.norm_at in ("pre", "sandwich"):  # the norms' input is one tensor
        saved -= (parts - 1) * walk.rows * walk.spec.width * float32_factor(walk) * walk.bytes_per_number
    return saved


def count_dropout(walk: StackPass) -> int:
    """Bytes of the dropout mask per position."""
    return walk.spec.width if walk.spec.dropout else 0


def count_entry(walk: StackPass) -> int:
    """Numbers that the embedding layer saves for its backward pass."""
    spec = walk.spec
    index = INDEX_BYTES * int(walk.size(walk.new)) if isinstance(spec.position, Learned) else 0
    normed = 0 if spec.embedding.norm is None else count_norm(walk, spec.embedding.norm, width=spec.embedding_width)
    dropout = spec.embedding_width if spec.dropout else 0
    projected = 0 if spec.embedding.width is None else spec.embedding_width * walk.bytes_per_number
    return index + normed + (dropout + projected) * walk.rows


def count_shared(walk: StackPass) -> int:
    """Bytes that all layers share: rotary angles, bucket ids, masks."""
    a, positions = walk.stack.attention, int(walk.size(walk.new))
    kinds = dict.fromkeys(walk.kinds)
    widths = sum(kind.rotary.width(a.head_width) for kind in kinds if isinstance(kind.rotary, Rotary))
    angles = widths * positions * walk.bytes_per_number
    match walk.spec.added_to_scores:
        case Buckets():
            return angles + len(kinds) * walk.scores * (INDEX_BYTES + (walk.side == "decoder"))
        case Alibi():
            return angles + len(kinds) * walk.scores * a.heads * walk.bytes_per_number
        case _:
            masked = sum(kind.window is not None and positions > kind.window for kind in kinds)
            return angles + masked * walk.scores * walk.bytes_per_number


def count_head(walk: StackPass) -> int:
    """Bytes the head saves. The loss computes logits in chunks and saves none."""
    spec, d = walk.spec, walk.spec.width
    whole, texts, normed = walk.rows * d, int(walk.size("b")), 0
    if not walk.training or isinstance(spec.head, NoHead):
        return 0
    match spec.head:
        case Transformed(act=act, norm=own):
            e = spec.embedding_width
            kept, normed = walk.rows * count_activation(act) * e + whole, count_norm(walk, own, width=e)
        case Pooled():
            kept = whole + texts * d
        case Tag(act=str() as act, norm=own) | Span(act=str() as act, norm=own):
            kept = whole + whole * count_activation(act)
            normed = 0 if own is None else count_norm(walk, own) + whole * walk.bytes_per_number
        case Classify(act=str() as act):
            kept = whole + texts * d * count_activation(act)
        case _:
            kept = whole
    return kept * walk.bytes_per_number + normed


# --- temporary ------------------------------------------------------------------------------------------------------


def count_temporary(walk: StackPass) -> int:
    """Peak bytes of temporary activations, an estimate: in attention, in the feed-forward, or at the logits.

    In training it is a gradient of the feed-forward's inner width: the rest is saved anyway, and the loss computes
    logits in chunks. In inference, the embeddings and the inputs of block and sublayer stay during the sublayer.
    """
    a, f, d = walk.stack.attention, walk.stack.feedforward, walk.spec.width
    if walk.training:  # a result that is saved for its own derivative is still there beside two gradients
        inner = 2 if f.gated or count_activation(f.act) == 1 else 1
        return walk.rows * f.width * inner * walk.bytes_per_number
    q, kv = a.heads * a.head_width, a.kv_heads * a.head_width
    rotated = q + kv if walk.rotated_layers else 0
    attention = q + 2 * kv + rotated + q + d
    feedforward = d + (4 if f.gated else 2) * f.width  # beside what attention has made of the block's input
    stream = walk.spec.embedding_width + (1 if walk.stack.norm_at in ("post", "after") else 2) * d
    bias = a.heads * walk.scores if walk.spec.added_to_scores is not None else 0
    peak = walk.rows * (stream + max(attention, feedforward)) + bias
    if walk.last:
        read = walk._replace(new=head_positions(walk))
        peak = max(peak, read.rows * (d + head_matrices(walk.spec)[1]) + walk.rows * d)
    return peak // walk.passes * walk.bytes_per_number
