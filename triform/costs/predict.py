"""Costs predicted from a spec alone: parameters, FLOPs, bytes and memory of a training step, a forward pass, a prefill,
a decoding step, a whole generation.

No torch, no files, milliseconds for any size. Tests compare with torch, exactly: FLOPs, and bytes of weights, of the
cache and of what autograd saves.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from triform.costs import activation_memory, operations
from triform.costs.stack_rows import Operation, StackPass, count_numbers, count_weight_bytes
from triform.costs.workload import Phase, Workload, make_load, make_passes
from triform.errors import UnknownName
from triform.spec import ModelSpec, held_positions
from triform.weight_kinds import WeightKind

if TYPE_CHECKING:
    from rich.console import RenderableType

OPTIMIZER = "optimizer"  # the name of its stack
MOMENTS = 2  # of AdamW, per parameter
OPTIMIZER_MOVES = 7  # numbers per parameter: weight, gradient and moments read; weight and moments written


class MemoryCost(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes held at once; in training, with accumulated gradients."""

    weights: int
    gradients: int
    optimizer: int
    kept: int  # activations saved for the backward pass
    passing: int  # peak of temporary activations, an estimate
    cache: int  # keys and values of the text: 2·L·b·g·n·k numbers, less in layers with a window
    cross: int  # keys and values of the source: 2·L·b·g·m·k numbers

    @property
    def total(self) -> int:
        return sum(getattr(self, field) for field in self.__struct_fields__)


class CostTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over a stack or over all operations."""

    forward: int
    backward: int
    flops: int
    useful: int
    moved: int
    kept: int
    intensity: float

    @staticmethod
    def of(operations: Iterable[Operation]) -> "CostTotals":
        rows = tuple(operations)
        flops, moved = sum(row.flops for row in rows), sum(row.moved for row in rows)
        return CostTotals(
            forward=sum(row.forward for row in rows),
            backward=sum(row.backward for row in rows),
            flops=flops,
            useful=sum(row.useful for row in rows),
            moved=moved,
            kept=sum(row.kept for row in rows),
            intensity=flops / moved,
        )


class Cost(msgspec.Struct, frozen=True):
    """The table: one row per operation, sums per stack and in total, and memory."""

    form: str
    load: Workload
    parameters: int
    operations: tuple[Operation, ...]
    memory: MemoryCost

    @property
    def total(self) -> CostTotals:
        return CostTotals.of(self.operations)

    @property
    def stacks(self) -> dict[str, CostTotals]:
        """Encoder, decoder, head; the steps of a generation separately."""
        names = dict.fromkeys(row.stack for row in self.operations)
        return {name: CostTotals.of(row for row in self.operations if row.stack == name) for name in names}

    def row(self, name: str, *, stack: str) -> Operation:
        for row in self.operations:
            if (row.name, row.stack) == (name, stack):
                return row
        raise UnknownName("operation", f"{name} of {stack}", {f"{row.name} of {row.stack}" for row in self.operations})

    def to_builtins(self) -> dict[str, Any]:
        """Plain values, with the sums."""
        table = msgspec.to_builtins(self)
        for row, operation in zip(table["operations"], self.operations, strict=True):
            row |= {"flops": operation.flops, "intensity": operation.intensity}
        table["memory"]["total"] = self.memory.total
        return table | msgspec.to_builtins({"stacks": self.stacks, "total": self.total})

    def to_json(self) -> str:
        return msgspec.json.encode(self.to_builtins()).decode()

    def __rich__(self) -> "RenderableType":
        from triform.costs.tables import make_cost_table

        return make_cost_table(self)


def cost(
    spec: ModelSpec,
    *,
    phase: Phase = "reading",
    batch: int = 1,
    length: int | None = None,
    source: int | None = None,
    new: int | None = None,
    dtype: str = "float32",
    weights: WeightKind = "float32",
) -> Cost:
    """`cost(named("llama-3-8b"), phase="step", batch=4, length=8192, dtype="float16")`"""
    load = make_load(
        spec, phase=phase, batch=batch, length=length, source=source, new=new, dtype=dtype, weights=weights
    )
    rows = tuple(row for walk in make_passes(spec, load) for row in count_rows(walk))
    if load.training:
        rows += (count_optimizer(spec, load),)
    return Cost(spec.form, load, count_parameters(spec), rows, count_memory(spec, load, rows))


def count_parameters(spec: ModelSpec) -> int:
    return count_numbers(spec, "*", trained=True)


def count_rows(walk: StackPass) -> Iterator[Operation]:
    """The operations of a pass with the activations that each keeps."""
    kept = activation_memory.count_stack(walk)
    for row in operations.count_stack(walk):
        yield msgspec.structs.replace(row, kept=kept.get(row.name, 0))
    if walk.last:
        for row in operations.count_head(walk):
            yield msgspec.structs.replace(row, kept=activation_memory.count_head(walk))


def count_optimizer(spec: ModelSpec, load: Workload) -> Operation:
    """Element-wise over all parameters: bytes, no FLOPs."""
    moved = OPTIMIZER_MOVES * count_parameters(spec) * load.bytes_per_number
    return Operation(stack=OPTIMIZER, name="AdamW", path="*", moved=moved)


def cache_bytes(spec: ModelSpec, positions: int, *, bytes_per_number: int = 4) -> int:
    """Keys and values of a text in every decoder layer, 2·g·k numbers per position: those of a layer with a window are
    of its last positions; 0 for an encoder."""
    if spec.decoder is None:
        return 0
    a = spec.decoder.attention
    held = sum(held_positions(kind.window, positions) for kind in spec.layer_kinds("decoder"))
    return 2 * a.kv_heads * a.head_width * bytes_per_number * held


def source_bytes(spec: ModelSpec, positions: int, *, bytes_per_number: int = 4) -> int:
    """Keys and values of a source in every decoder layer: 2·L·g·k numbers per position; 0 without one."""
    if spec.decoder is None or spec.encoder is None:
        return 0
    a = spec.decoder.attention
    return 2 * spec.decoder.layers * a.kv_heads * a.head_width * bytes_per_number * positions


def count_memory(spec: ModelSpec, load: Workload, rows: tuple[Operation, ...]) -> MemoryCost:
    """Bytes of weights, gradients, optimizer state, activations and caches."""
    trained = count_parameters(spec) * load.bytes_per_number if load.training else 0
    number, kept = load.bytes_per_number, 0 if load.training else load.batch
    return MemoryCost(
        weights=count_weight_bytes(spec, "*", kind=load.weights, bytes_per_number=load.bytes_per_number),
        gradients=trained,
        optimizer=MOMENTS * trained,
        kept=sum(row.kept for row in rows),
        passing=max(activation_memory.count_temporary(walk) for walk in make_passes(spec, load)),
        cache=kept * cache_bytes(spec, load.positions, bytes_per_number=number) if load.cached else 0,
        cross=kept * source_bytes(spec, load.source, bytes_per_number=number),
    )
