"""The families as values: each function says what its paper or its released code says, nothing more.

Owns the sizes of the released models and our own small sizes. Knows nothing of torch, files and weight names.
A family that differs little from another is that one with other defaults, or a `replace` of its spec.
"""

from collections.abc import Callable
from typing import TypedDict, Unpack

from triform.errors import SpecError, UnknownName
from triform.spec import (
    Act,
    AttentionSpec,
    Buckets,
    EmbeddingSpec,
    FeedForwardSpec,
    Head,
    Learned,
    Llama3Scaling,
    ModelSpec,
    NoHead,
    NormAt,
    NormSpec,
    Own,
    Pooled,
    Rotary,
    Scaling,
    Sinusoid,
    StackSpec,
    Tied,
    Transformed,
    replace,
)


class Sizes(TypedDict, total=False):
    """What every family takes; the defaults are the family's own."""

    vocab: int
    width: int
    layers: int
    heads: int
    ff_width: int | None  # None: the family's usual multiple of the width
    context: int


class SizesHead(Sizes, total=False):
    head: Head | None  # None: the family's own language-model head


class T5Sizes(Sizes, total=False):
    head_width: int


class LlamaSizes(SizesHead, total=False):
    kv_heads: int | None  # None: as many as heads
    head_width: int | None  # None: width / heads
    base: float
    scaling: Scaling | None
    eps: float
    bias: bool  # on q, k and v
    qk_norm: NormSpec | None
    window: int | None
    tied: bool  # the output head is the token embedding


