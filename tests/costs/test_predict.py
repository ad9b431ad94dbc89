"""Predicted from the spec = counted by torch, operation by operation: every family, form and phase."""

import io
import json
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tiny_models import EVERY, RELATIVES

from triform import families
from triform.core.build import Form, build_skeleton, make_cache
from triform.core.cache import Cache, SourceMemory
from triform.core.initial_weights import build_network
from triform.core.texts import Pair, Text
from triform.costs import activation_memory, operations
from triform.costs.flop_counter import PathTotals, count_flops, count_saved_bytes
from triform.costs.predict import Cost, cost
from triform.costs.stack_rows import StackPass
from triform.errors import InputError, TriformError, UnknownName
from triform.parameters import count_parameters
from triform.spec import ModelSpec, held_positions

SIZED = {f"tiny {name}": families.sized(name, "tiny", vocab=101) for name in families.FAMILIES}
SPECS = SIZED | RELATIVES
WRITERS = [name for name, spec in SPECS.items() if spec.decoder is not None]
FORMS = ("tiny bert", "tiny gpt2", "tiny vaswani")
B, N, M, NEW = 2, 7, 5, 4


def text(spec: ModelSpec, batch: int, length: int) -> Text:
    return Text.of(torch.arange(batch * length).view(batch, length) % spec.vocab)


class Bench:
    """One model, and the roads its cost is predicted for."""

    def __init__(self, spec: ModelSpec, *, batch: int = B, length: int = N, source: int = M) -> None:
        self.spec, self.network = spec, build_network(spec)
        self.sizes = {"batch": batch, "length": length}
        self.target = text(spec, batch, length)
        self.given = [self.target.ids, self.target.segment_ids]
        self.input: Text | Pair = self.target
        if spec.form == "encoder-decoder":
            self.sizes["source"] = source
            self.source = text(spec, batch, source)
            self.given += [self.source.ids, self.source.segment_ids]
            self.input = Pair(self.source, self.target)

    def cost(self, phase: str, **more: object) -> Cost:
        return cost(self.spec, phase=phase, **self.sizes, **more)

    def count(self, run: Callable[[], object]) -> PathTotals:
        with torch.no_grad():
            return count_flops(self.network, run)

    def cache(self) -> Cache:
        return make_cache(self.spec, rows=self.sizes["batch"], capacity=self.sizes["length"])

    def memory(self) -> SourceMemory | None:
        return self.network.encode(self.source) if self.spec.form == "encoder-decoder" else None

    def write(self, text: Text, memory: SourceMemory | None, cache: Cache) -> None:
        """Reads into the cache; the last position's logits, as generating needs them."""
        more = () if memory is None else (memory,)
        self.network.head(self.network.decode(text, *more, cache=cache)[:, -1:])


def differences(predicted: Cost, counted: PathTotals) -> list[tuple[str, int, float]]:
    """Every path whose FLOPs differ, and the total."""
    paths = dict.fromkeys(row.path for row in predicted.operations if row.flops)
    pairs = [(path, sum(row.flops for row in predicted.operations if row.path == path)) for path in paths]
    found = [(path, flops, counted.sum_over(path)) for path, flops in pairs] + [
        ("", predicted.total.flops, counted.total)
    ]
    return [(path, flops, real) for path, flops, real in found if flops != real]


# --- FLOPs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_training_flops_and_what_it_keeps(name: str) -> None:
    bench = Bench(SPECS[name])
    bench.network.train()
    predicted = bench.cost("training")
    counted = count_flops(bench.network, lambda: bench.network(bench.input).sum().backward())
    assert differences(predicted, counted) == []
    kept = count_saved_bytes(bench.network, lambda: bench.network(bench.input), inputs=bench.given)
    assert predicted.memory.kept == kept


@pytest.mark.parametrize("name", [*FORMS, "tiny t5", "classify", "no head"])
def test_reading_flops(name: str) -> None:
    bench = Bench(SPECS[name])
    assert differences(bench.cost("reading"), bench.count(lambda: bench.network(bench.input))) == []


