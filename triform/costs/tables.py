"""Cost tables for the terminal, rounded; the exact numbers are in `to_json()`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from triform.charts import format_number
from triform.costs.fit_memory import Fit
from triform.costs.machine import Machine
from triform.costs.overview import CostOverview
from triform.costs.predict import Cost, CostTotals
from triform.costs.roofline import Roofline, roofline
from triform.costs.stack_rows import LECTURE, Operation
from triform.costs.workload import Workload
from triform.hints import Hint

if TYPE_CHECKING:  # they import torch
    from triform.costs.measure import MeasuredCost
    from triform.costs.time_growth import TimeGrowths

PLAIN: dict[str, Any] = {
    "title_justify": "left",
    "box": box.SIMPLE_HEAD,
    "pad_edge": False,
    "padding": (0, 1),
    "collapse_padding": True,
}
LEGEND = (
    "b batch · n positions · m positions of the source · d width · h heads · g key/value heads · k head width · "
    "f feed-forward width · L layers · V vocabulary · c tokens decoded one by one · s positions each of them attends "
    "to on average; h·k = d in plain models. FLOPs are those of matrix products, masked scores included; the lecture "
    "writes m for the heads h."
)


def make_cost_table(cost: Cost) -> RenderableType:
    """One phase, operation by operation."""
    table = Table(title=describe_load(cost.form, cost.load), **PLAIN)
    for name in ("operation", "lecture", "forward FLOPs"):
        table.add_column(name, overflow="fold")
    for name in ("FLOPs", "bytes", "FLOPs/B"):
        table.add_column(name, justify="right")
    for stack, sums in cost.stacks.items():
        rows = [row for row in cost.operations if row.stack == stack]
        for row in rows:
            table.add_row(
                two_lines(row.name, row.path),
                format_orders(row.lecture, row.lecture_io),
                row.formula,
                *format_numbers(row),
            )
        table.add_section()
        if len(rows) > 1:
            table.add_row(Text(f"total of the {stack}", style="bold"), "", "", *format_numbers(sums), end_section=True)
    table.add_row(Text("total", style="bold"), format_total_order(cost), "", *format_numbers(cost.total))
    return Group(table, describe_memory(cost), Text(LEGEND, style="dim"))


def describe_load(form: str, load: Workload) -> str:
    return f"{load.phase}, {form}, {describe_precision(load)}, batch {load.batch:,}: {load.description}"


def describe_precision(load: Workload) -> str:
    return load.dtype if load.weights == "float32" else f"{load.dtype} with {load.weights} weights"


def format_orders(flops: str, moved: str) -> Text:
    return two_lines(flops, moved and f"IO {moved}")


def format_total_order(cost: Cost) -> Text:
    """The lecture's O() of the whole pass."""
    if cost.load.phase == "step":
        return format_orders(LECTURE["total"].step, LECTURE["total"].step_io)
    whole = LECTURE["total of a pair" if cost.form == "encoder-decoder" else "total"]
    return format_orders(whole.whole, whole.whole_io)


def two_lines(first: str, second: str) -> Text:
    return Text.assemble(first, "\n", (second, "dim")) if second else Text(first)


def format_numbers(row: Operation | CostTotals) -> tuple[RenderableType, ...]:
    """FLOPs with the backward part, bytes moved with those saved for backward, and FLOPs per byte."""
    moved = two_lines(format_number(row.moved, "B"), f"saves {format_number(row.kept, 'B')}" if row.kept else "")
    if not row.flops:
        return "–", moved, "–"
    backward = f"backward {format_number(row.backward)}" if row.backward else ""
    return two_lines(format_number(row.flops), backward), moved, f"{row.intensity:.3g}"


def describe_memory(cost: Cost) -> Text:
    """The parts of the memory in one line."""
    sizes = {
        "weights": cost.memory.weights,
        "gradients": cost.memory.gradients,
        "optimizer": cost.memory.optimizer,
        "saved for backward": cost.memory.kept,
        "temporary (estimate)": cost.memory.passing,
        "KV cache": cost.memory.cache,
        "cross KV": cost.memory.cross,
    }
    parts = " + ".join(f"{name} {format_number(size, 'B')}" for name, size in sizes.items() if size)
    useful = f" · useful FLOPs {format_number(cost.total.useful)}" if cost.total.useful != cost.total.flops else ""
    return Text(f"{cost.parameters:,} parameters · memory {format_number(cost.memory.total, 'B')} = {parts}{useful}")


# --- all phases -----------------------------------------------------------------------------------------------------


def make_overview_table(overview: CostOverview) -> RenderableType:
    """One phase operation by operation, or one row per phase; then the limits."""
    first = overview.costs[0]
    head = Text.assemble((overview.model, "bold"), f": {first.form}, {first.parameters:,} parameters")
    if len(overview.costs) > 1:
        return Group(head, make_phases_table(overview), *describe_limits(overview))
    limits = [] if overview.machine is None else [make_roofline_table(roofline(first, machine=overview.machine))]
    return Group(head, make_cost_table(first), *limits, *describe_limits(overview))


def make_phases_table(overview: CostOverview) -> RenderableType:
    """All phases, one per row."""
    load = overview.costs[0].load
    table = Table(title=f"{describe_precision(load)}, batch {load.batch:,}", **PLAIN)
    table.add_column("phase")
    for name in ("FLOPs", "bytes moved", "FLOPs/B", "memory", "KV cache"):
        table.add_column(name, justify="right")
    if overview.machine is not None:
        table.add_column("min time", justify="right")
    for cost in overview.costs:
        memory, least = cost.memory, overview.min_seconds(cost)
        table.add_row(
            two_lines(cost.load.phase, cost.load.description),
            format_number(cost.total.flops),
            format_number(cost.total.moved, "B"),
            f"{cost.total.intensity:.3g}",
            format_number(memory.total, "B"),
            format_number(memory.cache + memory.cross, "B") if cost.load.cached else "–",
            *(() if least is None else (format_number(least, "s"),)),
        )
    hint = f"for every operation and its formula: --phase {overview.costs[-2].load.phase}"
    return Group(table, Text(hint, style="dim"))


