"""From the modules of a stack to a program: one small function per type of module.

A module without one here, of a subclass too, has no native twin: `NoNativeTwin` says which.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triform.core.attention import CrossAttention, SelfAttention
from triform.core.blocks import Block, Dropout, Residual, Stack
from triform.core.build import Linear, WideLinear, gelu_tanh
from triform.core.feedforward import FeedForward, GatedFeedForward
from triform.core.norms import LayerNorm, RmsNorm
from triform.core.positions import NoBias, NoRotation, Rotation
from triform.kernels.operations import LAYER_NORM, NO_NORM, RMS_NORM, NormFields
from triform.kernels.packed_matrix import PackedMatrix
from triform.native.program import BRANCH, INNER, MIXED, PROJECTED, STREAM, HeadCounts, Program, ProgramBuilder

ACTIVATION_NAMES: dict[Callable[[Tensor], Tensor], str] = {
    F.relu: "relu", F.gelu: "gelu", gelu_tanh: "gelu-tanh", F.silu: "silu", torch.tanh: "tanh",
}  # fmt: skip


class NoNativeTwin(Exception):
    """A module that the kernels cannot compute; the message names its type."""


class Branch(NamedTuple):
    """Where a branch of a residual reads and writes: the norm before it, the target, and whether it is added."""

    norm: NormFields
    target: int
    adds: bool


def compile_stack(stack: Stack, *, width: int) -> Program:
    """All blocks and the final norm; the embedding layer before them stays on torch."""
    builder = ProgramBuilder()
    builder.widths[STREAM] = builder.widths[BRANCH] = width
    for block in stack.blocks:
        if type(block) is not Block:
            raise NoNativeTwin(type(block).__name__)
        for part in block.children():
            add_residual(builder, part, width)
    if type(stack.final) is not nn.Identity:
        builder.add_norm(make_norm_fields(builder, stack.final), width, source=STREAM, target=STREAM)
    return builder.build(biased=type(stack.score_bias) is not NoBias)


def add_residual(builder: ProgramBuilder, residual: Any, width: int) -> None:
    """y = outer(x + after(f(before(x)))); without training nothing is dropped"""
    if type(residual) is not Residual or type(residual.drop) not in (nn.Identity, Dropout):
        raise NoNativeTwin(type(residual).__name__)
    norm, plain = make_norm_fields(builder, residual.before), type(residual.after) is nn.Identity
    branch = Branch(norm, STREAM if plain else BRANCH, adds=plain)
    find_twin(residual.f)(builder, residual.f, branch)
    if not plain:
        builder.add_norm(make_norm_fields(builder, residual.after), width, source=BRANCH, target=STREAM, adds=True)
    if type(residual.outer) is not nn.Identity:
        builder.add_norm(make_norm_fields(builder, residual.outer), width, source=STREAM, target=STREAM)


def add_self_attention(builder: ProgramBuilder, module: SelfAttention, branch: Branch) -> None:
    """The operations of a self-attention: fused q, k and v, attention over the cache, the output projection."""
    if type(module.turn) not in (Rotation, NoRotation):
        raise NoNativeTwin(type(module.turn).__name__)
    heads, kv_heads, _ = module.shares
    builder.add_linear(*builder.find_once(find_weights, module.qkv), source=STREAM, target=PROJECTED, norm=branch.norm)
    builder.add_attention(
        HeadCounts(heads, kv_heads, module.head_width),
        scale=module.attend.scale,
        rotates=type(module.turn) is Rotation,
        query_norm=make_norm_fields(builder, module.q_norm),
        key_norm=make_norm_fields(builder, module.k_norm),
    )
    builder.add_linear(
        *builder.find_once(find_weights, module.out), source=MIXED, target=branch.target, adds=branch.adds
    )


def add_cross_attention(builder: ProgramBuilder, module: CrossAttention, branch: Branch) -> None:
    """A cross-attention: queries, attention over the source's keys and values, the output projection."""
    heads = module.out.in_features // module.head_width
    kv_heads = module.kv.out_features // module.head_width // 2
    builder.add_linear(*builder.find_once(find_weights, module.q), source=STREAM, target=PROJECTED, norm=branch.norm)
    builder.add_attention(HeadCounts(heads, kv_heads, module.head_width), scale=module.attend.scale, from_source=True)
    builder.add_linear(
        *builder.find_once(find_weights, module.out), source=MIXED, target=branch.target, adds=branch.adds
    )


def add_feedforward(builder: ProgramBuilder, module: FeedForward, branch: Branch) -> None:
    """The operations of a feed-forward network: up with its activation, then down."""
    act = find_activation_name(module.act)
    builder.add_linear(
        *builder.find_once(find_weights, module.up), source=STREAM, target=INNER, norm=branch.norm, activation=act
    )
    builder.add_linear(
        *builder.find_once(find_weights, module.down), source=INNER, target=branch.target, adds=branch.adds
    )


def add_gated_feedforward(builder: ProgramBuilder, module: FeedForward, branch: Branch) -> None:
    """The operations of a gated feed-forward network: gate and up in one product, then down."""
    act = find_activation_name(module.act)
    builder.add_linear(*builder.find_once(find_weights, module.up), source=STREAM, target=INNER, norm=branch.norm)
    builder.add_linear(
        *builder.find_once(find_weights, module.down),
        source=INNER,
        target=branch.target,
        activation=act,
        gated=True,
        adds=branch.adds,
    )


AddOperations: TypeAlias = Callable[[ProgramBuilder, Any, Branch], None]
TWINS: dict[type[nn.Module], AddOperations] = {
    SelfAttention: add_self_attention,
    CrossAttention: add_cross_attention,
    FeedForward: add_feedforward,
    GatedFeedForward: add_gated_feedforward,
}


def find_twin(module: nn.Module) -> AddOperations:
    """The function for exactly this type: a subclass may compute something else."""
    if type(module) not in TWINS:
        raise NoNativeTwin(type(module).__name__)
    return TWINS[type(module)]


def find_weights(module: nn.Module) -> tuple[PackedMatrix, Tensor | None]:
    """The packed matrix and the bias of a linear layer; a layer in few bits has its matrix packed already."""
    matrix, bias = getattr(module, "matrix", None), getattr(module, "bias", None)
    if isinstance(matrix, PackedMatrix):
        return matrix, bias
    if not isinstance(module, Linear) or type(module) not in (Linear, WideLinear):
        raise NoNativeTwin(type(module).__name__)
    return PackedMatrix.from_float(module.weight, kind="float32"), bias


def make_norm_fields(builder: ProgramBuilder, module: nn.Module) -> NormFields:
    """Identity is no norm."""
    if type(module) is nn.Identity:
        return NormFields(NO_NORM)
    if isinstance(module, RmsNorm) and type(module) is RmsNorm:
        return builder.make_norm(RMS_NORM, epsilon=module.eps, gain=module.weight, shift=None)
    if isinstance(module, LayerNorm) and type(module) is LayerNorm:
        return builder.make_norm(LAYER_NORM, epsilon=module.eps, gain=module.weight, shift=module.bias)
    raise NoNativeTwin(type(module).__name__)


def find_activation_name(act: Callable[[Tensor], Tensor]) -> str:
    if act not in ACTIVATION_NAMES:
        raise NoNativeTwin(f"the activation {getattr(act, '__name__', type(act).__name__)}")
    return ACTIVATION_NAMES[act]