@pytest.mark.parametrize("name", WRITERS)
def test_prefill_step_and_cache(name: str) -> None:
    bench = Bench(SPECS[name])
    cache = bench.cache()
    predicted = bench.cost("prefill")
    counted = bench.count(lambda: bench.write(bench.target, bench.memory(), cache))
    assert differences(predicted, counted) == []
    assert predicted.memory.cache == cache.bytes
    memory = bench.memory()
    assert predicted.memory.cross == (0 if memory is None else memory.bytes)
    cache.roll_back(1)
    token = text(bench.spec, B, 1)
    assert differences(bench.cost("step"), bench.count(lambda: bench.write(token, memory, cache))) == []


@pytest.mark.parametrize("name", ["tiny gpt2", "tiny t5", "single key head with a window"])
def test_a_whole_generation(name: str) -> None:
    bench = Bench(SPECS[name])
    token, cache = text(bench.spec, B, 1), make_cache(bench.spec, rows=B, capacity=N + NEW - 1)

    def generate() -> None:
        memory = bench.memory()
        bench.write(bench.target, memory, cache)
        for _ in range(NEW - 1):
            bench.write(token, memory, cache)

    predicted = bench.cost("generation", new=NEW)
    assert predicted.total.flops == bench.count(generate).total
    assert predicted.memory.cache == cache.bytes


@settings(max_examples=8, deadline=None)
@given(
    name=st.sampled_from(("gpt2", "qwen3", "bert", "flan_t5", "marian")),
    batch=st.integers(1, 4),
    length=st.integers(1, 20),
    source=st.integers(1, 20),
)
def test_any_size(name: str, batch: int, length: int, source: int) -> None:
    bench = Bench(EVERY[name], batch=batch, length=length, source=source)
    bench.network.train()
    counted = count_flops(bench.network, lambda: bench.network(bench.input).sum().backward())
    assert differences(bench.cost("training"), counted) == []


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        ("bert", "float64"),
        *((family, "bfloat16") for family in ("bert", "gpt2", "llama", "marian", "qwen3", "t5")),
        ("t5", "float32"),
    ],
)
def test_kept_at_mini_size(family: str, dtype: str) -> None:
    bench = Bench(families.sized(family, "mini", vocab=50), batch=1, length=24, source=17)
    bench.network.train().to(getattr(torch, dtype))
    kept = count_saved_bytes(bench.network, lambda: bench.network(bench.input), inputs=bench.given)
    assert bench.cost("training", dtype=dtype).memory.kept == kept


# --- parameters, memory, text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_parameters_and_weights(name: str) -> None:
    spec, network = SPECS[name], build_skeleton(SPECS[name])
    costs = cost(spec, phase="training", length=N)
    tensors = [*network.parameters(), *network.buffers()]
    assert costs.memory.weights == sum(x.numel() * x.element_size() for x in tensors)
    assert costs.parameters == count_parameters(spec) == sum(row.parameters for row in costs.operations)
    assert costs.memory.gradients == 4 * costs.parameters
    assert costs.memory.optimizer == 8 * costs.parameters


@pytest.mark.parametrize(
    ("name", "phase"), [(name, "training") for name in SPECS] + [(name, "step") for name in WRITERS]
)
def test_the_formula_is_the_number(name: str, phase: str) -> None:
    """Each printed formula, worked out with the spec's sizes, gives the FLOPs beside it."""
    spec = SPECS[name]
    source = M if spec.form == "encoder-decoder" else None
    for row in cost(spec, phase=phase, batch=B, length=N, source=source).operations:
        stack = spec.stacks.get(row.stack, next(iter(spec.stacks.values())))
        a = stack.attention
        letters = {
            "b": B,
            "n": N,
            "m": M,
            "d": spec.width,
            "e": spec.embedding_width,
            "h": a.heads,
            "g": a.kv_heads,
            "k": a.head_width,
        }
        letters |= {"f": stack.feedforward.width, "L": stack.layers, "V": spec.vocab}
        formula = row.formula.replace("²", "**2").replace("·", "*").replace("2g", "2*g")
        assert row.forward == (eval(formula, {}, letters) if formula else 0)


