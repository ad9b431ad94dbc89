"""Costs as pictures: where the FLOPs go, where n² overtakes d², and the roof that a machine puts over both."""

from collections.abc import Sequence

from triform.charts import Axis, Figure, Mark, Series, bars, lines
from triform.costs.machine import Machine
from triform.costs.operations import CROSS_SCORES, SCORES
from triform.costs.predict import Cost, cost
from triform.costs.roofline import crossovers
from triform.costs.stack_rows import Operation
from triform.spec import ModelSpec, replace


def shares(costs: Cost) -> Figure:
    """FLOPs of each operation."""
    flops = {name(row): float(row.flops) for row in costs.operations if row.flops}
    return bars(flops, title=f"FLOPs: {said(costs)}", unit="FLOP")


def name(row: Operation) -> str:
    return row.stack if row.name == "head" else f"{row.stack}: {row.name}"


def crossing(spec: ModelSpec) -> Figure:
    """FLOPs of one text in the last stack: matrices grow with n, scores with n²; plain layers meet at n = 6d."""
    stack, found = list(spec.stacks)[-1], crossovers(spec)[-1]
    lengths = [round(found.n * 2.0**power) for power in range(-5, 4)]
    free = replace(spec, context=lengths[-1])
    matrices, scores = [], []
    for n in lengths:
        rows = cost(free, phase="reading", length=n, source=n if spec.form == "encoder-decoder" else None).operations
        quadratic = sum(row.flops for row in rows if row.stack == stack and row.name in SCORES + CROSS_SCORES)
        matrices.append((n, sum(row.flops for row in rows if row.stack == stack) - quadratic))
        scores.append((n, quadratic))
    return lines(
        [Series("matrices: n·d²", matrices), Series("scores and their use: n²·d", scores)],
        title=f"{stack}: n² overtakes d² at n = {found.n:,.0f} = {found.widths:.3g}·d",
        x=Axis("positions n", log=True),
        y=Axis("FLOPs", log=True),
        marks=[Mark(found.n, f"n = {found.widths:.3g}·d"), Mark(spec.width, "n = d")],
    )


def roof(costs: Sequence[Cost], *, machine: Machine) -> Figure:
    """FLOP/s that each operation may reach, over its FLOPs a byte: a slope while reading limits, then flat.

    The points of one phase are told apart by what they do, those of several by their phase.
    """
    points: dict[str, list[tuple[float, float]]] = {}
    for one in costs:
        for row in one.operations:
            if row.flops:
                name = kind(row) if len(costs) == 1 else one.load.phase
                reached = min(machine.peak_flops, row.intensity * machine.bandwidth)
                points.setdefault(name, []).append((row.intensity, reached))
    found = [intensity for some in points.values() for intensity, _ in some]
    low, high = min(machine.ridge / 4, *found), max(4 * machine.ridge, *found)
    edge = [(low, low * machine.bandwidth), (machine.ridge, machine.peak_flops), (high, machine.peak_flops)]
    operations = [Series(name, sorted(some), joined=False) for name, some in points.items()]
    return lines(
        [Series("the machine's roof", edge), *operations],
        title="the roof over each operation: " + (said(costs[0]) if len(costs) == 1 else "all phases"),
        x=Axis("FLOPs a byte", log=True),
        y=Axis("FLOP/s", log=True),
        marks=[Mark(machine.ridge, f"{machine.ridge:.3g} FLOPs a byte")],
    )


def kind(row: Operation) -> str:
    return "attention" if row.path.endswith("attend") else "head" if row.name == "head" else "matrices"


def said(costs: Cost) -> str:
    return f"{costs.load.phase}, batch {costs.load.batch:,}, {costs.load.told}"
