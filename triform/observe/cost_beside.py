"""Predicted beside counted beside measured, module path by module path.

Takes what `count.py` found in a real pass; needs no torch itself.
"""

from typing import TYPE_CHECKING

import msgspec

from triform.observe.cost import Cost
from triform.observe.cost_limits import roofline
from triform.observe.machine import Machine

if TYPE_CHECKING:
    from rich.console import RenderableType

    from triform.observe.count import ByPath


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One path, with all operations that its modules do."""

    path: str
    names: str
    predicted: int  # FLOPs
    counted: int  # FLOPs
    least: float  # seconds, by the roofline of the forward pass
    measured: float  # seconds of the forward pass


class Beside(msgspec.Struct, frozen=True):
    lines: tuple[Line, ...]

    @property
    def equal(self) -> bool:
        return all(line.predicted == line.counted for line in self.lines)

    def to_json(self) -> str:
        return msgspec.json.encode({"lines": self.lines, "equal": self.equal}).decode()

    def __rich__(self) -> "RenderableType":
        from triform.observe.cost_print import beside_table

        return beside_table(self)


def beside(costs: Cost, *, flops: "ByPath", seconds: "ByPath", machine: Machine) -> Beside:
    """The cost of a pass, its FLOPs counted and its seconds measured in the same pass of the same load."""
    least = roofline(costs, machine=machine).rows
    lines = []
    for path in dict.fromkeys(row.path for row in costs.operations if row.flops):
        rows = [row for row in costs.operations if row.path == path]
        lines.append(
            Line(
                path=path,
                names=", ".join(dict.fromkeys(row.name for row in rows)),
                predicted=sum(row.flops for row in rows),
                counted=int(flops.of(path)),
                least=sum(bound.seconds for bound in least if bound.path == path),
                measured=seconds.of(path),
            )
        )
    total = Line(
        path="",
        names="total",
        predicted=costs.total.flops,
        counted=int(flops.total),
        least=sum(bound.seconds for bound in least),
        measured=seconds.total,
    )
    return Beside((*lines, total))