def test_half_precision_halves_the_bytes() -> None:
    spec = EVERY["gpt2"]
    single, half = (cost(spec, phase="step", length=N, dtype=dtype) for dtype in ("float32", "float16"))
    assert 2 * half.total.moved == single.total.moved
    assert 2 * half.memory.total == single.memory.total
    assert half.total.flops == single.total.flops


def test_useful_flops_are_those_a_mask_lets_through() -> None:
    spec = EVERY["mistral"]
    window, n = spec.decoder.attention.window, 9
    place = torch.arange(n)
    seen = int(((place <= place[:, None]) & (place > place[:, None] - window)).sum())
    row = cost(spec, phase="reading", length=n).row("scores", stack="decoder")
    assert row.useful * n * n == row.flops * seen
    written = cost(spec, phase="generation", length=3, new=7).row("scores", stack="decoder, step by step")
    assert written.useful * sum(range(4, 10)) == written.flops * sum(min(i, window) for i in range(4, 10))
    encoder = cost(EVERY["bert"], phase="reading", length=n)
    assert encoder.total.useful == encoder.total.flops


def test_a_step_reads_what_layers_with_a_window_hold() -> None:
    spec = families.gemma3(vocab=29, width=16, layers=7, heads=4, kv_heads=2, head_width=6, window=4, context=1000)
    windows = [kind.window for kind in spec.layer_kinds("decoder")]
    for length in (100, 164, 165, 999):
        keys = sum(held_positions(window, length) for window in windows)
        row = cost(spec, phase="step", length=length).row("scores", stack="decoder")
        assert row.forward == 2 * 4 * 6 * keys
        assert row.useful == 2 * 4 * 6 * sum(min(length, window or length) for window in windows)
    written = cost(spec, phase="generation", length=150, new=31).row("scores", stack="decoder, step by step")
    assert written.forward == sum(2 * 4 * 6 * held_positions(window, n) for window in windows for n in range(151, 181))


@pytest.mark.parametrize("name", SIZED)
def test_memory_is_close_to_what_is_alive(name: str) -> None:
    """The most bytes that tensors hold at once, beside the weights: in a pass, and in a training step."""
    bench = Bench(SPECS[name], batch=3, length=40, source=30)
    reading = bench.cost("reading").memory
    with torch.no_grad():
        alive = most_alive(bench.network, lambda: bench.network(bench.input))
    assert reading.passing + reading.cross == pytest.approx(alive, rel=0.05)
    training = bench.cost("training").memory
    bench.network.train()
    alive = most_alive(bench.network, lambda: bench.network(bench.input).sum().backward())
    assert max(training.kept, training.gradients) + training.passing == pytest.approx(alive, rel=0.1)


def most_alive(network: Form, run: Callable[[], object]) -> int:
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Alive(TorchDispatchMode):
        most = 0
        own = frozenset(x.untyped_storage()._cdata for x in (*network.parameters(), *network.buffers()))
        alive: dict[int, tuple[StorageWeakRef, int]] = {}  # noqa: RUF012

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **(kwargs or {}))
            for x in tree_leaves(out):
                if isinstance(x, torch.Tensor) and x.untyped_storage()._cdata not in self.own:
                    storage = x.untyped_storage()
                    self.alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
            for key in [key for key, (ref, _) in self.alive.items() if ref.expired()]:
                del self.alive[key]
            self.most = max(self.most, sum(size for _, size in self.alive.values()))
            return out

    with Alive() as watch:
        run()
    return watch.most


# --- negative controls ----------------------------------------------------------------------------------------------


def test_a_wrong_constant_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(EVERY["gpt2"])
    counted = bench.count(lambda: bench.network(bench.input))
    assert differences(bench.cost("reading"), counted) == []
    honest = operations.count_linear

    def careless(walk: StackPass, name: str, part: str, formula: str, widths: int) -> object:
        return honest(walk, name, part, formula.replace("4 b N d f", "2 b N d f"), widths)

    monkeypatch.setattr(operations, "count_linear", careless)
    wrong = differences(bench.cost("reading"), counted)
    assert [path for path, _, _ in wrong] == ["decoder.blocks.*.feedforward.f", ""]


