"""Predicted beside counted beside measured, module path by module path.

Takes what `count.py` found in a real pass; needs no torch itself.
"""

from typing import TYPE_CHECKING

import msgspec

from triform.costs.machine import Machine
from triform.costs.predict import OPTIMIZER, Cost
from triform.costs.roofline import roofline
from triform.costs.stack_rows import Operation
from triform.costs.workload import Load

if TYPE_CHECKING:
    from rich.console import RenderableType

    from triform.costs.flop_counter import ByPath


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One path, with all operations that its modules do. FLOPs are of both directions; modules are timed forward."""

    path: str
    names: str
    predicted: int  # FLOPs
    counted: int  # FLOPs
    least: float  # seconds of the forward pass, by the roofline
    measured: float  # seconds of the forward pass


class Beside(msgspec.Struct, frozen=True):
    """A line for each path, and the total: of a training step with its backward pass, without the optimizer."""

    form: str
    load: Load
    machine: Machine
    lines: tuple[Line, ...]

    @property
    def equal(self) -> bool:
        return all(line.predicted == line.counted for line in self.lines)

    def to_json(self) -> str:
        return msgspec.json.encode(msgspec.to_builtins(self) | {"equal": self.equal}).decode()

    def __rich__(self) -> "RenderableType":
        from triform.costs.tables import beside_table

        return beside_table(self)


def beside(costs: Cost, *, flops: "ByPath", seconds: "ByPath", machine: Machine) -> Beside:
    """The cost of a pass, its FLOPs counted and its seconds measured under the same load."""
    rows = [row for row in costs.operations if row.stack != OPTIMIZER]
    lines = []
    for path in dict.fromkeys(row.path for row in rows if row.flops):
        here = [row for row in rows if row.path == path]
        lines.append(
            Line(
                path=path,
                names=", ".join(dict.fromkeys(row.name for row in here)),
                predicted=sum(row.flops for row in here),
                counted=int(flops.of(path)),
                least=sum(least_forward(row, costs.load, machine) for row in here),
                measured=seconds.of(path),
            )
        )
    whole = roofline(costs, machine=machine).rows
    total = Line(
        path="",
        names="total",
        predicted=costs.total.flops,
        counted=int(flops.total),
        least=sum(bound.seconds for bound in whole if bound.stack != OPTIMIZER),
        measured=seconds.total,
    )
    return Beside(costs.form, costs.load, machine, (*lines, total))


def least_forward(row: Operation, load: Load, machine: Machine) -> float:
    """A training step moves three times the bytes of its forward pass."""
    moved = row.moved / (3 if load.training else 1)
    return max(row.forward / machine.peak_flops, moved / machine.bandwidth)
