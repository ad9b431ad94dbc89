"""All costs of a model from its spec alone: every phase, where n² overtakes d², the roofline; as JSON and as charts.

Defines what "a context of n" means in each phase. Does not import torch.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from triform.charts import Curve, Figure, bars, draw, lines, stack_figures
from triform.costs.machine import Machine
from triform.costs.operations import CROSS_SCORES, SCORES
from triform.costs.predict import Cost, cost
from triform.costs.roofline import Crossover, TurningBatch, crossovers, find_turning_batch, roofline
from triform.costs.stack_rows import Operation
from triform.costs.workload import DEFAULT_NEW_TOKENS, Phase
from triform.errors import InputError
from triform.spec import ModelSpec, replace
from triform.weight_kinds import WeightKind

if TYPE_CHECKING:
    from rich.console import RenderableType


class CostOverview(msgspec.Struct, frozen=True, kw_only=True):
    """One phase operation by operation, or all phases side by side; times only if a machine is known."""

    model: str
    spec: ModelSpec
    costs: tuple[Cost, ...]
    crossovers: tuple[Crossover, ...]
    machine: Machine | None
    turning: TurningBatch | None  # only for a decoder and a known machine

    def min_seconds(self, costs: Cost) -> float | None:
        """The roofline's lower bound, in seconds."""
        return None if self.machine is None else roofline(costs, machine=self.machine).seconds

    def to_json(self) -> str:
        first = self.costs[0]
        table = {
            "model": self.model,
            "form": first.form,
            "parameters": first.parameters,
            "machine": self.machine,
            "crossovers": self.crossovers,
            "turning": self.turning,
            "phases": {
                cost.load.phase: cost.to_builtins() | {"least_seconds": self.min_seconds(cost)} for cost in self.costs
            },
        }
        return msgspec.json.encode(table).decode()

    def __rich__(self) -> "RenderableType":
        from triform.costs.tables import make_overview_table

        return make_overview_table(self)

    def plot(self) -> Figure:
        """FLOPs per operation, the roofline if a machine is known, and where n² overtakes d²."""
        figures = [plot_flops(cost) for cost in self.costs]
        if self.machine is not None:
            single = [cost for cost in self.costs if cost.load.phase != "generation"]  # it is a prefill and steps
            figures.append(plot_roofline(single or self.costs, machine=self.machine))
        return stack_figures([*figures, plot_crossover(self.spec)])


def make_overview(
    spec: ModelSpec,
    *,
    model: str,
    phase: Phase | None = None,
    machine: Machine | None = None,
    **sizes: Any,
) -> CostOverview:
    """`overview(named("llama-3-8b"), model="llama-3-8b", batch=4, context=8192, dtype="float16")`"""
    phases = [each for each in list_phases(spec) if each != "training" or sizes.get("weights", "float32") == "float32"]
    costs = tuple(cost_of_context(spec, phase=each, **sizes) for each in ([phase] if phase else phases))
    turning = None
    if machine is not None and spec.decoder is not None:
        step = cost_of_context(spec, phase="step", **sizes).load
        turning = TurningBatch(
            step.length, find_turning_batch(spec, machine=machine, length=step.length, dtype=step.dtype)
        )
    return CostOverview(
        model=model, spec=spec, costs=costs, crossovers=crossovers(spec), machine=machine, turning=turning
    )


def list_phases(spec: ModelSpec) -> tuple[Phase, ...]:
    """The phases of this form; a decoder's forward pass is its prefill."""
    return ("training", "reading") if spec.decoder is None else ("training", "prefill", "step", "generation")