def test_a_forgotten_tensor_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(EVERY["t5"])
    bench.network.train()
    kept = count_saved_bytes(bench.network, lambda: bench.network(bench.input), inputs=bench.given)
    # the quotient of RMS forgotten
    monkeypatch.setattr(activation_memory, "count_norm", lambda walk, norm: 4 * walk.rows * (2 + walk.spec.width))
    assert abs(bench.cost("training").memory.kept / kept - 1) > 0.05


def test_another_model_is_noticed() -> None:
    llama = EVERY["llama"]
    counted = Bench(llama).count(lambda: build_network(llama)(text(llama, B, N)))
    assert differences(cost(EVERY["qwen2"], phase="reading", batch=B, length=N), counted)


# --- asking ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "asked", "says"),
    [
        ("bert", {"phase": "step"}, "an encoder generates no text"),
        ("gpt2", {"phase": "guessing"}, "unknown phase 'guessing'"),
        ("gpt2", {"dtype": "float31"}, "did you mean 'float32'"),
        ("gpt2", {"length": 131}, "131 positions were requested, the model reads at most 130"),
        ("gpt2", {"phase": "generation", "length": 100, "new": 32}, "131 positions"),
        ("gpt2", {"length": 0}, "length=0 is not a size"),
        ("gpt2", {"batch": -1}, "batch=-1 is not a size"),
        ("gpt2", {"source": 3}, "source=3 is for encoder-decoders"),
        ("gpt2", {"new": 3}, "new=3 is for the phase 'generation'"),
        ("t5", {"source": 131}, "source: 131 positions"),
    ],
)
def test_what_cannot_be_is_refused(name: str, asked: dict[str, object], says: str) -> None:
    with pytest.raises(TriformError, match=says):
        cost(EVERY[name], **asked)


@pytest.mark.parametrize("phase", ["training", "reading", "prefill", "step", "generation"])
@pytest.mark.parametrize("name", FORMS)
def test_defaults_answer_and_print(name: str, phase: str) -> None:
    if SPECS[name].decoder is None and phase in ("prefill", "step", "generation"):
        with pytest.raises(InputError, match="an encoder generates no text"):
            cost(SPECS[name], phase=phase)
        return
    costs = cost(SPECS[name], phase=phase)
    console = Console(width=120, file=io.StringIO())
    console.print(costs)
    shown = console.file.getvalue()
    assert "QKV projection" in shown
    assert "O(" in shown
    said = json.loads(costs.to_json())
    assert said["total"]["flops"] == costs.total.flops == sum(row["flops"] for row in said["operations"])
    assert said["memory"]["total"] == costs.memory.total


def test_an_unknown_row_names_the_known() -> None:
    with pytest.raises(UnknownName, match="did you mean 'scores of decoder'"):
        cost(EVERY["gpt2"]).row("score", stack="decoder")


def test_no_torch_is_needed() -> None:
    code = """
import sys
sys.modules["torch"] = None
from triform.families import RELEASED, named
from triform.costs.predict import cost
from triform.costs.fit_memory import fit
from triform.costs.roofline import crossovers, roofline
from triform.costs.overview import plot_crossover, plot_flops, plot_roofline
from triform.costs.machine import Machine
from rich import print
for name, spec in RELEASED.items():
    crossovers(spec)
    cost(spec, phase="training")
machine = Machine(peak_flops=1e12, bandwidth=1e11, memory=10**9)
costs = cost(named("llama-3-8b"), phase="step", batch=4, length=8192, dtype="float16")
plot_flops(costs), plot_roofline([costs], machine=machine), plot_crossover(named("llama-3-8b"))
print(costs, roofline(costs, machine=machine), fit(named("llama-3-8b"), memory=24 * 10**9))
print(costs.memory.cache)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.endswith(f"{2 * 32 * 4 * 8 * 8192 * 128 * 2}\n")
