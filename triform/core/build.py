"""From a spec to a network: the only place where kinds are told apart. After this, nobody asks.

Refuses to know numbers: they are drawn (`first_numbers.py`) or come from a file.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triform import spec as s
from triform.core import positions
from triform.core.attention import Attend, CrossAttention, SelfAttention
from triform.core.blocks import Block, Dropout, Entry, Kinds, NoKinds, PastOnly, Pattern, Residual, Stack, both_sides
from triform.core.cache import Cache
from triform.core.feedforward import FeedForward, GatedFeedForward
from triform.core.forms import DecoderOnly, EncoderDecoder, EncoderOnly, Form, Pick
from triform.core.norms import LayerNorm, RmsNorm
from triform.core.output_heads import OwnHead, ReadHead, ShiftedHead, TiedHead, TransformedHead
from triform.errors import SpecError
from triform.precision import at_least_float32, unchanged, wide_linear
from triform.shapes import XD, XV


class Linear(nn.Linear):
    """x Wᵀ + b, made without numbers."""

    def reset_parameters(self) -> None: ...


class WideLinear(Linear):
    """x Wᵀ + b; of float16 weights in float32, because the result may exceed 65,504, where float16 ends."""

    def forward(self, x: XD) -> XV:
        return wide_linear(x, self.weight, self.bias) if self.weight.dtype == torch.float16 else super().forward(x)


def skeleton(spec: s.ModelSpec) -> Form:
    """The network without numbers: names and shapes only, nothing is allocated."""
    with torch.device("meta"):
        # Given its weight, an embedding draws no numbers; drawing them on "meta" would import torch's compiler.
        token = nn.Embedding(spec.vocab, spec.width, _weight=torch.empty(spec.vocab, spec.width))
        head, pick = head_of(spec), pick_of(spec.head)
        if spec.encoder is not None and spec.decoder is not None:
            return EncoderDecoder(token, encoder_of(spec, spec.encoder), decoder_of(spec, spec.decoder), head, pick)
        if spec.encoder is not None:
            return EncoderOnly(token, encoder_of(spec, spec.encoder), head, pick)
        if spec.decoder is not None:
            return DecoderOnly(token, decoder_of(spec, spec.decoder), head, pick)
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
        raise SpecError("an encoder has no past to keep: a cache is for models with a decoder")
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


def encoder_of(spec: s.ModelSpec, stack: s.StackSpec) -> Stack:
    return stack_of(spec, stack, pattern=both_sides, score_bias=score_bias_of(spec, stack, two_sided=True), cross=False)


def decoder_of(spec: s.ModelSpec, stack: s.StackSpec) -> Stack:
    pattern = PastOnly(stack.attention.window)
    bias = score_bias_of(spec, stack, two_sided=False)
    return stack_of(spec, stack, pattern=pattern, score_bias=bias, cross=spec.encoder is not None)


def stack_of(spec: s.ModelSpec, stack: s.StackSpec, *, pattern: Pattern, score_bias: nn.Module, cross: bool) -> Stack:
    return Stack(
        entry=entry_of(spec),
        angles=angles_of(spec, stack),
        score_bias=score_bias,
        blocks=[block_of(spec, stack, layer=layer, cross=cross) for layer in range(stack.layers)],
        final=norm_of(stack.norm, spec.width) if stack.final_norm else nn.Identity(),
        pattern=pattern,
        # A norm after each addition keeps the stream small; without one it grows from layer to layer.
        widen=unchanged if stack.norm_at == "post" else at_least_float32,
    )


def entry_of(spec: s.ModelSpec) -> Entry:
    embedding = spec.embedding
    return Entry(
        scale=embedding.scale,
        kinds=Kinds(torch.empty(embedding.kinds, spec.width)) if embedding.kinds else NoKinds(),
        position=added_position_of(spec),
        norm=nn.Identity() if embedding.norm is None else norm_of(embedding.norm, spec.width),
        drop=drop_of(spec),
    )


def block_of(spec: s.ModelSpec, stack: s.StackSpec, *, layer: int, cross: bool) -> Block:
    parts: dict[str, nn.Module] = {"attention": attention_of(spec, stack.attention, layer)}
    if cross:
        parts["cross"] = cross_of(spec, stack.attention, layer)
    parts["feedforward"] = feedforward_of(spec, stack.feedforward)
    return Block({name: residual_of(spec, stack, f) for name, f in parts.items()})


def residual_of(spec: s.ModelSpec, stack: s.StackSpec, f: nn.Module) -> Residual:
    def norm(*at: s.NormAt) -> nn.Module:
        return norm_of(stack.norm, spec.width) if stack.norm_at in at else nn.Identity()

    return Residual(f, before=norm("pre", "sandwich"), after=norm("sandwich"), outer=norm("post"), drop=drop_of(spec))


def attention_of(spec: s.ModelSpec, a: s.AttentionSpec, layer: int) -> SelfAttention:
    def head_norm() -> nn.Module:
        return nn.Identity() if a.qk_norm is None else norm_of(a.qk_norm, a.head_width)

    return SelfAttention(
        qkv=Linear(spec.width, (a.heads + 2 * a.kv_heads) * a.head_width, bias=a.bias),
        out=Linear(a.heads * a.head_width, spec.width, bias=a.out_bias),
        q_norm=head_norm(),
        k_norm=head_norm(),
        turn=positions.Turn() if isinstance(spec.position, s.Rotary) else positions.Still(),
        attend=Attend(a.score_scale),
        layer=layer,
        head_width=a.head_width,
    )


def cross_of(spec: s.ModelSpec, a: s.AttentionSpec, layer: int) -> CrossAttention:
    return CrossAttention(
        q=Linear(spec.width, a.heads * a.head_width, bias=a.bias),
        kv=Linear(spec.width, 2 * a.kv_heads * a.head_width, bias=a.bias),
        out=Linear(a.heads * a.head_width, spec.width, bias=a.out_bias),
        attend=Attend(a.score_scale),
        layer=layer,
        head_width=a.head_width,
    )


def feedforward_of(spec: s.ModelSpec, f: s.FeedForwardSpec) -> FeedForward:
    kind, rows = (GatedFeedForward, 2 * f.width) if f.gated else (FeedForward, f.width)
    # T5 was trained in bfloat16: its feed-forwards leave the range of float16. The reference keeps `down` in float32.
    down = WideLinear if isinstance(spec.position, s.Buckets) else Linear
    return kind(Linear(spec.width, rows, bias=f.bias), down(f.width, spec.width, bias=f.bias), act=act_of(f.act))


def norm_of(norm: s.NormSpec, width: int) -> nn.Module:
    match norm.kind:
        case "layer":
            return LayerNorm(width, eps=norm.eps)
        case "rms":
            return RmsNorm(width, eps=norm.eps)


def drop_of(spec: s.ModelSpec) -> nn.Module:
    return Dropout(spec.dropout) if spec.dropout else nn.Identity()


def act_of(act: s.Act) -> Callable[[Tensor], Tensor]:
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


def added_position_of(spec: s.ModelSpec) -> nn.Module:
    match spec.position:
        case s.Sinusoid(layout="interleaved"):
            return positions.Sinusoid()
        case s.Sinusoid():
            return positions.SinusoidHalves()
        case s.Learned(reserved=reserved):
            return positions.Learned(reserved + spec.context, spec.width, reserved=reserved)
        case _:
            return positions.Nowhere()


def angles_of(spec: s.ModelSpec, stack: s.StackSpec) -> nn.Module:
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


def score_bias_of(spec: s.ModelSpec, stack: s.StackSpec, *, two_sided: bool) -> nn.Module:
    match spec.position:
        case s.Buckets(count=count, distance=distance):
            kind = positions.TwoSidedBucketBias if two_sided else positions.BucketBias
            return kind(count, stack.attention.heads, distance=distance)
        case s.Alibi():
            return positions.AlibiBias(stack.attention.heads)
        case _:
            return positions.NoBias()


# --- heads ----------------------------------------------------------------------------------------------------------


def head_of(spec: s.ModelSpec) -> nn.Module:
    width = spec.width
    match spec.head:
        case s.Tied(scale=scale, shift=True):
            return ShiftedHead(spec.vocab, scale=scale)
        case s.Tied(scale=scale):
            return TiedHead(scale=scale)
        case s.Own():
            return OwnHead(spec.vocab, width)
        case s.Transformed(act=act, norm=norm):
            return TransformedHead(Linear(width, width), norm_of(norm, width), act=act_of(act), vocab=spec.vocab)
        case s.NoHead():
            return ReadHead(nn.Identity(), nn.Identity(), act=nn.Identity())
        case s.Pooled():
            return ReadHead(Linear(width, width), nn.Identity(), act=torch.tanh)
        case s.Classify(labels=labels, act=None, bias=bias):
            return ReadHead(nn.Identity(), Linear(width, labels, bias=bias), act=nn.Identity())
        case s.Classify(labels=labels, act=str() as act, bias=bias):
            return ReadHead(Linear(width, width), Linear(width, labels, bias=bias), act=act_of(act))
        case s.Tag(labels=labels):
            return ReadHead(nn.Identity(), Linear(width, labels), act=nn.Identity())
        case s.Span():
            return ReadHead(nn.Identity(), Linear(width, 2), act=nn.Identity())
        case _:
            raise SpecError(f"no head is known for {spec.head!r}")


def pick_of(head: s.Head) -> Pick:
    """Which tokens of a text the head reads."""
    match head:
        case s.Pooled() | s.Classify(pick="first"):
            return lambda text, x: text.first(x)
        case s.Classify():
            return lambda text, x: text.last(x)
        case _:
            return lambda text, x: x
