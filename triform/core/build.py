"""From a spec to a network: the only place that matches on the options of a spec.

Sets no weights: they are drawn (`initial_weights.py`) or come from a file.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triform import spec as s
from triform.core import positions
from triform.core.attention import Attend, CrossAttention, SelfAttention
from triform.core.blocks import (
    Addition,
    Block,
    BothSides,
    Dropout,
    EmbeddingLayer,
    NoSegments,
    ParallelBlock,
    ParallelResidual,
    PastOnly,
    Pattern,
    Residual,
    Scaled,
    SegmentEmbedding,
    SharedBlocks,
    Stack,
)
from triform.core.cache import Cache
from triform.core.feedforward import FeedForward, GatedFeedForward
from triform.core.forms import DecoderOnly, EncoderDecoder, EncoderOnly, Form, Pick, TokenTable
from triform.core.norms import LayerNorm, LayerNormWithoutBias, OverAllHeads, RmsNorm, RmsNormFromOne
from triform.core.output_heads import (
    OwnHead,
    ReadHead,
    ScaledOwnHead,
    ShiftedHead,
    TiedHead,
    TransformedHead,
    TransformedHeadWithoutShift,
)
from triform.errors import SpecError
from triform.precision import at_least_float32, identity, linear_in_float32
from triform.shapes import XD, XV


class Linear(nn.Linear):
    """x Wᵀ + b, created without initial weights."""

    def reset_parameters(self) -> None: ...


class WideLinear(Linear):
    """x Wᵀ + b; with float16 weights in float32, because the result may exceed 65,504, the largest float16."""

    def forward(self, x: XD) -> XV:
        return (
            linear_in_float32(x, self.weight, self.bias) if self.weight.dtype == torch.float16 else super().forward(x)
        )


def build_skeleton(spec: s.ModelSpec) -> Form:
    """The network on the meta device: names and shapes only, nothing is allocated."""
    with torch.device("meta"):
        token = TokenTable(spec.vocab, spec.embedding_width)
        head, pick = build_head(spec), choose_tokens(spec.head)
        if spec.encoder is not None and spec.decoder is not None:
            return EncoderDecoder(
                token, build_encoder(spec, spec.encoder), build_decoder(spec, spec.decoder), head, pick
            )
        if spec.encoder is not None:
            return EncoderOnly(token, build_encoder(spec, spec.encoder), head, pick)
        if spec.decoder is not None:
            return DecoderOnly(token, build_decoder(spec, spec.decoder), head, pick)
    raise SpecError("neither encoder nor decoder is given")


def make_cache(
    spec: s.ModelSpec,
    *,
    rows: int = 1,
    capacity: int = 64,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    of_source: bool = False,
) -> Cache:
    """An empty cache of the right shape for a model with a decoder; `of_source`: of sources, which every layer sees
    whole."""
    if spec.decoder is None:
        raise SpecError("an encoder has no KV cache; a cache is for models with a decoder")
    a = spec.decoder.attention
    return Cache(
        layers=spec.decoder.layers,
        kv_heads=a.kv_heads,
        head_width=a.head_width,
        rows=rows,
        capacity=capacity,
        windows=() if of_source else [kind.window for kind in spec.layer_kinds("decoder")],
        spare=s.SPARE_POSITIONS,
        dtype=dtype,
        device=device,
    )


# --- parts ----------------------------------------------------------------------------------------------------------


def build_encoder(spec: s.ModelSpec, stack: s.StackSpec) -> Stack:
    bias = build_score_bias(spec, stack, two_sided=True)
    return build_stack(spec, "encoder", make_pattern=BothSides, bias=bias, cross=False)


def build_decoder(spec: s.ModelSpec, stack: s.StackSpec) -> Stack:
    bias = build_score_bias(spec, stack, two_sided=False)
    return build_stack(spec, "decoder", make_pattern=PastOnly, bias=bias, cross=spec.encoder is not None)


def build_stack(
    spec: s.ModelSpec, name: str, *, make_pattern: Callable[[int | None], Pattern], bias: nn.Module, cross: bool
) -> Stack:
    """One stack, encoder or decoder."""
    stack, layers = spec.stacks[name], spec.layer_kinds(name)
    kinds = list(dict.fromkeys(layers))  # an attention knows its kind by its number here
    return Stack(
        entry=build_entry(spec),
        angles=positions.LayerAngles(build_angles(kind.rotary, stack, context=spec.context) for kind in kinds),
        score_bias=bias,
        blocks=build_blocks(spec, stack, layers, kinds, cross=cross),
        final=build_norm(stack.norm, spec.width) if stack.final_norm else nn.Identity(),
        patterns=[make_pattern(kind.window) for kind in kinds],
        widen=choose_stream(stack),
    )


def build_blocks(
    spec: s.ModelSpec, stack: s.StackSpec, layers: Sequence[s.LayerKind], kinds: list[s.LayerKind], *, cross: bool
) -> nn.ModuleList:
    """The block of every layer: each its own, or one for all."""
    if stack.shared:
        return SharedBlocks([build_block(spec, stack, 0, 0, layers[0], cross=cross)] * stack.layers)
    return nn.ModuleList(
        build_block(spec, stack, layer, kinds.index(kind), kind, cross=cross) for layer, kind in enumerate(layers)
    )


def choose_stream(stack: s.StackSpec) -> Callable[[Tensor], Tensor]:
    """A norm behind each sum bounds the residual stream; without one it grows from layer to layer. Parts without a
    norm before them read the stream itself, in the precision of their weights."""
    return identity if stack.norm_at in ("post", "after") else at_least_float32


def build_entry(spec: s.ModelSpec) -> EmbeddingLayer:
    """The layer that adds up token, segment and position embeddings."""
    embedding, width = spec.embedding, spec.embedding_width
    return EmbeddingLayer(
        scale=embedding.scale,
        kinds=SegmentEmbedding(torch.empty(embedding.kinds, width)) if embedding.kinds else NoSegments(),
        position=build_added_position(spec),
        norm=nn.Identity() if embedding.norm is None else build_norm(embedding.norm, width),
        drop=build_drop(spec),
        project=nn.Identity() if embedding.width is None else Linear(width, spec.width),
    )


def build_block(
    spec: s.ModelSpec, stack: s.StackSpec, layer: int, number: int, kind: s.LayerKind, *, cross: bool
) -> Block:
    """One block: attention, cross-attention where there is a source, feed-forward."""
    attention = build_attention(spec, stack.attention, layer, number, kind)
    parts = {"attention": build_residual(spec, stack, attention, normed=stack.first_norm or layer > 0)}
    if cross:
        parts["cross"] = build_residual(spec, stack, build_cross_attention(spec, stack.attention, layer))
    parts["feedforward"] = build_residual(spec, stack, build_feedforward(spec, stack.feedforward))
    make = Block if stack.parts == "in turn" else ParallelBlock
    return make(parts)


def build_residual(spec: s.ModelSpec, stack: s.StackSpec, f: nn.Module, *, normed: bool = True) -> Addition:
    """A sublayer with its norms, at the places that the stack's spec names."""

    def norm(*at: s.NormAt) -> nn.Module:
        return build_norm(stack.norm, spec.width) if normed and stack.norm_at in at else nn.Identity()

    after = norm("sandwich", "after") if stack.added_scale == 1.0 else Scaled(stack.added_scale)
    kind = Residual if stack.parts == "in turn" else ParallelResidual
    return kind(f, before=norm("pre", "sandwich"), after=after, outer=norm("post"), drop=build_drop(spec))