def even_heads(width: int, heads: int, *, bias: bool) -> AttentionSpec:
    """The heads share the width evenly: K = D / H."""
    if heads < 1 or width % heads:
        ways = ", ".join(str(h) for h in range(1, min(width, 64) + 1) if width % h == 0)
        raise SpecError(f"width={width} is not a multiple of heads={heads}; use heads in {{{ways}}}")
    return AttentionSpec(heads=heads, kv_heads=heads, head_width=width // heads, bias=bias, out_bias=bias)


def _layer_norm_stack(
    width: int, layers: int, heads: int, ff_width: int | None, *, act: Act, norm_at: NormAt, eps: float = 1e-5
) -> StackSpec:
    """Blocks with LayerNorm and biases on every matrix; pre-norm stacks end with a norm."""
    return StackSpec(
        layers=layers,
        attention=even_heads(width, heads, bias=True),
        feedforward=FeedForwardSpec(width=ff_width or 4 * width, act=act, bias=True),
        norm=NormSpec(kind="layer", eps=eps),
        norm_at=norm_at,
        final_norm=norm_at == "pre",
    )


# --- encoders -------------------------------------------------------------------------------------------------------


def bert(
    *,
    vocab: int = 30_522,
    width: int = 768,
    layers: int = 12,
    heads: int = 12,
    ff_width: int | None = None,
    context: int = 512,
    eps: float = 1e-12,
    kinds: int = 2,
    head: Head | None = None,
) -> ModelSpec:
    """Post-norm encoder with learned positions and segment embeddings (Devlin 2018)."""
    stack = _layer_norm_stack(width, layers, heads, ff_width, act="gelu", norm_at="post", eps=eps)
    return ModelSpec(
        width=width,
        vocab=vocab,
        context=context,
        position=Learned(),
        embedding=EmbeddingSpec(kinds=kinds, norm=stack.norm),
        head=head or Transformed(act="gelu", norm=stack.norm),
        encoder=stack,
        dropout=0.1,
    )


def distilbert(**sizes: Unpack[SizesHead]) -> ModelSpec:
    """BERT with half the layers and no segment embeddings (Sanh 2019)."""
    return bert(**(SizesHead(layers=6) | sizes), kinds=0)


def roberta(**sizes: Unpack[SizesHead]) -> ModelSpec:
    """BERT with one segment id and positions that begin at row 2 (Liu 2019)."""
    base = bert(**(SizesHead(vocab=50_265) | sizes), eps=1e-5, kinds=1)
    return replace(base, position=Learned(reserved=2))


def roformer(**sizes: Unpack[SizesHead]) -> ModelSpec:
    """BERT with rotary positions (Su 2021): a new encoder need not learn distances first."""
    return replace(bert(**sizes), position=Rotary())


# --- decoders -------------------------------------------------------------------------------------------------------


def gpt2(
    *,
    vocab: int = 50_257,
    width: int = 768,
    layers: int = 12,
    heads: int = 12,
    ff_width: int | None = None,
    context: int = 1024,
    head: Head | None = None,
) -> ModelSpec:
    """Pre-norm decoder with learned positions (Radford 2019)."""
    return ModelSpec(
        width=width,
        vocab=vocab,
        context=context,
        position=Learned(),
        head=head or Tied(),
        decoder=_layer_norm_stack(width, layers, heads, ff_width, act="gelu-tanh", norm_at="pre"),
        dropout=0.1,
    )


def llama(
    *,
    vocab: int = 32_000,
    width: int = 4096,
    layers: int = 32,
    heads: int = 32,
    kv_heads: int | None = None,
    head_width: int | None = None,
    ff_width: int | None = None,
    context: int = 4096,
    base: float = 10_000.0,
    scaling: Scaling | None = None,
    eps: float = 1e-5,
    bias: bool = False,
    qk_norm: NormSpec | None = None,
    window: int | None = None,
    tied: bool = False,
    head: Head | None = None,
) -> ModelSpec:
    """Pre-norm decoder: rotary positions, RMSNorm, gated feed-forward, grouped heads (Touvron 2023)."""
    attention = AttentionSpec(
        heads=heads,
        kv_heads=kv_heads or heads,
        head_width=even_heads(width, heads, bias=False).head_width if head_width is None else head_width,
        bias=bias,
        out_bias=False,
        qk_norm=qk_norm,
        window=window,
    )
    stack = StackSpec(
        layers=layers,
        attention=attention,
        feedforward=FeedForwardSpec(width=ff_width or _two_thirds(4 * width), act="silu", gated=True, bias=False),
        norm=NormSpec(kind="rms", eps=eps),
        norm_at="pre",
        final_norm=True,
    )
    return ModelSpec(
        width=width,
        vocab=vocab,
        context=context,
        position=Rotary(base=base) if scaling is None else Rotary(base=base, scaling=scaling),
        head=head or (Tied() if tied else Own()),
        decoder=stack,
    )


def _two_thirds(ff_width: int) -> int:
    """A gated feed-forward has three matrices: ⅔ of the width keeps its size; rounded up to a multiple of 16."""
    return -(-(2 * ff_width // 3) // 16) * 16


def mistral(**sizes: Unpack[LlamaSizes]) -> ModelSpec:
    """Llama with a sliding window (Jiang 2023)."""
    return llama(**(LlamaSizes(kv_heads=8, ff_width=14_336, context=32_768, window=4096) | sizes))


_QWEN = LlamaSizes(vocab=151_936, base=1_000_000.0, eps=1e-6, tied=True)


def qwen2(**sizes: Unpack[LlamaSizes]) -> ModelSpec:
    """Llama with biases on q, k and v."""
    own = LlamaSizes(width=896, layers=24, heads=14, kv_heads=2, ff_width=4864, context=32_768, bias=True)
    return llama(**(_QWEN | own | sizes))


def qwen3(**sizes: Unpack[LlamaSizes]) -> ModelSpec:
    """Llama with norms on the q and k of each head, and a head width of its own."""
    own = LlamaSizes(width=1024, layers=28, heads=16, kv_heads=8, head_width=128, ff_width=3072, context=40_960)
    return llama(**(_QWEN | own | LlamaSizes(qk_norm=NormSpec(kind="rms", eps=1e-6)) | sizes))


# --- encoder-decoders -------------------------------------------------------------------------------------------------


def vaswani(
    *,
    vocab: int = 37_000,
    width: int = 512,
    layers: int = 6,
    heads: int = 8,
    ff_width: int | None = None,
    context: int = 1024,
    act: Act = "relu",
) -> ModelSpec:
    """The 2017 Transformer: post-norm, sinusoids, one embedding for source, target and output."""
    stack = _layer_norm_stack(width, layers, heads, ff_width, act=act, norm_at="post")
    return ModelSpec(
        width=width,
        vocab=vocab,
        context=context,
        position=Sinusoid(),
        embedding=EmbeddingSpec(scale=width**0.5),
        head=Tied(),
        encoder=stack,
        decoder=stack,
        dropout=0.1,
    )


def marian(**sizes: Unpack[Sizes]) -> ModelSpec:
    """The 2017 Transformer as the Marian toolkit trains it: swish, sinusoids in halves, a fixed bias on the logits."""
    base = vaswani(**(Sizes(vocab=58_101, context=512) | sizes), act="silu")
    return replace(base, position=Sinusoid(layout="halves"), head=Tied(shift=True))


def bart(**sizes: Unpack[Sizes]) -> ModelSpec:
    """Post-norm encoder-decoder, learned positions that begin at row 2, a norm on the embeddings (Lewis 2019)."""
    base = vaswani(**(Sizes(vocab=50_265, width=768, heads=12) | sizes), act="gelu")
    embedding = EmbeddingSpec(norm=NormSpec(kind="layer", eps=1e-5))
    return replace(base, position=Learned(reserved=2), embedding=embedding, head=Tied(shift=True))


# Buckets have no last position; this only stops mistakes. Released T5 models were trained with 512.
T5_CONTEXT = 32_768


def t5(
    *,
    vocab: int = 32_128,
    width: int = 512,
    layers: int = 6,
    heads: int = 8,
    head_width: int = 64,
    ff_width: int | None = None,
    context: int = T5_CONTEXT,
    gated: bool = False,
) -> ModelSpec:
    """Pre-norm encoder-decoder with bucketed distances, no biases and no softmax scale (Raffel 2019).

    v1.0; `gated` is v1.1: a gated feed-forward and an output matrix of its own.
    """
    stack = StackSpec(
        layers=layers,
        attention=AttentionSpec(
            heads=heads, kv_heads=heads, head_width=head_width, bias=False, out_bias=False, scale=1.0
        ),
        feedforward=FeedForwardSpec(
            width=ff_width or (2 if gated else 4) * width,
            act="gelu-tanh" if gated else "relu",
            gated=gated,
            bias=False,
        ),
        norm=NormSpec(kind="rms", eps=1e-6),
        norm_at="pre",
        final_norm=True,
    )
    return ModelSpec(
        width=width,
        vocab=vocab,
        context=context,
        position=Buckets(),
        head=Own() if gated else Tied(scale=width**-0.5),
        encoder=stack,
        decoder=stack,
        dropout=0.1,
    )


def flan_t5(**sizes: Unpack[T5Sizes]) -> ModelSpec:
    """T5 v1.1."""
    return t5(**(T5Sizes(layers=8, heads=6) | sizes), gated=True)


# --- names ------------------------------------------------------------------------------------------------------------

FAMILIES: dict[str, Callable[..., ModelSpec]] = {
    family.__name__: family
    for family in (
        vaswani, bert, distilbert, roberta, roformer, gpt2, llama, mistral, qwen2, qwen3, t5, flan_t5, bart, marian
    )
}  # fmt: skip

# From the configs of Llama 3.2.
_LLAMA_32 = Llama3Scaling(factor=32.0, low=1.0, high=4.0, trained=8192)

RELEASED: dict[str, ModelSpec] = {
    "vaswani-base": vaswani(),
    "vaswani-big": vaswani(width=1024, heads=16),
    "bert-base": bert(head=Pooled()),
    "bert-large": bert(width=1024, layers=24, heads=16, head=Pooled()),
    "minilm-l6": bert(width=384, layers=6, head=Pooled()),
    "distilbert-base": distilbert(head=NoHead()),
    "roberta-base": roberta(head=Pooled()),
    "roberta-large": roberta(width=1024, layers=24, heads=16, head=Pooled()),
    "gpt2-small": gpt2(),
    "gpt2-medium": gpt2(width=1024, layers=24, heads=16),
    "gpt2-large": gpt2(width=1280, layers=36, heads=20),
    "gpt2-xl": gpt2(width=1600, layers=48, heads=25),
    "llama-2-7b": llama(ff_width=11_008),
    "llama-2-13b": llama(width=5120, layers=40, heads=40, ff_width=13_824),
    "llama-3-8b": llama(vocab=128_256, kv_heads=8, ff_width=14_336, context=8192, base=500_000.0),
    "llama-3.2-1b": llama(
        vocab=128_256, width=2048, layers=16, heads=32, kv_heads=8, ff_width=8192, context=131_072, base=500_000.0,
        scaling=_LLAMA_32, tied=True,
    ),
    "tinyllama-1.1b": llama(width=2048, layers=22, heads=32, kv_heads=4, ff_width=5632, context=2048),
    "smollm2-135m": llama(
        vocab=49_152, width=576, layers=30, heads=9, kv_heads=3, ff_width=1536, context=8192, base=100_000.0, tied=True
    ),
    "smollm2-360m": llama(
        vocab=49_152, width=960, layers=32, heads=15, kv_heads=5, ff_width=2560, context=8192, base=100_000.0, tied=True
    ),
    "smollm2-1.7b": llama(
        vocab=49_152, width=2048, layers=24, heads=32, ff_width=8192, context=8192, base=130_000.0, tied=True
    ),
    "mistral-7b": mistral(),
    "qwen2-0.5b": qwen2(),
    "qwen2-1.5b": qwen2(width=1536, layers=28, heads=12, ff_width=8960),
    "qwen3-0.6b": qwen3(),
    "qwen3-1.7b": qwen3(width=2048, ff_width=6144),
    "t5-small": t5(),
    "t5-base": t5(width=768, layers=12, heads=12),
    "t5-large": t5(width=1024, layers=24, heads=16),
    "flan-t5-small": flan_t5(),
    "flan-t5-base": flan_t5(width=768, layers=12, heads=12, ff_width=2048),
    "flan-t5-large": flan_t5(width=1024, layers=24, heads=16, ff_width=2816),
    "bart-base": bart(),
    "bart-large": bart(width=1024, layers=12, heads=16),
    "marian-base": marian(),
}  # fmt: skip

# Our own small sizes: a laptop trains `tiny` in seconds, `mini` in minutes, `small` in an hour.
SMALL: dict[str, dict[str, int]] = {
    "tiny": {"width": 64, "layers": 2, "heads": 4, "context": 128},
    "mini": {"width": 128, "layers": 4, "heads": 4, "context": 256},
    "small": {"width": 256, "layers": 6, "heads": 8, "context": 512},
}
SMALL_VOCAB = 8192
FORM_FAMILY = {"encoder": "bert", "decoder": "llama", "encoder-decoder": "vaswani"}


def sized(family: str, size: str, *, vocab: int = SMALL_VOCAB, **changes: int) -> ModelSpec:
    """One of our small sizes of a family, with changes: `sized("gpt2", "mini", vocab=65, layers=6)`."""
    if family not in FAMILIES:
        raise UnknownName("family", family, FAMILIES)
    if size not in SMALL:
        raise UnknownName("size", size, SMALL)
    sizes = SMALL[size] | changes
    own: dict[str, int | bool | None] = {}
    if family in ("t5", "flan_t5", "qwen3"):
        own["head_width"] = sizes["width"] // sizes["heads"]
    if family in ("mistral", "qwen2", "qwen3"):
        own |= {"kv_heads": sizes["heads"] // 2, "ff_width": None}
    if family == "llama":
        own["tied"] = True
    return FAMILIES[family](vocab=vocab, **sizes, **own)


NAMED: dict[str, ModelSpec] = RELEASED | {
    f"{size}-{form}": sized(family, size) for form, family in FORM_FAMILY.items() for size in SMALL
}


def named(name: str) -> ModelSpec:
    """A released model, or one of ours, by its name: `gpt2-small`, `mini-encoder-decoder`."""
    if name not in NAMED:
        raise UnknownName("model name", name, NAMED)
    return NAMED[name]
