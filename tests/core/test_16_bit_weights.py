"""With 16-bit weights, what squares or sums is computed in float32."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triform.core.attention import compute_attention_steps
from triform.core.initial_weights import build_network
from triform.core.inputs import compute_logits
from triform.core.texts import PackedText, Text
from triform.families import sized
from triform.spec import ModelSpec
from triform.train.head_loss import head_loss
from triform.train.objectives import mean_vectors

HALVES = [torch.float16, torch.bfloat16]
IDS = [[1, 5, 7, 3, 9, 2]]


def relative(got: Tensor, want: Tensor) -> float:
    return float((got.double() - want.double()).abs().max() / want.double().abs().max())


def answers(network: nn.Module, spec: ModelSpec) -> Tensor:
    with torch.no_grad():
        return compute_logits(network, spec, IDS, target=IDS if spec.form == "encoder-decoder" else None)


# --- the network ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3", "t5"])
def test_a_stream_of_thousands_is_no_obstacle_to_float16(family: str) -> None:
    """Embeddings of some thousands: their squares and their sums over layers do not fit float16."""
    spec = sized(family, "tiny", vocab=40)
    network = build_network(spec, seed=1)
    with torch.no_grad():
        network.token.weight *= 3000 / network.token.weight.abs().max()
    half = copy.deepcopy(network).half()
    assert relative(answers(half, spec), answers(half.double(), spec)) < 0.01


@pytest.mark.parametrize("family", ["t5", "flan_t5"])
def test_feed_forwards_of_t5_leave_the_range_of_float16(family: str) -> None:
    """The reference keeps this matrix in float32; here its product is made there."""
    spec = sized(family, "tiny", vocab=40)
    network = build_network(spec, seed=1)
    largest: list[float] = []
    with torch.no_grad():
        for block in network.encoder.blocks:
            block.feedforward.f.up.weight *= 30
            block.feedforward.f.down.weight *= 30_000
            block.feedforward.f.down.register_forward_hook(lambda _, x, y: largest.append(float(y.abs().max())))
    half = copy.deepcopy(network).half()
    got = answers(half, spec)
    assert max(largest) > torch.finfo(torch.float16).max
    assert relative(got, answers(half.double(), spec)) < 0.01


@pytest.mark.parametrize("dtype", HALVES)
def test_the_formula_written_out_is_computed_in_float32(dtype: torch.dtype) -> None:
    q, k, v = torch.full((3, 1, 1, 2, 16), 100.0, dtype=dtype)
    found = compute_attention_steps(q, k, v, added=torch.zeros(2, 2), scale=1.0)
    assert found.scores.dtype == torch.float32
    assert float(found.scores.max()) == 160_000.0


# --- sums -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", HALVES)
def test_means_of_long_texts(dtype: torch.dtype) -> None:
    x = torch.full((1, 600, 2), 300.0, dtype=dtype)
    ids = torch.zeros(600, dtype=torch.int64)
    for text in (PackedText.join([ids[:400], ids[400:]]), Text.of(ids[None])):
        assert torch.equal(mean_vectors(text, x), torch.full((len(text.lengths) or 1, 2), float(x[0, 0, 0])))


@pytest.mark.parametrize("dtype", HALVES)
def test_a_loss_of_many_tokens(dtype: torch.dtype) -> None:
    """The sum over some thousand tokens leaves the range of float16, and the bits of bfloat16."""
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(*shape, generator=generator).to(dtype).requires_grad_() for shape in ((2000, 8), (50, 8), (50,))
    )
    targets = torch.arange(2000) % 50
    wide = F.cross_entropy(F.linear(x.double(), weight.double(), bias.double()), targets, reduction="sum")
    found = head_loss(x, weight, targets, bias=bias)
    assert found.item() == pytest.approx(wide.item(), rel=1e-5)
    got = torch.autograd.grad(found / 1000, (x, weight, bias))
    for one, other in zip(got, torch.autograd.grad(wide / 1000, (x, weight, bias)), strict=True):
        assert one.dtype == dtype
        assert relative(one, other) < 0.01