def build_attention(spec: s.ModelSpec, a: s.AttentionSpec, layer: int, number: int, kind: s.LayerKind) -> SelfAttention:
    """Self-attention with fused q, k and v."""

    def head_norm(heads: int) -> nn.Module:
        if a.qk_norm is None:
            return nn.Identity()
        if a.qk_normed_over == "head":
            return build_norm(a.qk_norm, a.head_width)
        return OverAllHeads(build_norm(a.qk_norm, heads * a.head_width))

    return SelfAttention(
        qkv=Linear(spec.width, (a.heads + 2 * a.kv_heads) * a.head_width, bias=a.bias),
        out=Linear(a.heads * a.head_width, spec.width, bias=a.out_bias),
        q_norm=head_norm(a.heads),
        k_norm=head_norm(a.kv_heads),
        turn=build_rotation(kind.rotary),
        attend=Attend(a.score_scale),
        layer=layer,
        kind=number,
        head_width=a.head_width,
    )


def build_cross_attention(spec: s.ModelSpec, a: s.AttentionSpec, layer: int) -> CrossAttention:
    """Cross-attention: queries from the decoder, keys and values from the source."""
    return CrossAttention(
        q=Linear(spec.width, a.heads * a.head_width, bias=a.bias),
        kv=Linear(spec.width, 2 * a.kv_heads * a.head_width, bias=a.bias),
        out=Linear(a.heads * a.head_width, spec.width, bias=a.out_bias),
        attend=Attend(a.score_scale),
        layer=layer,
        head_width=a.head_width,
    )


