"""The families as values: each function says what its paper or its released code says, nothing more.

Owns the sizes of the released models and our own small sizes. Knows nothing of torch, files and weight names.
A family that differs little from another is that one with other defaults, or a `replace` of its spec.
"""

from collections.abc import Callable
from typing import TypedDict, Unpack

from triform.errors import SpecError, UnknownName
from triform.spec import (
    Act,
    Alibi,
    AttentionSpec,
    Buckets,
    Classify,
    EmbeddingSpec,
    FeedForwardSpec,
    Head,
    LayerKind,
    Learned,
    Llama3Scaling,
    ModelSpec,
    NoHead,
    NoPosition,
    NormAt,
    NormSpec,
    Own,
    Pooled,
    Rotary,
    Scaling,
    Sinusoid,
    StackSpec,
    Tag,
    Tied,
    Transformed,
    replace,
    shortest_pattern,
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
    """Sizes with a choice of head."""

    head: Head | None  # None: the family's own language-model head


class T5Sizes(Sizes, total=False):
    """Sizes with a head width of its own."""

    head_width: int


class LlamaSizes(SizesHead, total=False):
    """Sizes and choices of Llama and its relatives."""

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


def _first_kinds(pattern: tuple[LayerKind, ...], layers: int) -> tuple[LayerKind, ...]:
    """The pattern of so many layers, as short as it can be."""
    return shortest_pattern([pattern[layer % len(pattern)] for layer in range(layers)])


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


def xlm_roberta(**sizes: Unpack[SizesHead]) -> ModelSpec:
    """RoBERTa in a hundred languages (Conneau 2019)."""
    return roberta(**(SizesHead(vocab=250_002) | sizes))


def camembert(**sizes: Unpack[SizesHead]) -> ModelSpec:
    """RoBERTa in French (Martin 2019)."""
    return roberta(**(SizesHead(vocab=32_005) | sizes))


def electra(**sizes: Unpack[SizesHead]) -> ModelSpec:
    """BERT, trained to find replaced tokens (Clark 2020)."""
    return bert(**(SizesHead(head=Tag(labels=1, act="gelu")) | sizes))


def mpnet(**sizes: Unpack[SizesHead]) -> ModelSpec:
    """BERT without segments, with bucketed distances on the scores beside learned positions (Song 2020)."""
    base = bert(**(SizesHead(vocab=30_527) | sizes), kinds=0)
    return replace(base, position=Learned(reserved=2), score_bias=Buckets())


def albert(*, embedding_width: int = 128, **sizes: Unpack[SizesHead]) -> ModelSpec:
    """BERT with narrow embeddings and one block for all layers (Lan 2019)."""
    base = bert(**(SizesHead(vocab=30_000) | sizes))
    stack = base.stacks["encoder"]
    stack = replace(stack, shared=True, feedforward=replace(stack.feedforward, act="gelu-tanh"))
    head = sizes.get("head") or Transformed(act="gelu-tanh", norm=stack.norm)
    embedding = replace(base.embedding, width=embedding_width)
    return replace(base, embedding=embedding, encoder=stack, head=head, dropout=0.0)


def electra_small(**sizes: Unpack[SizesHead]) -> ModelSpec:
    """ELECTRA with embeddings of half its width."""
    own = SizesHead(width=256, layers=12, heads=4)
    base = electra(**(own | sizes))
    return replace(base, embedding=replace(base.embedding, width=base.width // 2))


def gte(**sizes: Unpack[SizesHead]) -> ModelSpec:
    """BERT with rotary positions and gated feed-forwards, whose last matrix has a bias (Zhang 2024)."""
    base = bert(**(SizesHead(vocab=250_048, context=8192) | sizes), kinds=1)
    stack = base.stacks["encoder"]
    feedforward = replace(stack.feedforward, gated=True, bias=False, down_bias=True)
    return replace(base, position=Rotary(base=160_000.0), encoder=replace(stack, feedforward=feedforward))


def roformer(**sizes: Unpack[SizesHead]) -> ModelSpec:
    """BERT with rotary positions (Su 2021): a new encoder need not learn distances first."""
    return replace(bert(**sizes), position=Rotary())


def nomic_bert(
    *,
    vocab: int = 30_528,
    width: int = 768,
    layers: int = 12,
    heads: int = 12,
    ff_width: int | None = None,
    context: int = 2048,
    head: Head | None = None,
) -> ModelSpec:
    """BERT with rotary positions, gated feed-forwards and no biases on its matrices (Nussbaum 2024)."""
    norm = NormSpec(kind="layer", eps=1e-12)
    stack = StackSpec(
        layers=layers,
        attention=even_heads(width, heads, bias=False),
        feedforward=FeedForwardSpec(width=ff_width or 4 * width, act="silu", gated=True, bias=False),
        norm=norm,
        norm_at="post",
        final_norm=False,
    )
    return ModelSpec(
        width=width,
        vocab=vocab,
        context=context,
        position=Rotary(base=1000.0),
        embedding=EmbeddingSpec(kinds=2, norm=norm),
        head=head or Transformed(act="silu", norm=norm),
        encoder=stack,
    )


def modernbert(
    *,
    vocab: int = 50_368,
    width: int = 768,
    layers: int = 22,
    heads: int = 12,
    ff_width: int | None = None,
    context: int = 8192,
    window: int = 65,
    head: Head | None = None,
) -> ModelSpec:
    """Pre-norm encoder with rotary positions; two layers of three see only less than `window` tokens to each side
    (Warner 2024)."""
    norm = NormSpec(kind="layer", bias=False)
    stack = StackSpec(
        layers=layers,
        attention=even_heads(width, heads, bias=False),
        feedforward=FeedForwardSpec(width=ff_width or 3 * width // 2, act="gelu", gated=True, bias=False),
        norm=norm,
        norm_at="pre",
        final_norm=True,
        pattern=_first_kinds((LayerKind(), *[LayerKind(window=window, rotary=Rotary())] * 2), layers),
        first_norm=False,
    )
    return ModelSpec(
        width=width,
        vocab=vocab,
        context=context,
        position=Rotary(base=160_000.0),
        embedding=EmbeddingSpec(norm=norm),
        head=head or Transformed(act="gelu", norm=norm, bias=False),
        encoder=stack,
    )


def embedding_gemma(**sizes: Unpack[LlamaSizes]) -> ModelSpec:
    """Gemma 3's blocks in an encoder, for vectors of texts (Vera 2025)."""
    own = LlamaSizes(width=768, layers=24, heads=3, ff_width=1152, context=2048, window=257)
    return replace(_in_encoder(gemma3(**(own | sizes))), head=NoHead())


def eurobert(**sizes: Unpack[LlamaSizes]) -> ModelSpec:
    """Llama's parts in an encoder (Boizard 2025)."""
    own = LlamaSizes(vocab=128_256, width=768, layers=12, heads=12, ff_width=3072, context=8192, base=250_000.0)
    return _in_encoder(llama(**(own | sizes)))


def _in_encoder(spec: ModelSpec) -> ModelSpec:
    """The decoder's parts as an encoder: every position sees the whole text."""
    return replace(spec, encoder=spec.decoder, decoder=None)


# --- decoders -------------------------------------------------------------------------------------------------------


def gpt2(
    *,
    vocab: int = 50_257,
    width: int = 768,
    layers: int = 12,
    heads: int = 12,
    ff_width: int | None = None,
    context: int = 1024,
    act: Act = "gelu-tanh",
    head: Head | None = None,
) -> ModelSpec:
    """Pre-norm decoder with learned positions (Radford 2019)."""
    return ModelSpec(
        width=width,
        vocab=vocab,
        context=context,
        position=Learned(),
        head=head or Tied(),
        decoder=_layer_norm_stack(width, layers, heads, ff_width, act=act, norm_at="pre"),
        dropout=0.1,
    )


def gpt_neo(*, window: int = 256, **sizes: Unpack[SizesHead]) -> ModelSpec:
    """GPT-2 without a scale on its scores; every second layer sees only a window (Black 2021)."""
    spec = gpt2(**(SizesHead(context=2048) | sizes))
    stack = spec.stacks["decoder"]
    attention = replace(stack.attention, bias=False, scale=1.0)
    pattern = _first_kinds((LayerKind(), LayerKind(window=window)), stack.layers)
    return replace(spec, decoder=replace(stack, attention=attention, pattern=pattern), dropout=0.0)


def opt(**sizes: Unpack[SizesHead]) -> ModelSpec:
    """GPT-2 with ReLU and positions that begin at row 2 (Zhang 2022)."""
    return replace(gpt2(**(SizesHead(vocab=50_272, context=2048) | sizes), act="relu"), position=Learned(reserved=2))


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


def _replace_decoder(spec: ModelSpec, **changes: object) -> ModelSpec:
    """The same model with these fields of its decoder changed."""
    return replace(spec, decoder=replace(spec.stacks["decoder"], **changes))


def _two_thirds(ff_width: int) -> int:
    """A gated feed-forward has three matrices: ⅔ of the width keeps its size; rounded up to a multiple of 16."""
    return -(-(2 * ff_width // 3) // 16) * 16


def smollm3(**sizes: Unpack[LlamaSizes]) -> ModelSpec:
    """Llama; every fourth layer has no positions (Hugging Face 2025)."""
    own = LlamaSizes(vocab=128_256, width=2048, layers=36, heads=16, kv_heads=4, ff_width=11_008, context=65_536)
    spec = llama(**(own | LlamaSizes(base=5_000_000.0, eps=1e-6, tied=True) | sizes))
    pattern = (*[LayerKind()] * 3, LayerKind(rotary=NoPosition()))
    stack = spec.stacks["decoder"]
    return replace(spec, decoder=replace(stack, pattern=_first_kinds(pattern, stack.layers)))


def gemma3(**sizes: Unpack[LlamaSizes]) -> ModelSpec:
    """Norms before and after each part, norms on q and k; five layers of six see only a window (Google 2025)."""
    own = LlamaSizes(vocab=262_144, width=640, layers=18, heads=4, kv_heads=1, head_width=256, ff_width=2048)
    window = sizes.pop("window", 512)
    rest = LlamaSizes(context=32_768, base=1_000_000.0, eps=1e-6, tied=True)
    norm = NormSpec(kind="rms", eps=1e-6, from_one=True)
    spec = llama(**(own | rest | LlamaSizes(qk_norm=norm) | sizes))
    stack = spec.stacks["decoder"]
    local = LayerKind(window=window, rotary=Rotary())
    stack = replace(
        stack,
        feedforward=replace(stack.feedforward, act="gelu-tanh"),
        norm=norm,
        norm_at="sandwich",
        pattern=_first_kinds((*[local] * 5, LayerKind()), stack.layers),
    )
    return replace(spec, embedding=EmbeddingSpec(scale=spec.width**0.5), decoder=stack)


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


def phi3(**sizes: Unpack[LlamaSizes]) -> ModelSpec:
    """Mistral's parts in other sizes (Abdin 2024)."""
    own = LlamaSizes(vocab=32_064, width=3072, kv_heads=None, ff_width=8192, context=4096, window=2047)
    return mistral(**(own | sizes))


def starcoder2(**sizes: Unpack[LlamaSizes]) -> ModelSpec:
    """Rotary positions and grouped heads of Llama; LayerNorm, biases and feed-forward of GPT-2 (Lozhkov 2024)."""
    own = LlamaSizes(width=3072, layers=30, heads=24, kv_heads=2, ff_width=12_288, context=16_384, window=4096)
    code = LlamaSizes(vocab=49_152, base=999_999.4420358813, bias=True, tied=True)
    base = llama(**(code | own | sizes))
    stack = base.stacks["decoder"]
    return _replace_decoder(
        base,
        attention=replace(stack.attention, out_bias=True),
        feedforward=FeedForwardSpec(width=sizes.get("ff_width", 12_288) or 4 * base.width, act="gelu-tanh"),
        norm=replace(stack.norm, kind="layer"),
    )


def gpt_neox(**sizes: Unpack[SizesHead]) -> ModelSpec:
    """Attention and feed-forward read the same input, each through its own norm; a quarter of each head is rotated
    (Black 2022; Pythia, Biderman 2023)."""
    own = SizesHead(vocab=50_432, width=6144, layers=44, heads=64, context=2048)
    base = replace(gpt2(**(own | sizes), act="gelu"), position=Rotary(share=0.25), head=sizes.get("head") or Own())
    return replace(_replace_decoder(base, parts="parallel"), dropout=0.0)


def bloom(**sizes: Unpack[SizesHead]) -> ModelSpec:
    """GPT-2 with ALiBi and a norm on the embeddings (BigScience 2022)."""
    base = gpt2(**(SizesHead(vocab=250_880, width=1024, layers=24, heads=16, context=2048) | sizes))
    embedding = EmbeddingSpec(norm=NormSpec(kind="layer", eps=1e-5))
    return replace(base, position=Alibi(), embedding=embedding, dropout=0.0)


def mpt(**sizes: Unpack[SizesHead]) -> ModelSpec:
    """GPT-2 with ALiBi and without any bias (MosaicML 2023)."""
    own = SizesHead(vocab=50_432, width=4096, layers=32, heads=32, context=2048)
    base = replace(gpt2(**(own | sizes), act="gelu"), position=Alibi(), dropout=0.0)
    stack = base.stacks["decoder"]
    return _replace_decoder(
        base,
        attention=replace(stack.attention, bias=False, out_bias=False),
        feedforward=replace(stack.feedforward, bias=False),
        norm=replace(stack.norm, bias=False),
    )


def olmo2(**sizes: Unpack[LlamaSizes]) -> ModelSpec:
    """Llama with norms on what is added alone, and on q and k of all heads together (Walsh 2024)."""
    own = LlamaSizes(vocab=100_352, ff_width=11_008, base=500_000.0, eps=1e-6)
    base = llama(**(own | sizes))
    stack = base.stacks["decoder"]
    attention = replace(stack.attention, qk_norm=stack.norm, qk_normed_over="all heads")
    return _replace_decoder(base, attention=attention, norm_at="after")


def granite(
    *,
    embedding_scale: float = 12.0,
    score_scale: float = 1 / 64,
    added_scale: float = 0.22,
    logits_divisor: float = 8.0,
    **sizes: Unpack[LlamaSizes],
) -> ModelSpec:
    """Llama with four factors, so that learning rates hold for all sizes (Granite 3, IBM 2024)."""
    own = LlamaSizes(vocab=49_155, width=2048, layers=40, kv_heads=8, ff_width=8192, base=5e6, tied=True)
    base = llama(**(own | LlamaSizes(context=131_072) | sizes))
    attention = replace(base.stacks["decoder"].attention, scale=score_scale)
    scaled = _replace_decoder(base, attention=attention, added_scale=added_scale)
    head = base.head if not isinstance(base.head, Tied | Own) else replace(base.head, scale=1 / logits_divisor)
    return replace(scaled, embedding=EmbeddingSpec(scale=embedding_scale), head=head)


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
    norm_at: NormAt = "post",
) -> ModelSpec:
    """The 2017 Transformer: post-norm, sinusoids, one embedding for source, target and output."""
    stack = _layer_norm_stack(width, layers, heads, ff_width, act=act, norm_at=norm_at)
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


def mbart(**sizes: Unpack[Sizes]) -> ModelSpec:
    """BART with pre-norm, a norm behind each stack, and scaled embeddings (Liu 2020)."""
    own = Sizes(vocab=250_027, width=1024, layers=12, heads=16)
    base = vaswani(**(own | sizes), act="gelu", norm_at="pre")
    embedding = replace(base.embedding, norm=NormSpec(kind="layer", eps=1e-5))
    return replace(base, position=Learned(reserved=2), embedding=embedding, head=Tied(shift=True))


def pegasus(**sizes: Unpack[Sizes]) -> ModelSpec:
    """Pre-norm, a norm behind each stack, Marian's sinusoids; trained to write missing sentences (Zhang 2019)."""
    own = Sizes(vocab=96_103, width=1024, layers=16, heads=16)
    base = vaswani(**(own | sizes), norm_at="pre")
    return replace(base, position=Sinusoid(layout="halves"), head=Tied(shift=True))


def m2m_100(**sizes: Unpack[Sizes]) -> ModelSpec:
    """Pre-norm and fairseq's sinusoids; a token in front says the language (M2M-100, Fan 2020; NLLB, 2022)."""
    own = Sizes(vocab=128_112, width=1024, layers=12, heads=16)
    base = vaswani(**(own | sizes), norm_at="pre")
    return replace(base, position=Sinusoid(layout="fairseq", first=2))


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


def encoder_of(spec: ModelSpec) -> ModelSpec:
    """The encoder alone: hidden states of the source."""
    return replace(spec, decoder=None, head=NoHead())


# --- names ------------------------------------------------------------------------------------------------------------

FAMILIES: dict[str, Callable[..., ModelSpec]] = {
    family.__name__: family
    for family in (
        vaswani, bert, distilbert, roberta, xlm_roberta, camembert, electra, electra_small, mpnet, albert, gte,
        roformer, nomic_bert, eurobert, modernbert, embedding_gemma, gpt2, gpt_neo, opt, llama, mistral, qwen2, qwen3,
        smollm3, gemma3, phi3, starcoder2, gpt_neox, bloom, mpt, olmo2, granite,
        t5, flan_t5, bart, marian, mbart, pegasus, m2m_100,
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
    "xlm-roberta-base": xlm_roberta(head=Pooled()),
    "xlm-roberta-large": xlm_roberta(width=1024, layers=24, heads=16, head=Pooled()),
    "bge-m3": xlm_roberta(width=1024, layers=24, heads=16, context=8192, head=Pooled()),
    "bge-reranker-base": xlm_roberta(head=Classify(labels=1, pick="first", act="tanh")),
    "multilingual-e5-small": bert(vocab=250_037, width=384, head=Pooled()),
    "multilingual-e5-base": xlm_roberta(head=Pooled()),
    "camembert-base": camembert(head=Pooled()),
    "electra-base": electra(),
    "electra-small": electra_small(),
    "mpnet-base": mpnet(head=Pooled()),
    "all-mpnet-base-v2": mpnet(head=Pooled()),
    "albert-base-v2": albert(head=Pooled()),
    "albert-large-v2": albert(width=1024, layers=24, heads=16, head=Pooled()),
    "albert-xlarge-v2": albert(width=2048, layers=24, heads=16, head=Pooled()),
    "albert-xxlarge-v2": albert(width=4096, layers=12, heads=64, head=Pooled()),
    "gte-multilingual-base": gte(head=Pooled()),
    "electra-large": electra(width=1024, layers=24, heads=16),
    "roformer-chinese-base": roformer(vocab=50_000, context=1536, head=NoHead()),
    "nomic-embed-text-v1.5": nomic_bert(head=NoHead()),
    "eurobert-210m": eurobert(head=NoHead()),
    "modernbert-base": modernbert(),
    "modernbert-large": modernbert(width=1024, layers=28, heads=16, ff_width=2624),
    "embeddinggemma-300m": embedding_gemma(),
    "gemma-3-270m": gemma3(),
    "gemma-3-1b": gemma3(width=1152, layers=26, ff_width=6912),
    "smollm3-3b": smollm3(),
    "gpt-neo-125m": gpt_neo(),
    "gpt-neo-1.3b": gpt_neo(width=2048, layers=24, heads=16),
    "gpt-neo-2.7b": gpt_neo(width=2560, layers=32, heads=20),
    "qwen3-embedding-0.6b": qwen3(vocab=151_669, context=32_768, head=NoHead()),
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
    "phi-3-mini-4k": phi3(),
    "phi-4": phi3(
        vocab=100_352, width=5120, layers=40, heads=40, kv_heads=10, ff_width=17_920, context=16_384, base=250_000.0,
        window=None,
    ),
    "opt-125m": opt(),
    "opt-1.3b": opt(width=2048, layers=24, heads=32),
    "opt-6.7b": opt(width=4096, layers=32, heads=32),
    "gpt-neox-20b": gpt_neox(),
    "pythia-14m": gpt_neox(vocab=50_304, width=128, layers=6, heads=4),
    "pythia-70m": gpt_neox(vocab=50_304, width=512, layers=6, heads=8),
    "pythia-160m": gpt_neox(vocab=50_304, width=768, layers=12, heads=12),
    "pythia-410m": gpt_neox(vocab=50_304, width=1024, layers=24, heads=16),
    "pythia-1b": gpt_neox(vocab=50_304, width=2048, layers=16, heads=8),
    "pythia-1.4b": gpt_neox(vocab=50_304, width=2048, layers=24, heads=16),
    "bloom-560m": bloom(),
    "bloom-1.1b": bloom(width=1536),
    "bloom-7.1b": bloom(width=4096, layers=30, heads=32),
    "mpt-7b": mpt(),
    "mpt-30b": mpt(width=7168, layers=48, heads=64, context=8192),
    "olmo-2-1b": olmo2(width=2048, layers=16, heads=16, ff_width=8192),
    "olmo-2-7b": olmo2(),
    "granite-3.1-2b": granite(),
    "granite-3.1-8b": granite(width=4096, ff_width=12_800, score_scale=1 / 128, logits_divisor=16.0, base=1e7),
    "starcoder2-3b": starcoder2(),
    "starcoder2-7b": starcoder2(
        width=4608, layers=32, heads=36, kv_heads=4, ff_width=18_432, base=1_000_000.0
    ),
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
    "mt5-small": flan_t5(vocab=250_112),
    "mt5-base": flan_t5(vocab=250_112, width=768, layers=12, heads=12, ff_width=2048),
    "madlad400-3b": flan_t5(vocab=256_000, width=1024, layers=32, heads=16, head_width=128, ff_width=8192),
    "sentence-t5-base": encoder_of(t5(width=768, layers=12, heads=12)),
    "mbart-large-cc25": mbart(),
    "mbart-large-50": mbart(vocab=250_054),
    "pegasus-large": pegasus(),
    "m2m100-418m": m2m_100(),
    "m2m100-1.2b": m2m_100(layers=24, ff_width=8192),
    "nllb-200-distilled-600m": m2m_100(vocab=256_206),
    "nllb-200-1.3b": m2m_100(vocab=256_206, layers=24, ff_width=8192),
    "nllb-200-3.3b": m2m_100(vocab=256_206, width=2048, layers=24, ff_width=8192),
}  # fmt: skip

# Our own small sizes: a laptop trains `tiny` in seconds, `mini` in minutes, `small` in an hour.
SMALL_SIZES: dict[str, dict[str, int]] = {
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
    if size not in SMALL_SIZES:
        raise UnknownName("size", size, SMALL_SIZES)
    sizes = SMALL_SIZES[size] | changes
    own: dict[str, int | bool | None] = {}
    if family in ("t5", "flan_t5", "qwen3"):
        own["head_width"] = sizes["width"] // sizes["heads"]
    if family in ("mistral", "qwen2", "qwen3", "phi3", "starcoder2", "olmo2", "granite"):
        own |= {"kv_heads": sizes["heads"] // 2, "ff_width": None}
    if family == "llama":
        own["tied"] = True
    return FAMILIES[family](vocab=vocab, **sizes, **own)


NAMED: dict[str, ModelSpec] = RELEASED | {
    f"{size}-{form}": sized(family, size) for form, family in FORM_FAMILY.items() for size in SMALL_SIZES
}


def named(name: str) -> ModelSpec:
    """A released model, or one of ours, by its name: `gpt2-small`, `mini-encoder-decoder`."""
    if name not in NAMED:
        raise UnknownName("model name", name, NAMED)
    return NAMED[name]
