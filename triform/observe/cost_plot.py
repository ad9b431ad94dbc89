"""Costs as pictures: where the FLOPs go, where n² overtakes d², and the roof that a machine puts over both."""

from triform.observe.cost import Cost, cost
from triform.observe.cost_limits import crossovers
from triform.observe.cost_rows import CROSS_SCORES, SCORES
from triform.observe.machine import Machine
from triform.observe.plot import Axis, Figure, Mark, Series, bars, lines
from triform.spec import ModelSpec, replace


def shares(costs: Cost) -> Figure:
    """FLOPs of each operation."""
    flops = {f"{row.stack}: {row.name}": float(row.flops) for row in costs.operations if row.flops}
    return bars(flops, title=f"FLOPs of a {costs.load.phase}", unit="FLOP")


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


def roof(costs: Cost, *, machine: Machine) -> Figure:
    """FLOP/s that each operation may reach, over its FLOPs a byte: a slope while reading limits, then flat."""
    kinds: dict[str, list[tuple[float, float]]] = {"matrices": [], "attention": [], "head": []}
    for row in costs.operations:
        if row.flops:
            kind = "attention" if row.path.endswith("attend") else "head" if row.name == "head" else "matrices"
            kinds[kind].append((row.intensity, min(machine.peak_flops, row.intensity * machine.bandwidth)))
    found = [intensity for points in kinds.values() for intensity, _ in points]
    low, high = min(found), max(4 * machine.ridge, *found)
    edge = [(low, low * machine.bandwidth), (machine.ridge, machine.peak_flops), (high, machine.peak_flops)]
    operations = [Series(kind, sorted(points), joined=False) for kind, points in kinds.items() if points]
    return lines(
        [Series("the machine's roof", edge), *operations],
        title=f"roofline of a {costs.load.phase}, batch {costs.load.batch}",
        x=Axis("FLOPs a byte", log=True),
        y=Axis("FLOP/s", log=True),
        marks=[Mark(machine.ridge, f"{machine.ridge:.3g} FLOPs a byte")],
    )
