"""Limits: where the n² of attention overtakes the d² of the matrices, and what a machine's roofline allows.

Everything follows from `cost`; nothing here has a formula of its own. Refuses to know torch.
"""

from typing import TYPE_CHECKING, Literal

import msgspec

from triform.costs.machine import Machine
from triform.costs.operations import CROSS_SCORES, SCORES
from triform.costs.predict import Cost, cost
from triform.spec import ModelSpec

if TYPE_CHECKING:
    from rich.console import RenderableType

Limit = Literal["compute", "bandwidth"]

# --- n² against d² --------------------------------------------------------------------------------------------------


class Crossover(msgspec.Struct, frozen=True):
    """From n positions on, the scores and their use cost more FLOPs than all matrices of the layer."""

    stack: str
    n: float
    widths: float  # n / d: 6 for a plain layer, not 1


def crossovers(spec: ModelSpec) -> tuple[Crossover, ...]:
    """n = (FLOPs of the matrices at one position) / (FLOPs of one score), stack by stack.

    24d² / 4d = 6d for a plain layer with f = 4d. A decoder with a source as long as its text: 32d² / 8d = 4d.
    """
    once = cost(spec, phase="reading", length=1, source=1 if spec.form == "encoder-decoder" else None)
    return tuple(_crossover(once, stack, spec.width) for stack in spec.stacks)


def _crossover(once: Cost, stack: str, width: int) -> Crossover:
    rows = [row for row in once.operations if row.stack == stack]
    scores = sum(row.forward for row in rows if row.name in SCORES + CROSS_SCORES)
    n = (sum(row.forward for row in rows) - scores) / scores
    return Crossover(stack, n, n / width)


# --- the roofline ---------------------------------------------------------------------------------------------------


class Bound(msgspec.Struct, frozen=True):
    """An operation cannot be faster than its FLOPs at the machine's peak, nor than its bytes at its bandwidth."""

    stack: str
    name: str
    path: str
    seconds: float
    by: Limit


class Roofline(msgspec.Struct, frozen=True):
    """The least time that each operation needs on a machine, one after another."""

    machine: Machine
    rows: tuple[Bound, ...]
    seconds: float

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def __rich__(self) -> "RenderableType":
        from triform.costs.tables import roofline_table

        return roofline_table(self)


def roofline(costs: Cost, *, machine: Machine) -> Roofline:
    rows = []
    for row in costs.operations:
        computing, reading = row.flops / machine.peak_flops, row.moved / machine.bandwidth
        by: Limit = "compute" if computing > reading else "bandwidth"
        rows.append(Bound(row.stack, row.name, row.path, max(computing, reading), by))
    return Roofline(machine, tuple(rows), sum(row.seconds for row in rows))


class Turning(msgspec.Struct, frozen=True):
    """The batch from which a token after `length` positions computes longer than it reads; None where there is none."""

    length: int
    batch: float | None


def turning_batch(spec: ModelSpec, *, machine: Machine, length: int, dtype: str = "float32") -> float | None:
    """The batch from which a decoding step computes longer than it reads.

    Weights are read once for all rows, the cache once for each: where reading a row's own cache already takes longer
    than computing the row, no batch is large enough, and the answer is None.
    """
    source = length if spec.form == "encoder-decoder" else None
    one, two = (
        cost(spec, phase="step", batch=batch, length=length, source=source, dtype=dtype).total for batch in (1, 2)
    )
    a_row = (two.flops - one.flops) / machine.peak_flops - (two.moved - one.moved) / machine.bandwidth
    shared = (2 * one.moved - two.moved) / machine.bandwidth
    return shared / a_row if a_row > 0 else None