def build_feedforward(spec: s.ModelSpec, f: s.FeedForwardSpec) -> FeedForward:
    """The feed-forward network, gated or not."""
    kind, rows = (GatedFeedForward, 2 * f.width) if f.gated else (FeedForward, f.width)
    # T5 was trained in bfloat16: its feed-forwards exceed the range of float16. The reference keeps `down` in float32.
    down = WideLinear if isinstance(spec.position, s.Buckets) else Linear
    up, act = Linear(spec.width, rows, bias=f.bias), find_act(f.act)
    return kind(up, down(f.width, spec.width, bias=f.has_down_bias), act=act)


def build_norm(norm: s.NormSpec, width: int) -> nn.Module:
    """A LayerNorm or an RMSNorm."""
    match norm:
        case s.NormSpec(kind="layer", bias=True):
            return LayerNorm(width, eps=norm.eps)
        case s.NormSpec(kind="layer"):
            return LayerNormWithoutBias(width, eps=norm.eps)
        case s.NormSpec(from_one=True):
            return RmsNormFromOne(width, eps=norm.eps)
        case _:
            return RmsNorm(width, eps=norm.eps)


def build_drop(spec: s.ModelSpec) -> nn.Module:
    return Dropout(spec.dropout) if spec.dropout else nn.Identity()


def find_act(act: s.Act) -> Callable[[Tensor], Tensor]:
    """The function of an activation's name."""
    match act:
        case "relu":
            return F.relu
        case "gelu":
            return F.gelu
        case "gelu-tanh":
            return gelu_tanh
        case "gelu-sigmoid":
            return gelu_sigmoid
        case "silu":
            return F.silu
        case "tanh":
            return torch.tanh
        case "relu2":
            return squared_relu
        case "mish":
            return F.mish


def gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def gelu_sigmoid(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def squared_relu(x: Tensor) -> Tensor:
    return F.relu(x).square()


# --- positions ------------------------------------------------------------------------------------------------------


def build_added_position(spec: s.ModelSpec) -> nn.Module:
    """What is added to the embeddings for the position, if anything."""
    match spec.position:
        case s.Sinusoid(layout="interleaved"):
            return positions.SinusoidalPositions()
        case s.Sinusoid(layout="halves"):
            return positions.SinusoidalHalves()
        case s.Sinusoid(first=first):
            return positions.FairseqSinusoid(first)
        case s.Learned(reserved=reserved):
            return positions.LearnedPositions(reserved + spec.context, spec.embedding_width, reserved=reserved)
        case _:
            return positions.NoAddedPosition()


def build_rotation(rotary: s.Rotary | s.NoPosition | None) -> nn.Module:
    """What turns q and k: all of each head, its first part, or nothing."""
    match rotary:
        case s.Rotary(share=1.0):
            return positions.Rotation()
        case s.Rotary():
            return positions.PartialRotation()
        case _:
            return positions.NoRotation()


def build_angles(rotary: s.Rotary | s.NoPosition | None, stack: s.StackSpec, *, context: int) -> nn.Module:
    """The rotary angles of a stack, if its positions are rotary."""
    if not isinstance(rotary, s.Rotary):
        return positions.NoAngles()
    width, base = rotary.width(stack.attention.head_width), rotary.base
    plain = positions.rotary_frequencies(width, base)
    match rotary.scaling:
        case s.NoScaling() | s.DynamicScaling():
            return positions.RotaryAngles(plain, sharpen=1.0)
        case s.LongRopeScaling() as longrope:
            pairs = zip(plain, longrope.factors(context), strict=True)
            sharpen = positions.longrope_sharpen(longrope.stretched, longrope.trained)
            sharpen = sharpen if longrope.sharpen is None else longrope.sharpen
            return positions.RotaryAngles([frequency / factor for frequency, factor in pairs], sharpen=sharpen)
        case s.LinearScaling(factor=factor):
            return positions.RotaryAngles([frequency / factor for frequency in plain], sharpen=1.0)
        case s.Llama3Scaling(factor=factor, low=low, high=high, trained=trained):
            slowed = positions.llama3_frequencies(plain, factor=factor, low=low, high=high, trained=trained)
            return positions.RotaryAngles(slowed, sharpen=1.0)
        case s.YarnScaling() as yarn:
            ramp = positions.YarnRamp.of(
                width, base, fast=yarn.fast, slow=yarn.slow, trained=yarn.trained, whole=yarn.whole
            )
            sharpen = 0.1 * math.log(max(yarn.factor, 1.0)) + 1.0 if yarn.sharpen is None else yarn.sharpen
            return positions.RotaryAngles(positions.yarn_frequencies(plain, ramp, factor=yarn.factor), sharpen=sharpen)


def build_score_bias(spec: s.ModelSpec, stack: s.StackSpec, *, two_sided: bool) -> nn.Module:
    """What is added to the scores for the distance, if anything."""
    match spec.added_to_scores:
        case s.Buckets(count=count, distance=distance):
            kind = positions.TwoSidedBucketBias if two_sided else positions.BucketBias
            return kind(count, stack.attention.heads, distance=distance)
        case s.Alibi():
            return positions.AlibiBias(stack.attention.heads)
        case _:
            return positions.NoBias()


# --- heads ----------------------------------------------------------------------------------------------------------


def build_head(spec: s.ModelSpec) -> nn.Module:
    """What reads the last hidden states: a language-model head, a classifier, or nothing."""
    width = spec.width
    match spec.head:
        case s.Tied(scale=scale, shift=True):
            return ShiftedHead(spec.vocab, scale=scale)
        case s.Tied(scale=scale):
            return TiedHead(scale=scale)
        case s.Own(scale=1.0):
            return OwnHead(spec.vocab, width)
        case s.Own(scale=scale):
            return ScaledOwnHead(spec.vocab, width, scale=scale)
        case s.Transformed(act=act, norm=norm, bias=bias, shift=shift):
            narrow = spec.embedding_width
            dense, kind = Linear(width, narrow, bias=bias), TransformedHead if shift else TransformedHeadWithoutShift
            return kind(dense, build_norm(norm, narrow), act=find_act(act), vocab=spec.vocab)
        case s.NoHead():
            return ReadHead(nn.Identity(), nn.Identity(), act=nn.Identity())
        case s.Pooled():
            return ReadHead(Linear(width, width), nn.Identity(), act=torch.tanh)
        case s.Classify(labels=labels, bias=bias):
            return build_read_head(spec.head, width, Linear(width, labels, bias=bias))
        case s.Tag(labels=labels):
            return build_read_head(spec.head, width, Linear(width, labels))
        case s.Span():
            return build_read_head(spec.head, width, Linear(width, 2))
        case _:
            raise SpecError(f"unknown output head {spec.head!r}")


def build_read_head(head: s.Classify | s.Tag | s.Span, width: int, out: nn.Module) -> ReadHead:
    """A head of labels or spans, with or without a layer before its scores."""
    if head.act is None:
        return ReadHead(nn.Identity(), out, act=nn.Identity())
    norm = nn.Identity() if head.norm is None else build_norm(head.norm, width)
    return ReadHead(Linear(width, width, bias=head.dense_bias), out, act=find_act(head.act), norm=norm)


def choose_tokens(head: s.Head) -> Pick:
    """Which tokens of a text the head reads."""
    match head:
        case s.Pooled() | s.Classify(pick="first"):
            return lambda text, x: text.first(x)
        case s.Classify(pick="mean"):
            return lambda text, x: text.mean(x)
        case s.Classify():
            return lambda text, x: text.last(x)
        case _:
            return lambda text, x: x
