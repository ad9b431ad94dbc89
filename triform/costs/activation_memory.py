"""Activation memory: what autograd saves for the backward pass, and the peak of temporary activations in inference.

As `core` computes: a matrix saves its input, the kernel its queries, keys, values, output and one number per query, a
norm its input and two numbers per position (RMS also the quotient), dropout one byte per number, an activation its
input or, where the derivative follows from it, its result. What two operations share is saved once; a slice saves the
whole tensor. Does not import torch: the tests compare with what torch saves.
"""

from triform.costs.operations import CROSS_SCORES, head_matrices, head_positions
from triform.costs.stack_rows import Walk
from triform.spec import Act, Alibi, Buckets, Classify, Learned, NoHead, NormSpec, Pooled, Rotary, Transformed

INDEX_BYTES = 8  # of an int64


def count_stack(walk: Walk) -> dict[str, int]:
    """Bytes saved in training, by the name of the row."""
    if not walk.training:
        return {}
    layers, rows, number = walk.stack.layers, walk.rows, walk.number
    per_layer = {
        "QKV projection": walk.spec.width * rows,
        **count_attention(walk),
        **(count_cross(walk) if walk.cross else {}),
        "feed-forward": count_feedforward(walk) * rows,
    }
    kept = {name: layers * size * number for name, size in per_layer.items()}
    kept["norms, sums, activation"] = layers * count_residuals(walk)
    kept["embeddings"] = count_entry(walk)
    kept["scores"] += count_shared(walk)
    if walk.stack.final_norm:
        kept["norms, sums, activation"] += count_norm(walk, walk.stack.norm)
    if walk.cross:  # the encoder's output, one tensor for all layers
        kept["cross keys, values"] += walk.spec.width * count_sources(walk) * number
    return kept


def count_attention(walk: Walk) -> dict[str, int]:
    """Numbers per layer. Rotated queries and keys are new tensors."""
    a, rows = walk.stack.attention, walk.rows
    q, kv, fused = a.heads * a.head_width, a.kv_heads * a.head_width, (a.heads + 2 * a.kv_heads) * a.head_width
    if walk.written_out:
        single_text = walk.size("b") == 1 and walk.number >= 4  # its heads need no copy: slices of the whole
        return {
            "scores": rows * 2 * q * float32_factor(walk),
            "weighted values": rows * (fused if single_text else q * float32_factor(walk))
            + int(walk.size("b")) * a.heads * walk.scores * float32_factor(walk),
            "output projection": rows * q,
        }
    rotated = isinstance(walk.spec.position, Rotary)
    # In 16 bits the norm's input is copied to float32; else it is a slice of the fused projection.
    normed = (
        0
        if a.qk_norm is None
        else float32_factor(walk) * (float32_factor(walk) * (q + kv) + 2 * (a.heads + a.kv_heads))
    )
    return {
        "scores": rows * (fused + normed + (q + kv if rotated else 0)),
        "weighted values": rows * (q + a.heads * float32_factor(walk)),
        "output projection": 0,  # reads the kernel's output without a copy
    }


