"""What memory holds: the numbers autograd keeps for the backward pass, and the widest moment of a pass without one.

Read off the code of `core` line by line: a matrix keeps its input, the kernel its queries, keys, values, output and
one number a query, a norm its input and two numbers a position (RMS also the quotient), dropout a byte a number, an
activation its input or, where the derivative can be told from it, its result. What two steps share is kept once; a
slice keeps the whole it is a slice of. Refuses to know torch: the tests compare with what torch really keeps.
"""

from triform.costs.operations import CROSS_SCORES, matrices_of, read_by_head
from triform.costs.stack_rows import Walk
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
    Transformed,
)

INDEX = 8  # bytes of a whole number


def of_stack(walk: Walk) -> dict[str, int]:
    """Bytes kept for training, by the name of the row."""
    if not walk.training:
        return {}
    layers, rows, number = walk.stack.layers, walk.rows, walk.number
    a_layer = {
        "QKV projection": walk.spec.width * rows,
        **attention(walk),
        **(cross(walk) if walk.cross else {}),
        "feed-forward": feedforward(walk) * rows,
    }
    kept = {name: layers * size * number for name, size in a_layer.items()}
    kept["norms, sums, activation"] = layers * residuals(walk)
    kept["embeddings"] = entry(walk)
    kept["scores"] += shared_scores(walk)
    if walk.stack.final_norm:
        kept["norms, sums, activation"] += norm(walk, walk.stack.norm)
    if walk.cross:  # the encoder's answer, one tensor for all layers
        kept["cross keys, values"] += walk.spec.width * sources(walk) * number
    return kept


def attention(walk: Walk) -> dict[str, int]:
    """Numbers of one layer. Turned queries and keys are new tensors."""
    a, rows = walk.stack.attention, walk.rows
    q, kv, fused = a.heads * a.head_width, a.kv_heads * a.head_width, (a.heads + 2 * a.kv_heads) * a.head_width
    if walk.written_out:
        alone = walk.size("b") == 1 and walk.number >= 4  # heads of a single text need no copy: a slice of the whole
        return {
            "scores": rows * 2 * q * single(walk),
            "weighted values": rows * (fused if alone else q * single(walk))
            + int(walk.size("b")) * a.heads * walk.scores * single(walk),
            "output projection": rows * q,
        }
    turned = isinstance(walk.spec.position, Rotary)
    # In 16 bits the norm's input is widened to float32, too; else it is a slice of the fused projection.
    normed = 0 if a.qk_norm is None else single(walk) * (single(walk) * (q + kv) + 2 * (a.heads + a.kv_heads))
    return {
        "scores": rows * (fused + normed + (q + kv if turned else 0)),
        "weighted values": rows * (q + a.heads * single(walk)),
        "output projection": 0,  # reads the kernel's answer as it lies
    }


def single(walk: Walk) -> int:
    """A softmax or a norm is made in float32 at least: in 16 bits, what it keeps counts twice."""
    return max(4 // walk.number, 1)


def cross(walk: Walk) -> dict[str, int]:
    a = walk.stack.attention
    q, kv = a.heads * a.head_width, a.kv_heads * a.head_width
    return {
        "cross keys, values": sources(walk) * 2 * kv,
        "cross query": walk.rows * walk.spec.width,
        CROSS_SCORES[0]: walk.rows * q,
        CROSS_SCORES[1]: walk.rows * (q + a.heads * single(walk)),
    }


def sources(walk: Walk) -> int:
    return int(walk.size("b") * walk.size("m"))


def feedforward(walk: Walk) -> int:
    f = walk.stack.feedforward
    return walk.spec.width + (4 * f.width if f.gated else f.width * activation(f.act))


def activation(act: Act) -> int:
    """The result alone, or the input too."""
    return 1 if act in ("relu", "tanh") else 2


def norm(walk: Walk, norm: NormSpec) -> int:
    """Bytes of one norm over the width; a layer norm of 16-bit weights keeps its scale and shift in float32 besides."""
    width = walk.spec.width
    numbers = walk.rows * (2 + (2 * width if norm.kind == "rms" else width))
    return numbers * single(walk) * walk.number + (8 * width if norm.kind == "layer" and single(walk) > 1 else 0)


def residuals(walk: Walk) -> int:
    """Bytes of one block's norms and dropouts."""
    norms = 2 if walk.stack.norm_at == "sandwich" else 1
    return (3 if walk.cross else 2) * (norms * norm(walk, walk.stack.norm) + noise(walk) * walk.rows)


def noise(walk: Walk) -> int:
    """Bytes that say where a position's numbers were dropped."""
    return walk.spec.width if walk.spec.dropout else 0


def entry(walk: Walk) -> int:
    spec = walk.spec
    index = INDEX * int(walk.size(walk.new)) if isinstance(spec.position, Learned) else 0
    normed = 0 if spec.embedding.norm is None else norm(walk, spec.embedding.norm)
    return index + normed + noise(walk) * walk.rows


def shared_scores(walk: Walk) -> int:
    """What all layers share: rotary angles, buckets, masks."""
    a, positions = walk.stack.attention, int(walk.size(walk.new))
    match walk.spec.position:
        case Rotary():
            shared = positions * a.head_width * walk.number
        case Buckets():
            return walk.scores * (INDEX + (walk.side == "decoder"))
        case Alibi():
            return walk.scores * a.heads * walk.number
        case _:
            shared = 0
    masked = a.window is not None and walk.side == "decoder" and positions > a.window
    return shared + (walk.scores * walk.number if masked else 0)


def of_head(walk: Walk) -> int:
    """Bytes the head keeps. The loss makes logits in pieces and keeps none."""
    spec, d = walk.spec, walk.spec.width
    whole, texts, normed = walk.rows * d, int(walk.size("b")), 0
    if not walk.training or isinstance(spec.head, NoHead):
        return 0
    match spec.head:
        case Transformed(act=act, norm=own):
            kept, normed = walk.rows * activation(act) * d + whole, norm(walk, own)
        case Pooled():
            kept = whole + texts * d
        case Classify(act=str() as act):
            kept = whole + texts * d * activation(act)
        case _:
            kept = whole
    return kept * walk.number + normed


# --- what passes ----------------------------------------------------------------------------------------------------


def passing(walk: Walk) -> int:
    """Bytes of the most that comes and goes, an estimate: in attention, in the feed-forward, or at the logits.

    In training it is a gradient of the feed-forward's inner width, the rest being kept anyway, and the loss makes
    logits in pieces. Without, the embeddings and the inputs of block and part stay while the part works.
    """
    a, f, d = walk.stack.attention, walk.stack.feedforward, walk.spec.width
    if walk.training:
        return walk.rows * f.width * (2 if f.gated else 1) * walk.number
    q, kv = a.heads * a.head_width, a.kv_heads * a.head_width
    turned = q + kv if isinstance(walk.spec.position, Rotary) else 0
    attending = q + 2 * kv + turned + 2 * q + d
    thinking = (4 if f.gated else 2) * f.width
    stream = (3 if walk.stack.norm_at == "post" else 4) * d
    bias = a.heads * walk.scores if isinstance(walk.spec.position, Buckets | Alibi) else 0
    most = walk.rows * (stream + max(attending, thinking)) + bias
    if walk.last:
        read = walk._replace(new=read_by_head(walk))
        most = max(most, read.rows * (d + matrices_of(walk.spec)[1]) + walk.rows * d)
    return most // walk.passes * walk.number
