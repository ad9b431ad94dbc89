"""From a spec to a network: the only place that matches on the options of a spec.

Sets no weights: they are drawn (`initial_weights.py`) or come from a file.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triform import spec as s
from triform.core import positions
from triform.core.attention import Attend, CrossAttention, SelfAttention
from triform.core.blocks import (
    Block,
    Dropout,
    Entry,
    NoSegments,
    PastOnly,
    Pattern,
    Residual,
    SegmentEmbedding,
    Stack,
    see_both_sides,
)
from triform.core.cache import Cache
from triform.core.feedforward import FeedForward, GatedFeedForward
from triform.core.forms import DecoderOnly, EncoderDecoder, EncoderOnly, Form, Pick
from triform.core.norms import LayerNorm, RmsNorm
from triform.core.output_heads import OwnHead, ReadHead, ShiftedHead, TiedHead, TransformedHead
from triform.errors import SpecError
from triform.precision import at_least_float32, unchanged, wide_linear
from triform.shapes import XD, XV


class Linear(nn.Linear):
    """x Wᵀ + b, created without initial weights."""

    def reset_parameters(self) -> None: ...


class WideLinear(Linear):
    """x Wᵀ + b; with float16 weights in float32, because the result may exceed 65,504, the largest float16."""

    def forward(self, x: XD) -> XV:
        return wide_linear(x, self.weight, self.bias) if self.weight.dtype == torch.float16 else super().forward(x)


def skeleton(spec: s.ModelSpec) -> Form:
    """The network on the meta device: names and shapes only, nothing is allocated."""
    with torch.device("meta"):
        # With a weight of its own, an embedding draws none; drawing on "meta" would import torch's compiler.
        token = nn.Embedding(spec.vocab, spec.width, _weight=torch.empty(spec.vocab, spec.width))
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


def cache_for(
    spec: s.ModelSpec,
    *,
    rows: int = 1,
    capacity: int = 64,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Cache:
    """An empty cache of the right shape for a model with a decoder."""
    if spec.decoder is None:
        raise SpecError("an encoder has no KV cache; a cache is for models with a decoder")
    a = spec.decoder.attention
    return Cache(
        layers=spec.decoder.layers,
        kv_heads=a.kv_heads,
        head_width=a.head_width,
        rows=rows,
        capacity=capacity,
        dtype=dtype,
        device=device,
    )


# --- parts ----------------------------------------------------------------------------------------------------------


def build_encoder(spec: s.ModelSpec, stack: s.StackSpec) -> Stack:
    bias = build_score_bias(spec, stack, two_sided=True)
    return build_stack(spec, stack, pattern=see_both_sides, bias=bias, cross=False)


def build_decoder(spec: s.ModelSpec, stack: s.StackSpec) -> Stack:
    pattern = PastOnly(stack.attention.window)
    bias = build_score_bias(spec, stack, two_sided=False)
    return build_stack(spec, stack, pattern=pattern, bias=bias, cross=spec.encoder is not None)


def build_stack(spec: s.ModelSpec, stack: s.StackSpec, *, pattern: Pattern, bias: nn.Module, cross: bool) -> Stack:
    return Stack(
        entry=build_entry(spec),
        angles=build_angles(spec, stack),
        score_bias=bias,
        blocks=[build_block(spec, stack, layer=layer, cross=cross) for layer in range(stack.layers)],
        final=build_norm(stack.norm, spec.width) if stack.final_norm else nn.Identity(),
        pattern=pattern,
        # A norm after each addition bounds the residual stream; without one it grows from layer to layer.
        widen=unchanged if stack.norm_at == "post" else at_least_float32,
    )


def build_entry(spec: s.ModelSpec) -> Entry:
    embedding = spec.embedding
    return Entry(
        scale=embedding.scale,
        kinds=SegmentEmbedding(torch.empty(embedding.kinds, spec.width)) if embedding.kinds else NoSegments(),
        position=build_added_position(spec),
        norm=nn.Identity() if embedding.norm is None else build_norm(embedding.norm, spec.width),
        drop=build_drop(spec),
    )


def build_block(spec: s.ModelSpec, stack: s.StackSpec, *, layer: int, cross: bool) -> Block:
    parts: dict[str, nn.Module] = {"attention": build_attention(spec, stack.attention, layer)}
    if cross:
        parts["cross"] = build_cross_attention(spec, stack.attention, layer)
    parts["feedforward"] = build_feedforward(spec, stack.feedforward)
    return Block({name: build_residual(spec, stack, f) for name, f in parts.items()})


def build_residual(spec: s.ModelSpec, stack: s.StackSpec, f: nn.Module) -> Residual:
    def norm(*at: s.NormAt) -> nn.Module:
        return build_norm(stack.norm, spec.width) if stack.norm_at in at else nn.Identity()

    return Residual(
        f, before=norm("pre", "sandwich"), after=norm("sandwich"), outer=norm("post"), drop=build_drop(spec)
    )


def build_attention(spec: s.ModelSpec, a: s.AttentionSpec, layer: int) -> SelfAttention:
    def head_norm() -> nn.Module:
        return nn.Identity() if a.qk_norm is None else build_norm(a.qk_norm, a.head_width)

    return SelfAttention(
        qkv=Linear(spec.width, (a.heads + 2 * a.kv_heads) * a.head_width, bias=a.bias),
        out=Linear(a.heads * a.head_width, spec.width, bias=a.out_bias),
        q_norm=head_norm(),
        k_norm=head_norm(),
        turn=positions.Turn() if isinstance(spec.position, s.Rotary) else positions.NoRotation(),
        attend=Attend(a.score_scale),
        layer=layer,
        head_width=a.head_width,
    )


def build_cross_attention(spec: s.ModelSpec, a: s.AttentionSpec, layer: int) -> CrossAttention:
    return CrossAttention(
        q=Linear(spec.width, a.heads * a.head_width, bias=a.bias),
        kv=Linear(spec.width, 2 * a.kv_heads * a.head_width, bias=a.bias),
        out=Linear(a.heads * a.head_width, spec.width, bias=a.out_bias),
        attend=Attend(a.score_scale),
        layer=layer,
        head_width=a.head_width,
    )


def build_feedforward(spec: s.ModelSpec, f: s.FeedForwardSpec) -> FeedForward:
    kind, rows = (GatedFeedForward, 2 * f.width) if f.gated else (FeedForward, f.width)
    # T5 was trained in bfloat16: its feed-forwards exceed the range of float16. The reference keeps `down` in float32.
    down = WideLinear if isinstance(spec.position, s.Buckets) else Linear
    return kind(Linear(spec.width, rows, bias=f.bias), down(f.width, spec.width, bias=f.bias), act=find_act(f.act))


def build_norm(norm: s.NormSpec, width: int) -> nn.Module:
    match norm.kind:
        case "layer":
            return LayerNorm(width, eps=norm.eps)
        case "rms":
            return RmsNorm(width, eps=norm.eps)


def build_drop(spec: s.ModelSpec) -> nn.Module:
    return Dropout(spec.dropout) if spec.dropout else nn.Identity()


def find_act(act: s.Act) -> Callable[[Tensor], Tensor]:
    match act:
        case "relu":
            return F.relu
        case "gelu":
            return F.gelu
        case "gelu-tanh":
            return gelu_tanh
        case "silu":
            return F.silu
        case "tanh":
            return torch.tanh


def gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


# --- positions ------------------------------------------------------------------------------------------------------


def build_added_position(spec: s.ModelSpec) -> nn.Module:
    match spec.position:
        case s.Sinusoid(layout="interleaved"):
            return positions.Sinusoid()
        case s.Sinusoid():
            return positions.SinusoidHalves()
        case s.Learned(reserved=reserved):
            return positions.LearnedPositions(reserved + spec.context, spec.width, reserved=reserved)
        case _:
            return positions.NoAddedPosition()


def build_angles(spec: s.ModelSpec, stack: s.StackSpec) -> nn.Module:
    if not isinstance(spec.position, s.Rotary):
        return positions.NoAngles()
    width, base = stack.attention.head_width, spec.position.base
    plain = positions.frequencies(width, base)
    match spec.position.scaling:
        case s.NoScaling():
            return positions.RotaryAngles(plain, sharpen=1.0)
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
    match spec.position:
        case s.Buckets(count=count, distance=distance):
            kind = positions.TwoSidedBucketBias if two_sided else positions.BucketBias
            return kind(count, stack.attention.heads, distance=distance)
        case s.Alibi():
            return positions.AlibiBias(stack.attention.heads)
        case _:
            return positions.NoBias()


# --- heads ----------------------------------------------------------------------------------------------------------


def build_head(spec: s.ModelSpec) -> nn.Module:
    width = spec.width
    match spec.head:
        case s.Tied(scale=scale, shift=True):
            return ShiftedHead(spec.vocab, scale=scale)
        case s.Tied(scale=scale):
            return TiedHead(scale=scale)
        case s.Own():
            return OwnHead(spec.vocab, width)
        case s.Transformed(act=act, norm=norm):
            return TransformedHead(Linear(width, width), build_norm(norm, width), act=find_act(act), vocab=spec.vocab)
        case s.NoHead():
            return ReadHead(nn.Identity(), nn.Identity(), act=nn.Identity())
        case s.Pooled():
            return ReadHead(Linear(width, width), nn.Identity(), act=torch.tanh)
        case s.Classify(labels=labels, act=None, bias=bias):
            return ReadHead(nn.Identity(), Linear(width, labels, bias=bias), act=nn.Identity())
        case s.Classify(labels=labels, act=str() as act, bias=bias):
            return ReadHead(Linear(width, width), Linear(width, labels, bias=bias), act=find_act(act))
        case s.Tag(labels=labels):
            return ReadHead(nn.Identity(), Linear(width, labels), act=nn.Identity())
        case s.Span():
            return ReadHead(nn.Identity(), Linear(width, 2), act=nn.Identity())
        case _:
            raise SpecError(f"unknown output head {spec.head!r}")


def choose_tokens(head: s.Head) -> Pick:
    """Which tokens of a text the head reads."""
    match head:
        case s.Pooled() | s.Classify(pick="first"):
            return lambda text, x: text.first(x)
        case s.Classify():
            return lambda text, x: text.last(x)
        case _:
            return lambda text, x: x