def float32_factor(walk: Walk) -> int:
    """Softmax and norms compute in float32 at least: in 16 bits, what they save counts twice."""
    return max(4 // walk.number, 1)


def count_cross(walk: Walk) -> dict[str, int]:
    a = walk.stack.attention
    q, kv = a.heads * a.head_width, a.kv_heads * a.head_width
    return {
        "cross keys, values": count_sources(walk) * 2 * kv,
        "cross query": walk.rows * walk.spec.width,
        CROSS_SCORES[0]: walk.rows * q,
        CROSS_SCORES[1]: walk.rows * (q + a.heads * float32_factor(walk)),
    }


def count_sources(walk: Walk) -> int:
    return int(walk.size("b") * walk.size("m"))


def count_feedforward(walk: Walk) -> int:
    f = walk.stack.feedforward
    return walk.spec.width + (4 * f.width if f.gated else f.width * count_activation(f.act))


def count_activation(act: Act) -> int:
    """1 if the result is saved, 2 if its input too."""
    return 1 if act in ("relu", "tanh") else 2


def count_norm(walk: Walk, norm: NormSpec) -> int:
    """Bytes of one norm; a layer norm in 16 bits also saves its weight and bias in float32."""
    width = walk.spec.width
    numbers = walk.rows * (2 + (2 * width if norm.kind == "rms" else width))
    return numbers * float32_factor(walk) * walk.number + (
        8 * width if norm.kind == "layer" and float32_factor(walk) > 1 else 0
    )


def count_residuals(walk: Walk) -> int:
    """Bytes of one block's norms and dropouts."""
    norms = 2 if walk.stack.norm_at == "sandwich" else 1
    return (3 if walk.cross else 2) * (norms * count_norm(walk, walk.stack.norm) + count_dropout(walk) * walk.rows)


def count_dropout(walk: Walk) -> int:
    """Bytes of the dropout mask per position."""
    return walk.spec.width if walk.spec.dropout else 0


def count_entry(walk: Walk) -> int:
    spec = walk.spec
    index = INDEX_BYTES * int(walk.size(walk.new)) if isinstance(spec.position, Learned) else 0
    normed = 0 if spec.embedding.norm is None else count_norm(walk, spec.embedding.norm)
    return index + normed + count_dropout(walk) * walk.rows


def count_shared(walk: Walk) -> int:
    """Bytes that all layers share: rotary angles, bucket ids, masks."""
    a, positions = walk.stack.attention, int(walk.size(walk.new))
    match walk.spec.position:
        case Rotary():
            shared = positions * a.head_width * walk.number
        case Buckets():
            return walk.scores * (INDEX_BYTES + (walk.side == "decoder"))
        case Alibi():
            return walk.scores * a.heads * walk.number
        case _:
            shared = 0
    masked = a.window is not None and walk.side == "decoder" and positions > a.window
    return shared + (walk.scores * walk.number if masked else 0)


def count_head(walk: Walk) -> int:
    """Bytes the head saves. The loss computes logits in chunks and saves none."""
    spec, d = walk.spec, walk.spec.width
    whole, texts, normed = walk.rows * d, int(walk.size("b")), 0
    if not walk.training or isinstance(spec.head, NoHead):
        return 0
    match spec.head:
        case Transformed(act=act, norm=own):
            kept, normed = walk.rows * count_activation(act) * d + whole, count_norm(walk, own)
        case Pooled():
            kept = whole + texts * d
        case Classify(act=str() as act):
            kept = whole + texts * d * count_activation(act)
        case _:
            kept = whole
    return kept * walk.number + normed


# --- temporary ------------------------------------------------------------------------------------------------------


def count_temporary(walk: Walk) -> int:
    """Peak bytes of temporary activations, an estimate: in attention, in the feed-forward, or at the logits.

    In training it is a gradient of the feed-forward's inner width: the rest is saved anyway, and the loss computes
    logits in chunks. In inference, the embeddings and the inputs of block and sublayer stay during the sublayer.
    """
    a, f, d = walk.stack.attention, walk.stack.feedforward, walk.spec.width
    if walk.training:
        return walk.rows * f.width * (2 if f.gated else 1) * walk.number
    q, kv = a.heads * a.head_width, a.kv_heads * a.head_width
    rotated = q + kv if isinstance(walk.spec.position, Rotary) else 0
    attention = q + 2 * kv + rotated + 2 * q + d
    feedforward = (4 if f.gated else 2) * f.width
    stream = (3 if walk.stack.norm_at == "post" else 4) * d
    bias = a.heads * walk.scores if isinstance(walk.spec.position, Buckets | Alibi) else 0
    peak = walk.rows * (stream + max(attention, feedforward)) + bias
    if walk.last:
        read = walk._replace(new=head_positions(walk))
        peak = max(peak, read.rows * (d + head_matrices(walk.spec)[1]) + walk.rows * d)
    return peak // walk.passes * walk.number
