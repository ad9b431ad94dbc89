"""Planted mistakes: each must make `check` fail, and the failing line must name what broke.

The proofs are only worth something if they notice; these are the bugs that every implementation has had once.
"""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import triform
from triform.check import run_checks
from triform.check.checks import CHECKS
from triform.check.run_checks import check
from triform.core import inputs, masks, positions
from triform.core.attention import Attend, CrossAttention, SelfAttention, heads_first, merge_heads, split_heads
from triform.core.blocks import Dropout, PastOnly, Residual
from triform.core.cache import Cache, CacheWriter
from triform.core.masks import QueryKeyView
from triform.core.norms import LayerNorm, RmsNorm
from triform.core.output_heads import TiedHead
from triform.core.texts import PackedText, Text, UnequalRows
from triform.families import sized
from triform.spec import replace

Plant = Callable[[pytest.MonkeyPatch, triform.Model], None]
MISTAKES: dict[str, tuple[str, str, Plant]] = {}


def mistake(family: str, noticed: str) -> Callable[[Plant], Plant]:
    """A planted mistake, the family it is planted in, and the proof that must name it."""

    def register(plant: Plant) -> Plant:
        MISTAKES[plant.__name__] = (family, noticed, plant)
        return plant

    return register


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", MISTAKES)
def test_check_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64 alone: what notices them is the proof, not the rounding of a narrower dtype."""
    monkeypatch.setattr(run_checks, "BOUNDS", {torch.float64: run_checks.BOUNDS[torch.float64]})
    family, noticed, plant = MISTAKES[name]
    claims = [claim for claim in CHECKS if claim.name == noticed]
    model = triform.build(sized(family, "tiny", vocab=40), seed=1)
    assert check(model.spec, model.network, checks=claims).failed == ()
    plant(monkeypatch, model)
    assert check(model.spec, model.network, checks=claims).failed == (noticed,)


def test_there_are_enough() -> None:
    assert len(MISTAKES) >= 15


# --- masks ------------------------------------------------------------------------------------------------------------


@mistake("gpt2", "no leak: future")
def mask_off_by_one(monkeypatch, model):
    def triangle(length, device, *, window):
        at = torch.arange(length)
        return QueryKeyView(at[None], at, allowed=at[None, None, None, :] <= at[None, None, :, None] + 1)

    monkeypatch.setattr(masks, "causal_view", triangle)


@mistake("gpt2", "model = reference")
def mask_too_strict(monkeypatch, model):
    def triangle(length, device, *, window):
        at = torch.arange(length)
        allowed = at[None, None, None, :] < at[None, None, :, None].clamp(min=1)
        return QueryKeyView(at[None], at, allowed=allowed)

    monkeypatch.setattr(masks, "causal_view", triangle)


@mistake("gpt2", "no leak: future")
def mask_multiplied(monkeypatch, model):
    def kernel(self, q, k, v, sight):
        scores = q @ k.transpose(-1, -2) * self.scale
        allowed = (sight.matrix(q.shape[2], k.shape[2]) == 0).to(scores)
        return (scores * allowed).softmax(-1) @ v

    monkeypatch.setattr(Attend, "kernel", kernel)


@mistake("gpt2", "no leak: future")
def mask_after_softmax(monkeypatch, model):
    def kernel(self, q, k, v, sight):
        weights = (q @ k.transpose(-1, -2) * self.scale).softmax(-1)
        return (weights * (sight.matrix(q.shape[2], k.shape[2]) == 0).to(weights)) @ v

    monkeypatch.setattr(Attend, "kernel", kernel)


@mistake("bert", "mask = gradients")
def causal_mask_in_an_encoder(monkeypatch, model):
    model.network.encoder.patterns = (PastOnly(None),)


@mistake("gpt2", "mask = gradients")
def no_mask_in_a_decoder(monkeypatch, model):
    monkeypatch.setattr(masks, "causal_view", lambda length, device, *, window: masks.full_view(length, length, device))


@mistake("mistral", "mask = gradients")
def window_forgotten(monkeypatch, model):
    stack = model.spec.decoder
    narrow = replace(stack, attention=replace(stack.attention, window=3))
    # the network was built for a window of 4096
    object.__setattr__(model, "spec", replace(model.spec, decoder=narrow))  # a frozen value, changed in place


@mistake("gpt2", "no leak: neighbours")
def packed_documents_leak(monkeypatch, model):
    def documents(lengths, keys, view):
        return view(sum(lengths), sum(keys))

    monkeypatch.setattr(masks, "packed_views", documents)


@mistake("marian", "no leak: source padding")
def source_padding_unmasked(monkeypatch, model):
    def seen_by(self, target):
        return masks.full_view(target.ids.shape[1], max(self.lengths), target.ids.device)

    monkeypatch.setattr(UnequalRows, "seen_by", seen_by)


@mistake("bert", "no leak: padding")
def padding_not_removed(monkeypatch, model):
    monkeypatch.setattr(inputs.TokenRows, "full", property(lambda self: True))


# --- positions --------------------------------------------------------------------------------------------------------


@mistake("gpt2", "cached = uncached")
def positions_not_moved_by_the_cache(monkeypatch, model):
    monkeypatch.setattr(Text, "positions", lambda self, past: torch.arange(self.ids.shape[1])[None])


@mistake("gpt2", "padded = unpadded")
def left_padding_counted_as_positions(monkeypatch, model):
    pack = inputs.TokenRows.pack

    class Counted(PackedText):
        def positions(self, past):
            return self.columns[None]

    def packing(self, order):
        text, unpack = pack(self, order)
        counted = Counted(text.ids, text.segment_ids, text.lengths)
        object.__setattr__(counted, "columns", unpack.columns)
        return counted, unpack

    monkeypatch.setattr(inputs.TokenRows, "pack", packing)


@mistake("gpt2", "packed = separate")
def packed_positions_not_restarted(monkeypatch, model):
    monkeypatch.setattr(PackedText, "positions", lambda self, past: torch.arange(self.ids.shape[1])[None])


@mistake("llama", "model = reference")
def wrong_rotary_pairing(monkeypatch, model):
    def forward(self, x, angles):
        even, odd = x[..., ::2], x[..., 1::2]
        turned = (even * angles.cos - odd * angles.sin, odd * angles.cos + even * angles.sin)
        return torch.stack(turned, dim=-1).flatten(-2)

    monkeypatch.setattr(positions.Rotation, "forward", forward)


@mistake("llama", "cached = uncached")
def keys_turned_after_the_cache(monkeypatch, model):
    def forward(self, x, flow):
        q, k, v = torch.split(split_heads(self.qkv(x), self.head_width), self.shares, dim=2)
        k, v = flow.cache.put(self.layer, heads_first(k), heads_first(v))
        (angles,), (sight,) = flow.angles, flow.sights
        last = positions.Angles(*(a[:, -1:] for a in angles))
        turned = heads_first(self.turn(heads_first(k), angles if k.shape[2] == x.shape[1] else last))
        return self.out(merge_heads(self.attend(heads_first(self.turn(q, angles)), turned, v, sight)))

    monkeypatch.setattr(SelfAttention, "forward", forward)


@mistake("t5", "model = reference")
def buckets_in_the_wrong_direction(monkeypatch, model):
    bucket = positions.TwoSidedBucketBias.bucket
    monkeypatch.setattr(positions.TwoSidedBucketBias, "bucket", lambda self, ahead: bucket(self, -ahead))


@mistake("marian", "model = reference")
def sinusoid_in_the_wrong_order(monkeypatch, model):
    monkeypatch.setattr(positions.SinusoidalHalves, "order", positions.SinusoidalPositions.order)


# --- attention --------------------------------------------------------------------------------------------------------


@mistake("gpt2", "kernel = formula")
def scale_missing(monkeypatch, model):
    for module in model.network.modules():
        if isinstance(module, Attend):
            module.scale = 1.0


@mistake("qwen2", "kernel = formula")
def kv_heads_repeated_in_the_wrong_order(monkeypatch, model):
    def kernel(self, q, k, v, sight):
        each = q.shape[1] // k.shape[1]
        return F.scaled_dot_product_attention(
            q, k.repeat(1, each, 1, 1), v.repeat(1, each, 1, 1), attn_mask=sight.added, is_causal=sight.causal
        )

    monkeypatch.setattr(Attend, "kernel", kernel)


@mistake("vaswani", "model = reference")
def cross_keys_and_values_swapped(monkeypatch, model):
    project = CrossAttention.project
    monkeypatch.setattr(CrossAttention, "project", lambda self, source: project(self, source)[::-1])


@mistake("gpt2", "cached = uncached")
def kernel_triangle_with_a_cache(monkeypatch, model):
    """`is_causal` counts from the top left: wrong where there are fewer queries than keys."""

    def continued(past, length, device, *, window):
        keys = torch.arange(max(past) + length)
        starts = torch.tensor(past)[:, None]
        return QueryKeyView(starts + torch.arange(length), keys, causal=True)

    monkeypatch.setattr(masks, "cached_view", continued)


# --- caches -----------------------------------------------------------------------------------------------------------


@mistake("gpt2", "stepwise = teacher-forced")
def cache_not_cut_to_its_length(monkeypatch, model):
    def put(self, layer, k, v):
        keys, values = self.store[layer]
        slots = self.plans[layer].slots
        keys[self.rows, :, slots], values[self.rows, :, slots] = k, v
        return keys[self.rows], values[self.rows]

    monkeypatch.setattr(CacheWriter, "put", put)


@mistake("gpt2", "cached = uncached")
def roll_back_forgotten(monkeypatch, model):
    monkeypatch.setattr(Cache, "roll_back", lambda self, counts: None)


@mistake("gpt2", "NaN does not spread")
def rolled_back_slots_not_cleared(monkeypatch, model):
    def roll_back(self, counts):
        each = [counts] * self.rows if isinstance(counts, int) else counts
        self._lengths = [length - count for length, count in zip(self._lengths, each, strict=True)]

    monkeypatch.setattr(Cache, "roll_back", roll_back)


@mistake("t5", "cached = uncached")
def reorder_forgets_the_lengths(monkeypatch, model):
    reorder = Cache.reorder

    def wrong(self, sources):
        lengths = list(self._lengths)
        reorder(self, sources)
        self._lengths = lengths

    monkeypatch.setattr(Cache, "reorder", wrong)


# --- the rest ---------------------------------------------------------------------------------------------------------


@mistake("gpt2", "same input, same result")
def dropout_alive_in_evaluation(monkeypatch, model):
    monkeypatch.setattr(Dropout, "forward", lambda self, x: F.dropout(x, self.limit / 2**16, training=True))


@mistake("gpt2", "model = reference")
def residual_without_its_input(monkeypatch, model):
    monkeypatch.setattr(
        Residual, "forward", lambda self, x, flow: self.outer(self.drop(self.after(self.f(self.before(x), flow))))
    )


@mistake("llama", "model = reference")
def wrong_epsilon(monkeypatch, model):
    for module in model.network.modules():
        if type(module).__name__ == "RmsNorm":
            module.eps = 1e-3


@mistake("gpt2", "tied = one tensor")
def head_copied_instead_of_tied(monkeypatch, model):
    monkeypatch.setattr(TiedHead, "weight", lambda self, table: table.clone())


@mistake("gpt2", "counted = predicted")
def a_parameter_nobody_predicted(monkeypatch, model):
    model.network.decoder.extra = nn.Parameter(torch.zeros(3))


@mistake("bert", "batched = single")
def norm_over_the_batch(monkeypatch, model):
    forward = LayerNorm.forward

    def wrong(self, x):
        return forward(self, x - x.mean(dim=(0, 1), keepdim=True))

    monkeypatch.setattr(LayerNorm, "forward", wrong)


# --- one dtype alone --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_check_notices_a_mistake_in_one_dtype_alone(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = TiedHead.ready

    def wrong(self, x):
        return ready(self, x) * (1.3 if x.dtype == getattr(torch, dtype) else 1.0)

    monkeypatch.setattr(TiedHead, "ready", wrong)
    assert broken_dtypes("gpt2", "model = reference") == (dtype,)


def test_check_notices_squares_in_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a stream of some hundreds becomes when it is squared in float16: infinity, and its norm 0."""

    def wrong(self, x):
        x = x.to(self.weight.dtype)
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight

    monkeypatch.setattr(RmsNorm, "forward", wrong)
    assert broken_dtypes("llama", "norm = formula") == ("float16",)


def test_check_notices_a_variance_that_16_bits_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """mean x² − (mean x)² loses what is left of two large numbers."""

    def wrong(self, x):
        x = x.to(self.weight.dtype)
        mean = x.mean(-1, keepdim=True)
        variance = (x.square().mean(-1, keepdim=True) - mean.square()).clamp(min=0)
        return (x - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias

    monkeypatch.setattr(LayerNorm, "forward", wrong)
    assert {"bfloat16", "float16"} <= set(broken_dtypes("bert", "norm = formula"))


def broken_dtypes(family: str, name: str) -> tuple[str, ...]:
    model = triform.build(sized(family, "tiny", vocab=40), seed=1)
    (proof,) = check(model.spec, model.network, checks=[claim for claim in CHECKS if claim.name == name]).proofs
    return proof.failed
