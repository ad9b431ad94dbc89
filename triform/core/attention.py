"""Attention: queries score keys, and the weights mix values. The fused kernel, and beside it the formula written out.

Knows nothing of the model it is in; the mask comes in `flow`, made in `masks.py`.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triform.core.blocks import PassContext
from triform.core.cache import KeysValues
from triform.core.masks import AnySight, Sight
from triform.precision import at_least_float32
from triform.shapes import BGSK, BHTK, BHTS, BTD, BTHK, RGSK


class AttentionSteps(NamedTuple):
    """Every step of the formula, for inspection and checks."""

    scores: BHTS
    masked: BHTS
    weights: BHTS
    mixed: BHTK


def compute_attention_steps(q: BHTK, k: BGSK, v: BGSK, *, added: Tensor, scale: float) -> AttentionSteps:
    """softmax(q kᵀ · scale + added) v, step by step, in float32 at least: the slow reference of `Attend`."""
    q, k, v = (at_least_float32(x) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = q @ k.transpose(-1, -2) * scale
    masked = scores + added.to(scores)
    weights = masked.softmax(dim=-1)
    return AttentionSteps(scores, masked, weights, weights @ v)


class Attend(nn.Module):
    """softmax(q kᵀ · scale + mask) v, in one kernel that never stores the weights."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, q: BHTK, k: RGSK, v: RGSK, sight: AnySight) -> BHTK:
        return sight.over(self.kernel, q, k, v)

    def kernel(self, q: BHTK, k: BGSK, v: BGSK, sight: Sight) -> BHTK:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=sight.added, is_causal=sight.causal, scale=self.scale, enable_gqa=True
        )


class SelfAttention(nn.Module):
    """Each position attends to every position it may see, itself included."""

    def __init__(
        self,
        *,
        qkv: nn.Linear,
        out: nn.Linear,
        q_norm: nn.Module,
        k_norm: nn.Module,
        turn: nn.Module,
        attend: Attend,
        layer: int,
        kind: int,
        head_width: int,
    ) -> None:
        super().__init__()
        self.qkv = qkv
        self.q_norm = q_norm
        self.k_norm = k_norm
        self.turn = turn
        self.attend = attend
        self.out = out
        self.layer = layer
        self.kind = kind
        self.head_width = head_width
        self.shares = count_qkv_heads(out.in_features // head_width, qkv.out_features // head_width)

    def forward(self, x: BTD, flow: PassContext) -> BTD:
        q, k, v = torch.split(split_heads(self.qkv(x), self.head_width), self.shares, dim=2)
        angles = flow.angles[self.kind]
        q = self.turn(self.q_norm(q), angles)  # a no-op unless rotary
        k = self.turn(self.k_norm(k), angles)
        k, v = flow.cache.put(self.layer, heads_first(k), heads_first(v))  # the identity while training
        return self.out(merge_heads(self.attend(heads_first(q), k, v, flow.sights[self.kind])))


class CrossAttention(nn.Module):
    """Each position of the target attends to every position of the source."""

    def __init__(
        self, *, q: nn.Linear, kv: nn.Linear, out: nn.Linear, attend: Attend, layer: int, head_width: int
    ) -> None:
        super().__init__()
        self.q = q
        self.kv = kv
        self.attend = attend
        self.out = out
        self.layer = layer
        self.head_width = head_width

    def project(self, source: BTD) -> KeysValues:
        """Keys and values of the source, once for all steps of the target."""
        k, v = split_heads(self.kv(source), self.head_width).chunk(2, dim=2)
        return heads_first(k), heads_first(v)

    def forward(self, x: BTD, flow: PassContext) -> BTD:
        k, v = flow.memory.layers[self.layer]
        q = heads_first(split_heads(self.q(x), self.head_width))
        return self.out(merge_heads(self.attend(q, k, v, flow.source_sight)))


def split_heads(x: BTD, head_width: int) -> BTHK:
    """[B, T, H·K] → [B, T, H, K], a view"""
    return x.view(*x.shape[:2], -1, head_width)


def heads_first(x: BTHK) -> BHTK:
    """[B, T, H, K] → [B, H, T, K], a view: the kernel reads it without a copy, and its output has the same layout"""
    return x.transpose(1, 2)


def merge_heads(x: BHTK) -> BTD:
    """[B, H, T, K] → [B, T, H·K]"""
    return x.transpose(1, 2).flatten(2)


def count_qkv_heads(queries: int, heads: int) -> list[int]:
    """How many heads of the fused projection are q, k and v."""
    kv_heads = (heads - queries) // 2
    return [queries, kv_heads, kv_heads]
