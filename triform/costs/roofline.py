"""Where attention's n² overtakes the matrices' d², and the roofline of a machine. All from `cost`, without torch."""

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
    """From n positions on, scores and weighted values cost more FLOPs than all matrices of the layer."""

    stack: str
    n: float
    widths: float  # n / d: 6 for a plain layer, not 1


def crossovers(spec: ModelSpec) -> tuple[Crossover, ...]:
    """n = (FLOPs of the matrices at one position) / (FLOPs of one score), per stack.

    24d² / 4d = 6d for a plain layer with f = 4d. A decoder whose source has the same length: 32d² / 8d = 4d.
    """
    once = cost(spec, phase="reading", length=1, source=1 if spec.form == "encoder-decoder" else None)
    found = []
    for stack in spec.stacks:
        rows = [row for row in once.operations if row.stack == stack]
        scores = sum(row.forward for row in rows if row.name in SCORES + CROSS_SCORES)
        n = (sum(row.forward for row in rows) - scores) / scores
        found.append(Crossover(stack, n, n / spec.width))
    return tuple(found)


# --- the roofline ---------------------------------------------------------------------------------------------------


class TimeBound(msgspec.Struct, frozen=True):
    """max(FLOPs / peak, bytes / bandwidth): the lower bound of one operation's time."""

    stack: str
    name: str
    path: str
    seconds: float
    by: Limit


class Roofline(msgspec.Struct, frozen=True):
    """Lower bounds of all operations on a machine, run one after another."""

    machine: Machine
    rows: tuple[TimeBound, ...]
    seconds: float

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def __rich__(self) -> "RenderableType":
        from triform.costs.tables import make_roofline_table

        return make_roofline_table(self)


def roofline(costs: Cost, *, machine: Machine) -> Roofline:
    """A lower bound of the time of each operation on a machine: compute or bandwidth."""
    rows = []
    for row in costs.operations:
        computing, reading = row.flops / machine.peak_flops, row.moved / machine.bandwidth
        by: Limit = "compute" if computing > reading else "bandwidth"
        rows.append(TimeBound(row.stack, row.name, row.path, max(computing, reading), by))
    return Roofline(machine, tuple(rows), sum(row.seconds for row in rows))


class TurningBatch(msgspec.Struct, frozen=True):
    """The batch from which a decoding step at `length` is limited by compute; None: no batch is large enough."""

    length: int
    batch: float | None


def find_turning_batch(spec: ModelSpec, *, machine: Machine, length: int, dtype: str = "float32") -> float | None:
    """The batch from which a decoding step is limited by compute instead of bandwidth.

    Weights are read once per step, the cache once per sequence: if reading one sequence's cache takes longer than
    computing its token, no batch is large enough, and the result is None.
    """
    source = length if spec.form == "encoder-decoder" else None
    one, two = (
        cost(spec, phase="step", batch=batch, length=length, source=source, dtype=dtype).total for batch in (1, 2)
    )
    per_sequence = (two.flops - one.flops) / machine.peak_flops - (two.moved - one.moved) / machine.bandwidth
    shared = (2 * one.moved - two.moved) / machine.bandwidth
    return shared / per_sequence if per_sequence > 0 else None