def describe_limits(overview: CostOverview) -> Iterator[Text]:
    """Where n² overtakes d², and the batch at which decoding becomes limited by compute."""
    for cross in overview.crossovers:
        yield Text(
            f"{cross.stack}: attention's n² overtakes the matrices' d² at n = {cross.n:,.0f} = {cross.widths:.3g}·d "
            f"(in plain layers at 6·d, not at d)"
        )
    if overview.machine is None:
        yield Text(f"for times, measure this machine once with `{Hint.MEASURE}`, or give --peak and --bandwidth")
        return
    yield describe_machine(overview.machine)
    if (turn := overview.turning) is not None:
        always = "at every batch, since each sequence reads its own cache" if turn.batch is None else ""
        until = always or f"up to batch {turn.batch:,.0f}, above by compute"
        yield Text(f"a decoding step at position {turn.length:,} is limited by bandwidth {until}")


def describe_machine(machine: Machine) -> Text:
    """Peak, bandwidth and ridge point of a machine in one line."""
    memory = f", {format_number(machine.memory, 'B')} memory" if machine.memory else ""
    return Text(
        f"machine: {format_number(machine.peak_flops, 'FLOP/s')} of matrix products, "
        f"{format_number(machine.bandwidth, 'B/s')} bandwidth{memory}; ridge at {machine.ridge:.3g} FLOPs/byte"
    )


def make_growth_table(growths: "TimeGrowths") -> RenderableType:
    """Measured times per number of positions, with the roofline's bound below."""
    table = Table(title="time over positions n: measured, and the roofline's lower bound below it", **PLAIN)
    table.add_column("n", justify="right")
    for growth in growths.each:
        table.add_column(growth.name, justify="right")
    by_size = [{point.positions: point for point in growth.points} for growth in growths.each]
    for size in sorted(set().union(*by_size)):
        points = [points.get(size) for points in by_size]
        cells = (
            two_lines(format_number(point.measured, "s"), format_number(point.least, "s")) if point else ""
            for point in points
        )
        table.add_row(f"{size:,}", *cells)
    table.add_section()
    table.add_row(
        "grows as", *(two_lines(f"n^{each.exponent:.2f}", f"n^{each.least_exponent:.2f}") for each in growths.each)
    )
    table.add_row("last three", *(f"n^{each.last:.2f}" for each in growths.each))
    return table


# --- limits ---------------------------------------------------------------------------------------------------------


def make_roofline_table(found: Roofline) -> RenderableType:
    """The roofline's bound of each operation."""
    machine = found.machine
    table = Table(
        title=f"roofline: at least {format_number(found.seconds, 's')} "
        f"with {format_number(machine.peak_flops, 'FLOP/s')} and {format_number(machine.bandwidth, 'B/s')} "
        f"(ridge at {machine.ridge:.3g} FLOPs/byte)",
        **PLAIN,
    )
    table.add_column("operation")
    table.add_column("min time", justify="right")
    table.add_column("share", justify="right")
    table.add_column("limited by")
    for row in found.rows:
        share = f"{row.seconds / found.seconds:.1%}"
        table.add_row(two_lines(f"{row.stack}: {row.name}", row.path), format_number(row.seconds, "s"), share, row.by)
    return table


def make_fit_table(fit: Fit) -> RenderableType:
    """What fits into a memory, per use and precision."""
    table = Table(title=f"what fits in {format_number(fit.memory, 'B')}", **PLAIN)
    for name in ("use", "precision"):
        table.add_column(name)
    for name in (
        "weights",
        f"needed for {fit.length:,} positions",
        f"max batch at {fit.length:,}",
        "max positions at batch 1",
    ):
        table.add_column(name, justify="right")
    for room in fit.rooms:
        most = f"{room.batch:,}" if room.batch else "none"
        longest = f"{room.length:,}" if room.length else "none"
        table.add_row(
            room.use, room.dtype, format_number(room.weights, "B"), format_number(room.needed, "B"), most, longest
        )
    return table


def make_measured_table(beside: "MeasuredCost") -> RenderableType:
    """Predicted, counted and measured side by side, per module."""
    table = Table(title=f"predicted | counted | measured: {describe_load(beside.form, beside.load)}", **PLAIN)
    table.add_column("module path", overflow="fold")
    for name in ("predicted FLOPs", "counted FLOPs", "min time", "measured", "of roofline"):
        table.add_column(name, justify="right")
    for line in beside.lines:
        style = "" if line.predicted == line.counted else "bold red"
        of_limit = f"{line.least / line.measured:.0%}" if line.measured else "–"
        counted = Text(f"{line.counted:,}", style=style)
        times = (format_number(line.least, "s"), format_number(line.measured, "s"), of_limit)
        table.add_row(two_lines(line.names, line.path), f"{line.predicted:,}", counted, *times)
    same = "equal" if beside.equal else "NOT equal"
    timed = (
        "; times per path are of the forward pass, the total includes the backward pass" if beside.load.training else ""
    )
    return Group(table, Text(f"predicted and counted FLOPs are {same}{timed}"), describe_machine(beside.machine))
