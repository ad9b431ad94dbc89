"""The whole answer: what a context means in each phase, and a real run that counts what was predicted."""

import io
import json

import pytest
import torch
from rich.console import Console
from tiny_models import RELATIVES

from triform import families
from triform.core.initial_weights import build_network
from triform.costs import operations
from triform.costs.machine import Machine
from triform.costs.measure import measure_cost
from triform.costs.overview import cost_of_context, list_phases, make_overview
from triform.errors import InputError
from triform.families import named
from triform.spec import ModelSpec

SPECS = {f"tiny {name}": families.sized(name, "tiny", vocab=101) for name in families.FAMILIES} | RELATIVES
EVERY_PHASE = [(name, phase) for name, spec in SPECS.items() for phase in {*list_phases(spec), "reading"}]
FAST = Machine(peak_flops=3e11, bandwidth=3e10)


def shown(thing: object) -> str:
    console = Console(width=120, file=io.StringIO())
    console.print(thing)
    return console.file.getvalue()


@pytest.mark.parametrize(("name", "phase"), sorted(EVERY_PHASE))
def test_a_real_run_counts_what_was_predicted(name: str, phase: str) -> None:
    """Every family, form and phase, module path by module path."""
    spec = SPECS[name]
    network = build_network(spec)
    found = measure_cost(
        network, spec=spec, costs=cost_of_context(spec, phase=phase, batch=2, context=9), machine=FAST, rounds=1
    )
    assert found.equal, shown(found)
    assert all(line.measured > 0 for line in found.lines)
    assert not network.training
    assert all(p.grad is None for p in network.parameters())


def test_a_wrong_prediction_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SPECS["tiny gpt2"]
    monkeypatch.setattr(
        operations, "count_linear", lambda walk, name, part, formula, widths: walk.row(name, f"x.{part}")
    )
    found = measure_cost(
        build_network(spec), spec=spec, costs=cost_of_context(spec, phase="step", context=4), machine=FAST, rounds=1
    )
    assert not found.equal
    assert "NOT equal" in shown(found)


def test_a_run_changes_nothing() -> None:
    spec = SPECS["tiny t5"]
    network = build_network(spec).train()
    before = {name: x.clone() for name, x in network.state_dict().items()}
    measure_cost(network, spec=spec, costs=cost_of_context(spec, phase="generation", context=9), machine=FAST, rounds=2)
    assert network.training
    assert all(torch.equal(before[name], x) for name, x in network.state_dict().items())


# --- what a context means -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "phase", "asked", "means"),
    [
        ("tiny bert", "reading", {"context": 20}, (20, 0, 0)),
        ("tiny gpt2", "step", {"context": 20}, (20, 0, 0)),
        ("tiny gpt2", "generation", {"context": 20}, (11, 0, 10)),
        ("tiny gpt2", "generation", {"context": 20, "new": 20}, (1, 0, 20)),
        ("tiny t5", "training", {"context": 20}, (20, 20, 0)),
        ("tiny t5", "training", {"context": 20, "source": 7}, (20, 7, 0)),
        ("tiny t5", "prefill", {"context": 20}, (1, 20, 0)),
        ("tiny t5", "step", {"context": 20}, (20, 20, 0)),
        ("tiny t5", "generation", {"context": 20, "new": 5}, (1, 20, 5)),
    ],
)
def test_context(name: str, phase: str, asked: dict[str, int], means: tuple[int, int, int]) -> None:
    load = cost_of_context(SPECS[name], phase=phase, **asked).load
    assert (load.length, load.source, load.new) == means
    if phase == "generation" and load.source == 0:
        assert load.positions == asked["context"]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="new=21 tokens do not fit into a context of 20; use at most 20"):
        cost_of_context(SPECS["tiny gpt2"], phase="generation", context=20, new=21)
    with pytest.raises(InputError, match="129 positions were requested, the model reads at most 128"):
        make_overview(SPECS["tiny gpt2"], model="it", context=129)


@pytest.mark.parametrize("machine", [None, FAST])
@pytest.mark.parametrize("name", ["tiny bert", "tiny gpt2", "tiny t5"])
def test_all_phases_and_one(name: str, machine: Machine | None) -> None:
    spec: ModelSpec = SPECS[name]
    whole = make_overview(spec, model=name, context=64, batch=3, machine=machine)
    said = json.loads(whole.to_json())
    assert list(said["phases"]) == list(list_phases(spec))
    assert said["parameters"] == whole.costs[0].parameters
    for one in whole.costs:
        assert f"{one.load.description}" in shown(whole)
        assert said["phases"][one.load.phase]["total"]["flops"] == one.total.flops
        assert (said["phases"][one.load.phase]["least_seconds"] is None) == (machine is None)
    single = make_overview(spec, model=name, phase="training", context=64, batch=3, machine=machine)
    assert list(json.loads(single.to_json())["phases"]) == ["training"]
    assert "QKV projection" in shown(single)
    assert ("limited by" in shown(single)) == (machine is not None)
    assert ("triform cost --measure" in shown(single)) == (machine is None)
    pictures = whole.plot().svg.count("<svg ") - 1
    assert pictures == len(list_phases(spec)) + 1 + (machine is not None)


def test_where_decoding_turns() -> None:
    short = make_overview(named("gpt2-small"), model="gpt2-small", context=16, machine=FAST)
    assert short.turning is not None
    assert "up to batch" in shown(short)
    long = make_overview(named("gpt2-small"), model="gpt2-small", context=1024, machine=FAST)
    assert "at every batch" in shown(long)
    assert make_overview(named("bert-base"), model="bert-base", machine=FAST).turning is None
