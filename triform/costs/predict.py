"""What a model costs, from its spec alone: parameters, FLOPs, bytes and memory of a training step, of reading a text,
of a prefill, of one decoding step, of a whole generation.

No torch, no files, milliseconds for any size. The tests hold the numbers against torch: FLOPs, and bytes of weights,
cache and what training keeps, exactly. `cost_limits.py` asks where costs cross, `cost_fit.py` what fits.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from triform.costs import activation_memory, operations
from triform.costs.stack_rows import Operation, Walk, numbers
from triform.costs.workload import Load, Phase, load_of, walks
from triform.errors import UnknownName
from triform.spec import ModelSpec

if TYPE_CHECKING:
    from rich.console import RenderableType

OPTIMIZER = "optimizer"  # the name of its stack
MOMENTS = 2  # AdamW keeps two numbers a parameter
OPTIMIZER_MOVES = 7  # weight, gradient and moments read; weight and moments written


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes held at once; in training, with the gradients of an earlier batch that wait to be added to."""

    weights: int
    gradients: int
    optimizer: int
    kept: int  # activations that wait for the backward pass
    passing: int  # the widest moment of what comes and goes, an estimate
    cache: int  # keys and values of the text: 2·L·b·g·n·k numbers
    cross: int  # keys and values of the source: 2·L·b·g·m·k numbers

    @property
    def total(self) -> int:
        return sum(getattr(self, field) for field in self.__struct_fields__)


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The columns summed, over a stack or over all."""

    forward: int
    backward: int
    flops: int
    useful: int
    moved: int
    kept: int
    intensity: float

    @staticmethod
    def of(operations: Iterable[Operation]) -> "Totals":
        rows = tuple(operations)
        flops, moved = sum(row.flops for row in rows), sum(row.moved for row in rows)
        return Totals(
            forward=sum(row.forward for row in rows),
            backward=sum(row.backward for row in rows),
            flops=flops,
            useful=sum(row.useful for row in rows),
            moved=moved,
            kept=sum(row.kept for row in rows),
            intensity=flops / moved,
        )


class Cost(msgspec.Struct, frozen=True):
    """The table: a row for each operation, sums for each stack and for all, and what memory holds."""

    form: str
    load: Load
    parameters: int
    operations: tuple[Operation, ...]
    memory: Memory

    @property
    def total(self) -> Totals:
        return Totals.of(self.operations)

    @property
    def stacks(self) -> dict[str, Totals]:
        """Encoder, decoder, head; the steps of a generation apart."""
        names = dict.fromkeys(row.stack for row in self.operations)
        return {name: Totals.of(row for row in self.operations if row.stack == name) for name in names}

    def row(self, name: str, *, stack: str) -> Operation:
        for row in self.operations:
            if (row.name, row.stack) == (name, stack):
                return row
        raise UnknownName("operation", f"{name} of {stack}", {f"{row.name} of {row.stack}" for row in self.operations})

    def to_builtins(self) -> dict[str, Any]:
        """The struct as plain values, with the sums."""
        table = msgspec.to_builtins(self)
        for row, operation in zip(table["operations"], self.operations, strict=True):
            row |= {"flops": operation.flops, "intensity": operation.intensity}
        table["memory"]["total"] = self.memory.total
        return table | msgspec.to_builtins({"stacks": self.stacks, "total": self.total})

    def to_json(self) -> str:
        return msgspec.json.encode(self.to_builtins()).decode()

    def __rich__(self) -> "RenderableType":
        from triform.costs.tables import cost_table

        return cost_table(self)


def cost(
    spec: ModelSpec,
    *,
    phase: Phase = "reading",
    batch: int = 1,
    length: int | None = None,
    source: int | None = None,
    new: int | None = None,
    dtype: str = "float32",
) -> Cost:
    """`cost(named("llama-3-8b"), phase="step", batch=4, length=8192, dtype="float16")`"""
    load = load_of(spec, phase=phase, batch=batch, length=length, source=source, new=new, dtype=dtype)
    rows = tuple(row for walk in walks(spec, load) for row in rows_of(walk))
    if load.training:
        rows += (optimizer(spec, load),)
    return Cost(spec.form, load, parameters(spec), rows, memory_of(spec, load, rows))


def parameters(spec: ModelSpec) -> int:
    return numbers(spec, "*", trained=True)


def rows_of(walk: Walk) -> Iterator[Operation]:
    kept = activation_memory.of_stack(walk)
    for row in operations.of_stack(walk):
        yield msgspec.structs.replace(row, kept=kept.get(row.name, 0))
    if walk.last:
        for row in operations.of_head(walk):
            yield msgspec.structs.replace(row, kept=activation_memory.of_head(walk))


def optimizer(spec: ModelSpec, load: Load) -> Operation:
    """Element-wise over all parameters: bytes only."""
    return Operation(
        stack=OPTIMIZER,
        name="AdamW",
        path="*",
        moved=OPTIMIZER_MOVES * parameters(spec) * load.number,
    )


def memory_of(spec: ModelSpec, load: Load, rows: tuple[Operation, ...]) -> Memory:
    trained = parameters(spec) * load.number if load.training else 0
    a_position = 0
    if spec.decoder is not None and not load.training:
        a = spec.decoder.attention
        a_position = 2 * spec.decoder.layers * load.batch * a.kv_heads * a.head_width * load.number
    return Memory(
        weights=numbers(spec, "*") * load.number,
        gradients=trained,
        optimizer=MOMENTS * trained,
        kept=sum(row.kept for row in rows),
        passing=max(activation_memory.passing(walk) for walk in walks(spec, load)),
        cache=a_position * load.positions if load.cached else 0,
        cross=a_position * load.source,
    )
