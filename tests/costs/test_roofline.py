"""What a machine allows and what a memory holds follow from the costs, and from nothing else."""

import io
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tiny_models import EVERY

from triform.core.initial_weights import build_network
from triform.core.texts import Text
from triform.costs import machine, time_growth
from triform.costs.fit_memory import find_largest, fit, parse_bytes
from triform.costs.flop_counter import count_flops, count_seconds
from triform.costs.machine import Machine
from triform.costs.measure import compare_costs
from triform.costs.overview import plot_crossover, plot_flops, plot_roofline
from triform.costs.predict import cost
from triform.costs.roofline import find_turning_batch, roofline
from triform.costs.time_growth import fit_exponent, measure_growth
from triform.errors import InputError
from triform.families import named

FAST = Machine(peak_flops=3e11, bandwidth=3e10, memory=24 * 10**9)
SMALL = named("gpt2-small")


def shown(thing: object) -> str:
    console = Console(width=120, file=io.StringIO())
    console.print(thing)
    return console.file.getvalue()


def test_a_decoding_step_is_read_and_a_training_step_computed() -> None:
    step = roofline(cost(SMALL, phase="step", length=512), machine=FAST)
    assert {row.by for row in step.rows} == {"bandwidth"}
    training = roofline(cost(SMALL, phase="training", batch=8, length=512), machine=FAST)
    assert {row.name for row in training.rows if row.by == "bandwidth"} == {
        "embeddings",
        "norms, sums, activation",
        "AdamW",
    }
    assert step.seconds == pytest.approx(cost(SMALL, phase="step", length=512).total.moved / FAST.bandwidth)
    assert "limited by" in shown(step)
    assert json.loads(step.to_json())["seconds"] == step.seconds


def test_decoding_turns_where_both_take_equally_long() -> None:
    batch = find_turning_batch(SMALL, machine=FAST, length=16)
    assert batch is not None
    below, above = (cost(SMALL, phase="step", batch=size, length=16).total for size in (int(batch), int(batch) + 1))
    assert below.intensity <= FAST.ridge <= above.intensity
    assert find_turning_batch(SMALL, machine=FAST, length=1024) is None  # each row's own cache is the limit
    many = cost(SMALL, phase="step", batch=10_000, length=1024).total
    assert many.intensity < FAST.ridge


@pytest.mark.parametrize("name", ["gpt2-small", "bert-base", "t5-small", "llama-3-8b"])
def test_what_fits_fits_and_one_more_does_not(name: str) -> None:
    spec, memory = named(name), 6 * 10**9
    found = fit(spec, memory=memory, length=256)
    for room in found.rooms:
        phase = "training" if room.use == "training" else "reading" if spec.decoder is None else "prefill"
        source = {"source": 256} if spec.form == "encoder-decoder" else {}

        def held(batch: int, phase: str = phase, dtype: str = room.dtype, source: dict[str, int] = source) -> int:
            return cost(spec, phase=phase, batch=batch, length=256, dtype=dtype, **source).memory.total

        assert room.needed == held(1)
        assert held(room.batch + 1) > memory
        assert room.batch == 0 or held(room.batch) <= memory
        assert (room.length == 0) == (room.weights > memory) or room.use == "training"
    assert "what fits in 6 GB" in shown(found)
    assert len(json.loads(found.to_json())["rooms"]) == 4


def test_llama_in_24_gigabytes() -> None:
    rooms = {(room.use, room.dtype): room for room in fit(named("llama-3-8b"), memory=parse_bytes("24GB")).rooms}
    assert rooms["inference", "float32"].batch == 0
    assert rooms["inference", "bfloat16"].length == 8192
    assert rooms["training", "bfloat16"].length == 0


@given(st.integers(0, 300), st.integers(1, 300))
def test_largest(threshold: int, limit: int) -> None:
    assert find_largest(lambda size: size <= threshold, limit) == min(threshold, limit)


@pytest.mark.parametrize(
    ("text", "size"),
    [("24GB", 24 * 10**9), ("16 GiB", 16 * 2**30), ("1.5kb", 1500), ("7", 7), (" 2tib ", 2 * 2**40)],
)
def test_amounts_of_memory(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "24 apples", "-3GB", "nanGB", "1e999GB", "0", "24 GB of it"])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(InputError, match="use a"):
        parse_bytes(text)