def cost_of_context(
    spec: ModelSpec,
    *,
    phase: Phase,
    batch: int = 1,
    context: int | None = None,
    source: int | None = None,
    new: int | None = None,
    dtype: str = "float32",
    weights: WeightKind = "float32",
) -> Cost:
    """`context` is the final length of the text: in a generation, the prompt and the new tokens together.

    The source of an encoder-decoder has the same length unless `source` is set; its target starts with one token.
    """
    length, pair = context, spec.form == "encoder-decoder"
    if context is not None and pair:
        source = context if source is None else source
        length = 1 if phase in ("prefill", "generation") else context
    if context is not None and phase == "generation":
        new = min(DEFAULT_NEW_TOKENS, max(context // 2, 1)) if new is None else new
        length = 1 if pair else context - new + 1
        if length < 1:
            raise InputError(f"new={new} tokens do not fit into a context of {context}; use at most {context}")
    return cost(
        spec,
        phase=phase,
        batch=batch,
        length=length,
        source=source,
        new=new if phase == "generation" else None,
        dtype=dtype,
        weights=weights,
    )


# --- charts ---------------------------------------------------------------------------------------------------------


def plot_flops(costs: Cost) -> Figure:
    """FLOPs per operation."""
    rows = [row for row in costs.operations if row.flops]
    flops = {row.stack if row.name == "head" else f"{row.stack}: {row.name}": row.flops for row in rows}
    return draw(bars(f"FLOPs: {describe(costs)}", flops, unit="FLOP"))


def plot_crossover(spec: ModelSpec) -> Figure:
    """FLOPs of one text in the last stack: matrices grow with n, scores with n²; plain layers cross at n = 6d."""
    stack, crossover = list(spec.stacks)[-1], crossovers(spec)[-1]
    lengths = [round(crossover.n * 2.0**power) for power in range(-5, 4)]
    unlimited = replace(spec, context=lengths[-1])
    matrices, scores = [], []
    for n in lengths:
        source = n if spec.form == "encoder-decoder" else None
        rows = [
            row for row in cost(unlimited, phase="reading", length=n, source=source).operations if row.stack == stack
        ]
        quadratic = sum(row.flops for row in rows if row.name in SCORES + CROSS_SCORES)
        matrices.append((n, sum(row.flops for row in rows) - quadratic))
        scores.append((n, quadratic))
    return draw(
        lines(
            f"{stack}: n² overtakes d² at n = {crossover.n:,.0f} = {crossover.widths:.3g}·d",
            "positions n",
            "FLOPs",
            [Curve("matrices: n·d²", tuple(matrices)), Curve("scores and weighted values: n²·d", tuple(scores))],
            log="xy",
            marks=[(crossover.n, f"n = {crossover.widths:.3g}·d"), (spec.width, "n = d")],
        )
    )


def plot_roofline(costs: Sequence[Cost], *, machine: Machine) -> Figure:
    """Attainable FLOP/s of each operation over its FLOPs per byte: first limited by bandwidth, then by the peak.

    Points are grouped by kind of operation for one phase, by phase for several.
    """
    points: dict[str, list[tuple[float, float]]] = {}
    for one in costs:
        for row in one.operations:
            if row.flops:
                name = name_group(row) if len(costs) == 1 else one.load.phase
                attainable = min(machine.peak_flops, row.intensity * machine.bandwidth)
                points.setdefault(name, []).append((row.intensity, attainable))
    intensities = [intensity for group in points.values() for intensity, _ in group]
    low, high = min(machine.ridge / 4, *intensities), max(4 * machine.ridge, *intensities)
    edge = (low, low * machine.bandwidth), (machine.ridge, machine.peak_flops), (high, machine.peak_flops)
    operations = [Curve(name, tuple(sorted(group)), joined=False) for name, group in points.items()]
    return draw(
        lines(
            "roofline: " + (describe(costs[0]) if len(costs) == 1 else "all phases"),
            "FLOPs per byte",
            "FLOP/s",
            [Curve("the machine's roofline", edge), *operations],
            log="xy",
            marks=[(machine.ridge, f"{machine.ridge:.3g} FLOPs per byte")],
        )
    )


def name_group(row: Operation) -> str:
    return "attention" if row.path.endswith("attend") else "head" if row.name == "head" else "matrices"


def describe(costs: Cost) -> str:
    return f"{costs.load.phase}, batch {costs.load.batch:,}, {costs.load.description}"
