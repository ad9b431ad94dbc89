"""What batch independence rests on, measured again where the tests run: a row has the same bits among any others."""

import gc
from weakref import ref

import pytest
import torch
from tiny_models import EVERY
from torch import nn
from torch.nn import functional as F

from triform.core.initial_weights import build_network
from triform.core.packed_linear import PLAIN_ROW_MULTIPLE, PackedLinear, can_pack, is_worth_packing, pack_network
from triform.core.texts import Pair, Text
from triform.families import gpt2

SHAPES = [(16, 48), (20, 60), (6, 18), (24, 29), (64, 11), (128, 384), (768, 768)]
needs_packing = pytest.mark.skipif(not can_pack(build_network(EVERY["gpt2"])), reason="no oneDNN here")


@needs_packing
@pytest.mark.parametrize(("width", "out"), SHAPES)
def test_a_packed_row_has_the_same_bits_among_any_number(width: int, out: int) -> None:
    x, linear = torch.randn(150, width), nn.Linear(width, out)
    product = PackedLinear(linear.weight, linear.bias)
    with torch.inference_mode():
        whole = product(x)
        torch.testing.assert_close(whole, linear(x))
        for rows in [*range(1, 34), 64, 100, 128]:
            for at in (0, 1, 7):
                assert torch.equal(product(x[at : at + rows]), whole[at : at + rows]), rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("width", "out"), SHAPES)
def test_a_plain_row_has_the_same_bits_among_whole_multiples(width: int, out: int, dtype: torch.dtype) -> None:
    x, w = torch.randn(160, width, dtype=dtype), torch.randn(out, width, dtype=dtype)
    whole = F.linear(x, w)
    for rows in range(PLAIN_ROW_MULTIPLE, 129, PLAIN_ROW_MULTIPLE):
        for at in (0, 1, 7):
            assert torch.equal(F.linear(x[at : at + rows].clone(), w), whole[at : at + rows]), rows


@needs_packing
def test_the_twin_answers_like_its_network_and_follows_its_numbers() -> None:
    network = build_network(gpt2(vocab=29, width=16, layers=2, heads=4, context=32), seed=1)
    text = Text.of(torch.arange(12).view(1, 12))
    with torch.inference_mode():
        twin = pack_network(network)
        torch.testing.assert_close(twin(text), network(text))
        assert pack_network(network) is twin
    with torch.no_grad():
        network.decoder.blocks[0].get_submodule("feedforward.f.up").weight.mul_(2)
    with torch.inference_mode():
        assert pack_network(network) is not twin
        torch.testing.assert_close(pack_network(network)(text), network(text))


@needs_packing
@pytest.mark.parametrize("name", ["bert", "t5", "bart", "alibi decoder"])
def test_twins_of_every_form(name: str) -> None:
    spec = EVERY[name]
    network, ids = build_network(spec, seed=1), torch.arange(12).view(2, 6)
    text = Pair(Text.of(ids), Text.of(ids)) if spec.form == "encoder-decoder" else Text.of(ids)
    with torch.inference_mode():
        torch.testing.assert_close(pack_network(network)(text), network(text))


@needs_packing
def test_a_twin_goes_with_its_network() -> None:
    network = build_network(gpt2(vocab=29, width=16, layers=1, heads=2, context=32), seed=1)
    twin = ref(pack_network(network))
    assert twin() is not None
    del network
    gc.collect()
    assert twin() is None


def test_only_what_gains_is_packed() -> None:
    assert not is_worth_packing(build_network(EVERY["gpt2"]))
    assert not can_pack(build_network(EVERY["gpt2"]).double())
