"""Schedules, optimizers, the average, LoRA and freezing do what their equations say."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_runs import ids, network, texts

from triform.core.blocks import Dropout
from triform.core.texts import PackedText
from triform.errors import TriformError, UnknownName
from triform.spec import Classify
from triform.train import lora
from triform.train.examples import ExamplePlace
from triform.train.loop import train
from triform.train.optimizers import Optimizer, WeightAverage, orthogonalize
from triform.train.prepare_network import freeze, has_bfloat16, prepare_network
from triform.train.run_config import Config
from triform.train.schedule import count_warmup_steps, schedule_factor
from triform.train.token_objectives import NextToken

KINDS = ("cosine", "linear", "inverse-sqrt", "constant", "stable-decay")


@given(st.sampled_from(KINDS), st.integers(1, 500), st.integers(0, 600))
def test_schedules_rise_then_never_rise_again(kind: str, total: int, warmup: int) -> None:
    made = [schedule_factor(kind, at, total=total, warmup=warmup) for at in range(total + 5)]
    assert all(0 <= each <= 1.0000001 for each in made)
    assert made[: min(warmup, total)] == [(at + 1) / warmup for at in range(min(warmup, total))]
    assert all(a >= b - 1e-12 for a, b in zip(made[warmup:], made[warmup + 1 :], strict=False))


def test_schedules_by_their_formulas() -> None:
    at = {kind: [schedule_factor(kind, at, total=110, warmup=10) for at in (10, 60, 109)] for kind in KINDS}
    assert at["linear"] == [1.0, 0.5, 0.01]
    assert at["constant"] == [1.0, 1.0, 1.0]
    assert at["cosine"][0] == 1.0
    assert at["cosine"][1] == pytest.approx(0.55)
    assert at["inverse-sqrt"] == [math.sqrt(10 / 11), math.sqrt(10 / 61), math.sqrt(10 / 110)]
    assert at["stable-decay"] == [1.0, 1.0, pytest.approx(1 / 22)]
    # The paper's formula: D^-½ · min(n^-½, n · warmup^-1.5) has its peak, D^-½ warmup^-½, at n = warmup.
    for n in range(1, 100):
        paper = min(n**-0.5, n * 10**-1.5) / 10**-0.5
        assert schedule_factor("inverse-sqrt", n - 1, total=100, warmup=10) == pytest.approx(paper)
    assert (count_warmup_steps(0.05, total=200), count_warmup_steps(30, total=200)) == (10, 30)


def test_muon_steps_are_nearly_orthogonal() -> None:
    generator = torch.Generator().manual_seed(0)
    for shape in ((8, 8), (24, 8), (5, 30)):
        values = torch.linalg.svdvals(orthogonalize(torch.randn(shape, generator=generator)))
        assert values.min() > 0.5
        assert values.max() < 1.3


def test_who_steps_how() -> None:
    """Muon: matrices inside blocks. AdamW: the rest. Decay: matrices only."""
    net = network("bert", dtype=torch.float32)
    muon, adamw = Optimizer(net, Config(optimizer="muon", weight_decay=0.3)).parts
    paths = {id(p): path for path, p in net.named_parameters()}
    inside = [paths[id(p)] for group in muon.param_groups for p in group["params"]]
    assert inside
    assert all(".blocks." in path and path.endswith("weight") for path in inside)
    decayed = [
        p for part in (muon, adamw) for group in part.param_groups for p in group["params"] if group["weight_decay"]
    ]
    assert all(p.dim() == 2 for p in decayed)
    assert len(decayed) == sum(p.dim() == 2 for p in net.parameters())


def test_adamw_is_the_formula() -> None:
    """Fused, clipped by the global norm, after one step: w − rate · (g / (|g| + eps) + decay · w)."""
    net, config = network("llama"), Config(steps=1, learning_rate=1e-2, schedule="constant", warmup=0, clip=0.5)
    before = {path: p.detach().clone() for path, p in net.named_parameters()}
    place = ExamplePlace(0, 0, 0)
    batch = NextToken().batch([texts(9).at(place)], places=[place], device="cpu")
    loss = NextToken().loss(net, batch)
    gradients = torch.autograd.grad(loss.total / loss.targets, list(net.parameters()))
    norm = torch.sqrt(sum(g.square().sum() for g in gradients))
    train(net, objective=NextToken(), examples=texts(9), config=config)
    for (path, p), g in zip(net.named_parameters(), gradients, strict=True):
        g = g * min(1.0, 0.5 / norm.item())
        decay = 0.1 if p.dim() == 2 else 0.0
        expected = before[path] * (1 - 1e-2 * decay) - 1e-2 * g / (g.abs() + 1e-8)
        assert torch.allclose(p, expected, atol=1e-12), path


def test_the_average_is_the_recurrence() -> None:
    w = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    average = WeightAverage({"w": w}, decay=0.5)
    expected = torch.zeros(3, dtype=torch.float64)
    for step in range(1, 40):
        w.data += 1.0
        average.update(step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * w.data
    assert torch.allclose(average.tensors()["w"], expected, atol=1e-14)
    with average.swap_in():
        assert torch.allclose(w, expected)
    assert (w == 39.0).all()


# --- LoRA and freezing ----------------------------------------------------------------------------------------------


def scores(net: torch.nn.Module) -> torch.Tensor:
    text = PackedText.join([torch.from_numpy(ids(n, seed=n)) for n in (3, 9)])
    with torch.no_grad():
        return net.eval()(text)


def test_lora_changes_nothing_at_first_and_merges_exactly() -> None:
    net = network("llama")
    first, shapes = scores(net), {path: p.shape for path, p in net.named_parameters()}
    paths = lora.adapt(net, paths=("*.attention.f.*", "*.feedforward.f.up"), rank=3, scale=16.0)
    assert len(paths) == 2 * 3
    assert torch.equal(scores(net), first)
    for path, p in net.named_parameters():
        assert p.requires_grad == ("lora_" in path)
        if "lora_" in path:
            torch.nn.init.normal_(p, std=0.3, generator=torch.Generator().manual_seed(1))
    adapted = scores(net)
    assert (adapted - first).abs().max() > 0.01
    lora.merge(net)
    assert (scores(net) - adapted).abs().max() < 1e-12
    assert {path: p.shape for path, p in net.named_parameters()} == shapes


def test_a_run_with_lora_ends_as_an_ordinary_network() -> None:
    net = network("gpt2", dtype=torch.float32)
    before = {path: p.detach().clone() for path, p in net.named_parameters()}
    config = Config(steps=3, lora=("*.attention.f.qkv",), lora_rank=2, learning_rate=0.01)
    train(net, objective=NextToken(), examples=texts(9, 12), config=config)
    after = dict(net.named_parameters())
    assert after.keys() == before.keys()
    changed = [path for path, p in after.items() if not torch.equal(p, before[path])]
    assert changed == [f"decoder.blocks.{layer}.attention.f.qkv.weight" for layer in range(2)]
    assert all(p.requires_grad for p in after.values())


def test_a_new_head_learns_beside_lora() -> None:
    net = network("classify", head=Classify(labels=3, pick="first"))
    lora.adapt(net, paths=("*.qkv",), rank=2, scale=2.0)
    assert net.get_parameter("readout.out.weight").requires_grad
    assert not net.token.weight.requires_grad


def test_frozen_weights_stay() -> None:
    net = network(dtype=torch.float32)
    before = {path: p.detach().clone() for path, p in net.named_parameters()}
    config = Config(steps=2, freeze=("token.weight", "decoder.blocks.0.*"), learning_rate=0.01)
    train(net, objective=NextToken(), examples=texts(9, 12), config=config)
    for path, p in net.named_parameters():
        assert torch.equal(p, before[path]) == (path == "token.weight" or ".blocks.0." in path), path


def test_what_cannot_be_chosen_is_said() -> None:
    with pytest.raises(UnknownName, match="encoder"):
        freeze(network(), ("encoder.*",))
    with pytest.raises(UnknownName, match=r"decoder\.blocks\.\*\.attention\.f\.qkv"):
        lora.adapt(network(), paths=("*.query",), rank=2, scale=2.0)
    with pytest.raises(TriformError, match="nothing to train"):
        train(network(), objective=NextToken(), examples=texts(4), config=Config(steps=1, freeze=("*",)))
    with pytest.raises(TriformError, match="has no end"):
        train(network(), objective=NextToken(), examples=texts(4), config=Config())


@pytest.mark.skipif(has_bfloat16(torch.device("cpu")), reason="this CPU computes bfloat16")
def test_no_emulated_precision() -> None:
    with pytest.raises(TriformError, match="does not support it; use float32"):
        train(network(), objective=NextToken(), examples=texts(4), config=Config(steps=1, precision="bfloat16"))


def test_dropout_of_the_config_is_in_place() -> None:
    net = network()
    prepare_network(net, Config(dropout=0.25))
    drops = [each.limit / 2**16 for each in net.modules() if isinstance(each, Dropout)]
    assert drops == [0.25] * (1 + 2 * 2)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_dropout_drops_its_share_and_keeps_the_mean(share: float) -> None:
    drop, x = Dropout(share), torch.ones(7, 11, 1300, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(0)
    y = drop(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    gone = y == 0
    deviation = (share * (1 - share) / gone.numel()) ** 0.5
    assert abs(float(gone.double().mean()) - share) < 5 * deviation
    assert set(y.unique().tolist()) == {0.0, 2**16 / (2**16 - round(share * 2**16))}
    assert y.max().item() == pytest.approx(1 / (1 - share), rel=1e-3)
    assert torch.equal(slope, y)  # d y / d x is the same noise, since x = 1
    rows = gone.view(-1, 13).double()  # neighbours, four of which share a random number, know nothing of each other
    near = torch.corrcoef(rows.T) - torch.eye(13)
    assert near.abs().max() < 6 / len(rows) ** 0.5
    assert torch.equal(drop.eval()(x), x)


COMPILED = """
import torch
from tiny_runs import network, texts
from triform.core.blocks import Dropout
from triform.train.run_config import Config
from triform.train.token_objectives import NextToken
from triform.train.loop import train

plain, compiled = network("llama", dtype=torch.float32), network("llama", dtype=torch.float32)
for net, compile in ((plain, False), (compiled, True)):
    config = Config(steps=3, batch_tokens=40, compile=compile)
    train(net, objective=NextToken(), examples=texts(*[20] * 6), config=config)
dropping = network("gpt2", dtype=torch.float32)
train(dropping, objective=NextToken(), examples=texts(*[20] * 6), config=config.replace(dropout=0.3))
x = torch.ones(2, 20, 16)
one = torch.compile(Dropout(0.3), fullgraph=True)(x)
assert 0.2 < float((one == 0).float().mean()) < 0.4
for a, b in zip(plain.parameters(), compiled.parameters(), strict=True):
    torch.testing.assert_close(a, b, atol=1e-4, rtol=0)
"""


@pytest.mark.slow
def test_compiled_blocks_learn_the_same() -> None:
    """In a process of its own: the run-time checks of shapes that the other tests carry cannot be compiled."""
    helpers = Path(__file__).resolve().parents[1] / "helpers"
    environment = os.environ | {"PYTHONPATH": str(helpers), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", COMPILED], check=True, env=environment)
