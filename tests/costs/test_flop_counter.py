"""Counting works on every road: packed, dense, cached, forward and backward; each FLOP at its module."""

import pytest
import torch
from tiny_models import EVERY
from torch import nn

from triform.core.build import make_cache
from triform.core.initial_weights import build_network
from triform.core.texts import PackedText, Pair, Text
from triform.costs import flop_counter
from triform.costs.flop_counter import count_flops, count_saved_bytes, count_seconds
from triform.costs.predict import cost


def ids(count: int) -> torch.Tensor:
    return torch.arange(count) % 29


@pytest.mark.parametrize("name", ["gpt2", "mistral", "bert", "t5", "alibi decoder"])
@pytest.mark.parametrize("backward", [False, True])
def test_packed_texts_cost_what_they_cost_alone(name: str, backward: bool) -> None:
    """Nothing is computed on padding, nothing between neighbours: unequal texts packed = the sum of each alone."""
    spec, lengths, sources = EVERY[name], (3, 3, 8), (4, 4, 2)
    network = build_network(spec)
    text = PackedText.join([ids(length) for length in lengths])
    pair = spec.form == "encoder-decoder"
    both = Pair(PackedText.join([ids(length) for length in sources]), text) if pair else text
    counted = count_flops(network, lambda: network(both).sum().backward() if backward else network(both))
    alone = [
        cost(spec, phase="training" if backward else "reading", length=n, source=m if pair else None).total.flops
        for n, m in zip(lengths, sources, strict=True)
    ]
    assert counted.total == sum(alone)


def test_a_cached_step_with_rows_of_unequal_length() -> None:
    """Rows of a cache are read to the longest: a step of rows at 3 and 6 counts as two rows at 7."""
    spec = EVERY["llama"]
    network, cache = build_network(spec), make_cache(spec, rows=2, capacity=8)
    token = Text.of(ids(2)[:, None])
    with torch.no_grad():
        network.decode(Text.of(ids(12).view(2, 6)), cache)
        cache.roll_back([3, 0])
        counted = count_flops(network, lambda: network.head(network.decode(token, cache)))
    assert counted.total == cost(spec, phase="step", batch=2, length=7).total.flops


@pytest.mark.parametrize("name", ["gpt2", "vaswani", "t5"])
def test_every_flop_has_a_module(name: str) -> None:
    """Parents are the sum of their children, in both directions; nothing falls beside the modules."""
    spec = EVERY[name]
    network, text = build_network(spec).train(), Text.of(ids(10).view(2, 5))
    both = Pair(text, text) if spec.form == "encoder-decoder" else text
    counted = count_flops(network, lambda: network(both).sum().backward())
    inner = [path for path in counted.paths if not any(other.startswith(f"{path}.") for other in counted.paths)]
    assert sum(counted.paths[path] for path in inner) == counted.total
    tops = [path for path in counted.paths if "." not in path]
    assert sum(counted.paths[path] for path in tops) == counted.total
    assert counted.sum_over("decoder.blocks.*.attention.f.qkv") == sum(
        counted.paths[f"decoder.blocks.{layer}.attention.f.qkv"] for layer in range(2)
    )


def test_torch_alone_does_not_count_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: without our formulas, attention is missing and only attention."""
    spec = EVERY["gpt2"]
    network, text = build_network(spec), Text.of(ids(10).view(2, 5))
    monkeypatch.setattr(flop_counter, "KERNELS", {})
    counted = count_flops(network, lambda: network(text).sum().backward())
    costs = cost(spec, phase="training", batch=2, length=5)
    missing = sum(row.flops for row in costs.operations if row.path.endswith("attend"))
    assert counted.total == costs.total.flops - missing
    assert counted.sum_over("decoder.blocks.*.attend") == 0


def test_counting_leaves_no_trace() -> None:
    spec = EVERY["bert"]
    network, text = build_network(spec), Text.of(ids(10).view(2, 5))
    before = network(text)
    count_flops(network, lambda: network(text))
    count_seconds(network, lambda: network(text))
    assert torch.equal(before, network(text))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


def test_hooks_go_even_when_the_pass_fails() -> None:
    network = nn.Linear(2, 3)
    with pytest.raises(RuntimeError):
        count_flops(network, lambda: network(torch.ones(1, 5)))
    assert not network._forward_hooks
    assert not network._forward_pre_hooks


def test_any_module_will_do() -> None:
    network = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    x = torch.ones(4, 3)
    counted = count_flops(network, lambda: network(x).sum().backward())
    # the input needs no gradient: the first matrix makes one product backward, the second two
    assert counted.paths == {"0": 2 * (2 * 4 * 3 * 5), "2": 3 * (2 * 4 * 5 * 2)}
    assert count_saved_bytes(network, lambda: network(x), inputs=[x]) == 4 * 5 * 4


def test_seconds_of_a_module_hold_those_inside() -> None:
    spec = EVERY["vaswani"]
    network, text = build_network(spec), Text.of(ids(10).view(2, 5))
    seconds = count_seconds(network, lambda: network(Pair(text, text)))
    assert seconds.paths["decoder"] >= seconds.sum_over("decoder.blocks.?") > 0
    assert seconds.total >= seconds.paths["encoder"] + seconds.paths["decoder"]