def test_a_machine_has_limits() -> None:
    assert FAST.ridge == 10
    with pytest.raises(InputError, match="bandwidth=0"):
        Machine(peak_flops=1.0, bandwidth=0, memory=1)
    with pytest.raises(InputError, match="memory=0"):
        fit(SMALL, memory=0)


def test_this_machine_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MATRIX_SIDES", (64,))
    monkeypatch.setattr(machine, "READ_BYTES", 2**16)
    monkeypatch.setattr(machine, "SECONDS_PER_LIMIT", 0.0)
    machine.measure.cache_clear()
    found = machine.measure()
    assert machine.measure() is found
    assert found.memory is not None
    assert found.memory <= 2**50
    machine.measure.cache_clear()


def test_predicted_counted_and_measured_side_by_side() -> None:
    spec = EVERY["gpt2"]
    network, text = build_network(spec), Text.of(torch.arange(14).view(2, 7))
    with torch.no_grad():
        flops = count_flops(network, lambda: network(text))
        seconds = count_seconds(network, lambda: network(text))
    found = compare_costs(cost(spec, phase="reading", batch=2, length=7), flops=flops, seconds=seconds, machine=FAST)
    assert found.equal
    assert all(line.measured > 0 for line in found.lines)
    assert "decoder.blocks.*.attention.f.attend" in shown(found)
    assert json.loads(found.to_json())["equal"] is True
    other = compare_costs(cost(spec, phase="reading", batch=2, length=8), flops=flops, seconds=seconds, machine=FAST)
    assert not other.equal


def test_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least time of a prefill grows faster than n, that of a cached token slower; the plot has all three."""
    monkeypatch.setattr(time_growth, "SECONDS_PER_POINT", 0.0)
    spec = EVERY["gpt2"]
    sizes = (1, 16, 128)
    found = measure_growth(build_network(spec), spec=spec, lengths=sizes, contexts=sizes, machine=FAST)
    assert [point.positions for point in found.cached.points] == list(sizes)
    assert found.cached.least_exponent < found.uncached.least_exponent == found.prefill.least_exponent
    assert found.plot().svg.count("polyline") == 3
    assert f"n^{found.uncached.exponent:.2f}" in shown(found)
    said = json.loads(found.to_json())
    assert said["prefill"]["points"][0]["positions"] == 1
    assert said["cached"]["exponent"] == found.cached.exponent


def test_growth_goes_only_as_far_as_the_model_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_growth, "SECONDS_PER_POINT", 0.0)
    spec, heard = EVERY["gpt2"], []
    found = measure_growth(
        build_network(spec), spec=spec, machine=FAST, lengths=(8, 64), contexts=(8, 64, 512), on_progress=heard.append
    )
    assert [point.positions for point in found.cached.points] == [8, 64]
    assert len(heard) == 6
    with pytest.raises(InputError, match="reads at most 130 positions; growth needs at least 256"):
        measure_growth(build_network(spec), spec=spec, machine=FAST)
    with pytest.raises(InputError, match="measured on decoders; this model is the form 'encoder'"):
        measure_growth(build_network(EVERY["bert"]), spec=EVERY["bert"], machine=FAST)


def test_a_machine_is_kept_under_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path / "not there yet"))
    assert machine.load_machine() is None
    machine.store_machine(FAST)
    assert machine.load_machine() == FAST
    (file,) = (tmp_path / "not there yet").iterdir()
    for damaged in (b"{", b"[]", b'{"peak_flops": -1, "bandwidth": 1}', b"\xff"):
        file.write_bytes(damaged)
        assert machine.load_machine() is None
    monkeypatch.setattr(machine.platform, "node", lambda: "another")
    assert machine.load_machine() is None


@given(st.floats(-3, 3), st.floats(0.1, 10))
def test_slope(power: float, scale: float) -> None:
    assert fit_exponent([(x, scale * x**power) for x in (1, 2, 5, 30)]) == pytest.approx(power, abs=1e-9)


@pytest.mark.parametrize("name", ["gpt2-small", "t5-small", "bert-base"])
def test_pictures_of_costs(name: str) -> None:
    costs = cost(named(name), phase="training", length=128)
    for figure in (plot_flops(costs), plot_crossover(named(name)), plot_roofline([costs], machine=FAST)):
        assert figure.svg.startswith("<svg")
    assert "= 6·d" in plot_crossover(named("gpt2-small")).svg
