"""GELU for training is torch's GELU, in value and slope; a finished network has torch's again."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from triform.core.blocks import Block
from triform.core.build import gelu_tanh as plain
from triform.core.feedforward import FeedForward
from triform.core.initial_weights import build_network
from triform.families import bert, flan_t5, gpt2
from triform.spec import ModelSpec
from triform.train import fast_gelu as module
from triform.train import prepare_network as preparing
from triform.train.fast_gelu import gelu_tanh
from triform.train.prepare_network import prepare_network, restore_network
from triform.train.run_config import Config


@pytest.mark.parametrize("piece", [1, 7, 1 << 19])
@pytest.mark.parametrize("of_a_view", [False, True])
def test_value_and_slope(piece: int, of_a_view: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_NUMBERS", piece)
    whole = torch.cat([torch.linspace(-12, 12, 97, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)])
    whole = whole.view(7, 14).requires_grad_()
    x = whole.chunk(2, dim=-1)[0] if of_a_view else whole
    wanted = torch.randn(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    fast, slow = gelu_tanh(x.clone()), F.gelu(x, approximate="tanh")
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-14)
    slopes = [torch.autograd.grad(y, whole, wanted, retain_graph=True)[0] for y in (fast, slow)]
    torch.testing.assert_close(*slopes, rtol=1e-11, atol=1e-13)


def test_as_near_to_the_truth_as_torch() -> None:
    x = torch.linspace(-30, 30, 100_001, requires_grad=True)
    y = gelu_tanh(x.clone())
    (slope,) = torch.autograd.grad(y.sum(), x)
    exact = x.detach().double().requires_grad_()
    truth = F.gelu(exact, approximate="tanh")
    (steep,) = torch.autograd.grad(truth.sum(), exact)
    assert (y - truth).abs().max() < 2e-6
    assert (slope - steep).abs().max() < 2e-6
    assert torch.isfinite(gelu_tanh(torch.tensor([-1e9, 1e9], requires_grad=True) * 1)).all()


def test_in_place() -> None:
    x = torch.randn(4, 5, requires_grad=True) * 1
    expected = F.gelu(x.detach(), approximate="tanh")
    y = gelu_tanh(x)
    assert y.data_ptr() == x.data_ptr()
    torch.testing.assert_close(x, expected)


def test_who_reads_what_was_there_is_told() -> None:
    """A product that is differentiated by it, say: torch sees that it has changed."""
    x = torch.randn(4, requires_grad=True) * 1
    square = x * x
    gelu_tanh(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.sum().backward()


def test_a_second_backward_is_refused() -> None:
    """Its slope has become the gradient, in the same memory."""
    y = gelu_tanh(torch.ones(3, requires_grad=True) * 1).sum()
    y.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_without_gradients_it_is_torchs_own() -> None:
    x = torch.randn(50, generator=torch.Generator().manual_seed(1))
    assert torch.equal(gelu_tanh(x), F.gelu(x, approximate="tanh"))


def acts(spec: ModelSpec, config: Config) -> tuple[set[object], set[object]]:
    """Of its feed-forward networks: during a run and after it."""
    network = build_network(spec)
    parts = [each for each in network.modules() if isinstance(each, FeedForward)]
    prepare_network(network, config)
    during = {part.act for part in parts}
    restore_network(network)
    return during, {part.act for part in parts}


SIZES = {"vocab": 11, "width": 8, "layers": 2, "heads": 2, "context": 8}


def test_only_while_training() -> None:
    assert acts(gpt2(**SIZES), Config(steps=1)) == ({gelu_tanh}, {plain})


def test_another_act_stays() -> None:
    assert acts(bert(**SIZES), Config(steps=1)) == ({F.gelu}, {F.gelu})


def test_of_a_gated_network_it_stays() -> None:
    assert acts(flan_t5(vocab=11, width=8, layers=1, heads=2), Config(steps=1)) == ({plain}, {plain})


@pytest.mark.parametrize("setting", [{"compile": True}, {"precision": "bfloat16"}])
def test_compiled_or_in_half_precision_it_stays(setting: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "check_machine", lambda config, device: None)
    monkeypatch.setattr(Block, "compile", lambda block: None)
    assert acts(gpt2(**SIZES), Config(steps=1, **setting)) == ({plain}, {plain})
