"""Run a model under the workload its cost was predicted for: FLOPs predicted, counted and measured per module path."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import torch

from triform.core.build import make_cache
from triform.core.cache import NO_MEMORY, Cache, SourceMemory
from triform.core.forms import DecoderOnly, EncoderDecoder, EncoderOnly, Form
from triform.core.texts import Pair, Text
from triform.costs.flop_counter import PathTotals, count_flops, count_seconds
from triform.costs.machine import Machine
from triform.costs.predict import OPTIMIZER, Cost
from triform.costs.roofline import roofline
from triform.costs.stack_rows import Operation
from triform.costs.workload import Workload
from triform.spec import ModelSpec

if TYPE_CHECKING:
    from rich.console import RenderableType

ROUNDS = 5  # the fastest one is reported


class PathCost(msgspec.Struct, frozen=True, kw_only=True):
    """One module path with all its operations. FLOPs are of forward and backward; times of the forward pass."""

    path: str
    names: str
    predicted: int  # FLOPs
    counted: int  # FLOPs
    least: float  # seconds of the forward pass, lower bound of the roofline
    measured: float  # seconds of the forward pass


class MeasuredCost(msgspec.Struct, frozen=True):
    """One line per path, and the total: of a training step with its backward pass, without the optimizer."""

    form: str
    load: Workload
    machine: Machine
    lines: tuple[PathCost, ...]

    @property
    def equal(self) -> bool:
        return all(line.predicted == line.counted for line in self.lines)

    def to_json(self) -> str:
        return msgspec.json.encode(msgspec.to_builtins(self) | {"equal": self.equal}).decode()

    def __rich__(self) -> "RenderableType":
        from triform.costs.tables import make_measured_table

        return make_measured_table(self)


def compare_costs(costs: Cost, *, flops: PathTotals, seconds: PathTotals, machine: Machine) -> MeasuredCost:
    """Joins a predicted cost with FLOPs counted and seconds measured under the same workload."""
    rows = [row for row in costs.operations if row.stack != OPTIMIZER]
    lines = []
    for path in dict.fromkeys(row.path for row in rows if row.flops):
        operations = [row for row in rows if row.path == path]
        lines.append(
            PathCost(
                path=path,
                names=", ".join(dict.fromkeys(row.name for row in operations)),
                predicted=sum(row.flops for row in operations),
                counted=int(flops.sum_over(path)),
                least=sum(min_forward_seconds(row, costs.load, machine) for row in operations),
                measured=seconds.sum_over(path),
            )
        )
    total = PathCost(
        path="",
        names="total",
        predicted=costs.total.flops,
        counted=int(flops.total),
        least=sum(row.seconds for row in roofline(costs, machine=machine).rows if row.stack != OPTIMIZER),
        measured=seconds.total,
    )
    return MeasuredCost(costs.form, costs.load, machine, (*lines, total))


def min_forward_seconds(row: Operation, load: Workload, machine: Machine) -> float:
    """A training step moves three times the bytes of its forward pass."""
    moved = row.moved / (3 if load.training else 1)
    return max(row.forward / machine.peak_flops, moved / machine.bandwidth)


# --- running --------------------------------------------------------------------------------------------------------


def measure_cost(
    network: Form, *, spec: ModelSpec, costs: Cost, machine: Machine, rounds: int = ROUNDS
) -> MeasuredCost:
    """Predicted | counted | measured. The network must have the precision the cost was predicted for."""
    load, was_training = costs.load, network.training
    network.train(load.training)

    def measure_seconds() -> PathTotals:
        network.zero_grad(set_to_none=True)
        return count_seconds(network, run)

    try:
        with torch.set_grad_enabled(load.training):
            run = make_run(network, spec, load)
            flops = count_flops(network, run)
            seconds = min((measure_seconds() for _ in range(rounds)), key=lambda measured: measured.total)
    finally:
        network.train(was_training)
        network.zero_grad(set_to_none=True)
    return compare_costs(costs, flops=flops, seconds=seconds, machine=machine)


def make_run(network: Form, spec: ModelSpec, load: Workload) -> Callable[[], object]:
    """A function that runs the workload once per call."""
    target, source = make_text(spec, load.batch, load.length), make_text(spec, load.batch, load.source)
    if not load.cached:
        inputs = Pair(source, target) if isinstance(network, EncoderDecoder) else target
        if load.training:
            return lambda: network(inputs).sum().backward()
        return lambda: network(inputs)
    if isinstance(network, EncoderOnly):
        raise TypeError("an encoder has no cache")
    return make_cached_run(network, spec, load, target, source)


def make_cached_run(
    network: DecoderOnly | EncoderDecoder, spec: ModelSpec, load: Workload, target: Text, source: Text
) -> Callable[[], object]:
    """A function that runs what the workload says with a cache: a prefill, a step, or a generation."""
    cache = make_cache(spec, rows=load.batch, capacity=load.positions, dtype=network.dtype, device=network.device)
    token = make_text(spec, load.batch, 1)

    def encode() -> SourceMemory:
        return network.encode(source) if isinstance(network, EncoderDecoder) else NO_MEMORY

    def feed(more: Text, memory: SourceMemory) -> None:
        """Decodes into the cache; computes only the last position's logits, as generation does."""
        network.head(decode(network, more, memory, cache)[:, -1:])

    def generate() -> None:
        memory = encode()
        feed(target, memory)
        for _ in range(load.steps):
            feed(token, memory)
        cache.advance(-load.positions)  # later calls overwrite what is behind it

    if load.phase != "step":
        return generate
    memory = encode()
    if load.length > 1:
        decode(network, make_text(spec, load.batch, load.length - 1), memory, cache)

    def step() -> None:
        feed(token, memory)
        cache.advance(-1)

    return step


def decode(network: DecoderOnly | EncoderDecoder, more: Text, memory: SourceMemory, cache: Cache) -> torch.Tensor:
    if isinstance(network, EncoderDecoder):
        return network.decode(more, memory, cache)
    return network.decode(more, cache)


def make_text(spec: ModelSpec, batch: int, length: int) -> Text:
    """Arbitrary tokens: cost does not depend on them."""
    return Text.of(torch.arange(batch * length).view(batch, length) % spec.vocab)
