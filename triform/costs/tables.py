"""The tables as a terminal shows them. Rounded for the eye; the exact numbers are in `to_json()`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from triform.charts import short
from triform.costs.compare import Beside
from triform.costs.fit_memory import Fit
from triform.costs.machine import Machine
from triform.costs.overview import Overview
from triform.costs.predict import Cost, Totals
from triform.costs.roofline import Roofline, roofline
from triform.costs.stack_rows import LECTURE, Operation
from triform.costs.workload import Load
from triform.hints import Hint

if TYPE_CHECKING:
    from triform.costs.scaling import Growths

PLAIN: dict[str, Any] = {
    "title_justify": "left",
    "box": box.SIMPLE_HEAD,
    "pad_edge": False,
    "padding": (0, 1),
    "collapse_padding": True,
}
LEGEND = (
    "b batch · n positions · m positions of the source · d width · h heads · g key/value heads · k head width · "
    "f feed-forward width · L layers · V vocabulary · c tokens written one by one · s positions each of them sees on "
    "average; h·k = d in plain models. FLOPs are those of matrix products, masked scores included; the lecture's m "
    "heads are h here."
)


def cost_table(cost: Cost) -> RenderableType:
    table = Table(title=title(cost.form, cost.load), **PLAIN)
    for name in ("operation", "lecture", "exact (forward)"):
        table.add_column(name, overflow="fold")
    for name in ("FLOPs", "bytes", "FLOPs/B"):
        table.add_column(name, justify="right")
    for stack, sums in cost.stacks.items():
        rows = [row for row in cost.operations if row.stack == stack]
        for row in rows:
            table.add_row(lines(row.name, row.path), orders(row.lecture, row.lecture_io), row.formula, *numbers(row))
        table.add_section()
        if len(rows) > 1:
            table.add_row(Text(f"all of the {stack}", style="bold"), "", "", *numbers(sums), end_section=True)
    table.add_row(Text("total", style="bold"), total_order(cost), "", *numbers(cost.total))
    return Group(table, memory_line(cost), Text(LEGEND, style="dim"))


def title(form: str, load: Load) -> str:
    return f"{load.phase}, {form}, {load.dtype}, batch {load.batch:,}: {load.told}"


def orders(flops: str, moved: str) -> Text:
    return lines(flops, moved and f"IO {moved}")


def total_order(cost: Cost) -> Text:
    if cost.load.phase == "step":
        return orders(LECTURE["total"].step, LECTURE["total"].step_io)
    whole = LECTURE["total of a pair" if cost.form == "encoder-decoder" else "total"]
    return orders(whole.whole, whole.whole_io)


def lines(first: str, second: str) -> Text:
    return Text.assemble(first, "\n", (second, "dim")) if second else Text(first)


def numbers(row: Operation | Totals) -> tuple[RenderableType, ...]:
    """FLOPs with their backward part, bytes with those kept, and how many FLOPs a byte."""
    if not row.flops:
        return "–", lines(short(row.moved, "B"), (row.kept and f"keeps {short(row.kept, 'B')}") or ""), "–"
    back = f"back {short(row.backward)}" if row.backward else ""
    kept = f"keeps {short(row.kept, 'B')}" if row.kept else ""
    return lines(short(row.flops), back), lines(short(row.moved, "B"), kept), f"{row.intensity:.3g}"


def memory_line(cost: Cost) -> Text:
    named = {
        "weights": cost.memory.weights,
        "gradients": cost.memory.gradients,
        "optimizer": cost.memory.optimizer,
        "kept for backward": cost.memory.kept,
        "passing (estimate)": cost.memory.passing,
        "KV cache": cost.memory.cache,
        "cross KV": cost.memory.cross,
    }
    parts = " + ".join(f"{name} {short(size, 'B')}" for name, size in named.items() if size)
    useful = f" · useful FLOPs {short(cost.total.useful)}" if cost.total.useful != cost.total.flops else ""
    return Text(f"{cost.parameters:,} parameters · memory {short(cost.memory.total, 'B')} = {parts}{useful}")


# --- all phases -----------------------------------------------------------------------------------------------------


def overview_table(overview: Overview) -> RenderableType:
    """One phase operation by operation, or a row for each phase; then where costs cross."""
    first = overview.costs[0]
    head = Text.assemble((overview.model, "bold"), f": {first.form}, {first.parameters:,} parameters")
    one = len(overview.costs) == 1
    body = cost_table(first) if one else phases_table(overview)
    said = [head, body, *limit_lines(overview)]
    if one and overview.machine is not None:
        said.insert(2, roofline_table(roofline(first, machine=overview.machine)))
    return Group(*said)


def phases_table(overview: Overview) -> RenderableType:
    load = overview.costs[0].load
    table = Table(title=f"{load.dtype}, batch {load.batch:,}", **PLAIN)
    table.add_column("phase")
    for name in ("FLOPs", "bytes moved", "FLOPs/B", "memory", "KV cache"):
        table.add_column(name, justify="right")
    if overview.machine is not None:
        table.add_column("least time", justify="right")
    for one in overview.costs:
        held, least = one.memory, overview.least(one)
        table.add_row(
            lines(one.load.phase, one.load.told),
            short(one.total.flops),
            short(one.total.moved, "B"),
            f"{one.total.intensity:.3g}",
            short(held.total, "B"),
            short(held.cache + held.cross, "B") if one.load.cached else "–",
            *(() if least is None else (short(least, "s"),)),
        )
    hint = f"each operation with its formula: --phase {overview.costs[-2].load.phase}"
    return Group(table, Text(hint, style="dim"))


def limit_lines(overview: Overview) -> Iterator[Text]:
    """Where n² overtakes d², and where decoding turns from reading to computing."""
    for one in overview.crossovers:
        yield Text(
            f"{one.stack}: attention's n² overtakes the matrices' d² at n = {one.n:,.0f} = {one.widths:.3g}·d "
            f"(in plain layers at 6·d, not at d)"
        )
    if overview.machine is None:
        yield Text(f"no times: measure this machine once with `{Hint.MEASURE}`, or give --peak and --bandwidth")
        return
    yield machine_line(overview.machine)
    if (turn := overview.turning) is not None:
        whole = "at every batch, each row reading its own cache" if turn.batch is None else ""
        until = whole or f"up to batch {turn.batch:,.0f}, from there on by computing"
        yield Text(f"one token after {turn.length:,} positions is limited by bandwidth {until}")


def machine_line(machine: Machine) -> Text:
    memory = f", {short(machine.memory, 'B')} of memory" if machine.memory else ""
    return Text(
        f"machine: {short(machine.peak_flops, 'FLOP/s')} in matrix products, {short(machine.bandwidth, 'B/s')} read"
        f"{memory}; equally long at {machine.ridge:.3g} FLOPs/byte"
    )


def growth_table(growths: "Growths") -> RenderableType:
    table = Table(title="time over positions n, measured (least by the roofline)", **PLAIN)
    table.add_column("n", justify="right")
    for one in growths.each:
        table.add_column(one.name, justify="right")
    sizes = sorted({point.positions for one in growths.each for point in one.points})
    for size in sizes:
        found = [next((point for point in one.points if point.positions == size), None) for one in growths.each]
        table.add_row(
            f"{size:,}", *(lines(short(at.measured, "s"), short(at.least, "s")) if at else "" for at in found)
        )
    table.add_section()
    table.add_row("grows as", *(lines(f"n^{one.exponent:.2f}", f"n^{one.least_exponent:.2f}") for one in growths.each))
    table.add_row("last three", *(f"n^{one.last:.2f}" for one in growths.each))
    return table


# --- limits ---------------------------------------------------------------------------------------------------------


def roofline_table(found: Roofline) -> RenderableType:
    machine = found.machine
    table = Table(
        title=f"at least {short(found.seconds, 's')} with {short(machine.peak_flops, 'FLOP/s')} and "
        f"{short(machine.bandwidth, 'B/s')} (as much of either at {machine.ridge:.3g} FLOPs/byte)",
        **PLAIN,
    )
    table.add_column("operation")
    table.add_column("least time", justify="right")
    table.add_column("share", justify="right")
    table.add_column("limited by")
    for row in found.rows:
        share = f"{row.seconds / found.seconds:.1%}"
        table.add_row(lines(f"{row.stack}: {row.name}", row.path), short(row.seconds, "s"), share, row.by)
    return table


def fit_table(fit: Fit) -> RenderableType:
    table = Table(title=f"what fits into {short(fit.memory, 'B')}", **PLAIN)
    for name in ("use", "precision"):
        table.add_column(name)
    for name in ("weights", f"1 × {fit.length:,} positions need", f"rows of {fit.length:,}", "positions of one row"):
        table.add_column(name, justify="right")
    for room in fit.rooms:
        most = f"{room.batch:,}" if room.batch else "none"
        longest = f"{room.length:,}" if room.length else "none"
        table.add_row(room.use, room.dtype, short(room.weights, "B"), short(room.needed, "B"), most, longest)
    return table


def beside_table(beside: Beside) -> RenderableType:
    table = Table(title=f"predicted | counted | measured: {title(beside.form, beside.load)}", **PLAIN)
    table.add_column("module path", overflow="fold")
    for name in ("predicted FLOPs", "counted FLOPs", "least time", "measured", "of the limit"):
        table.add_column(name, justify="right")
    for line in beside.lines:
        same = "" if line.predicted == line.counted else "bold red"
        of_limit = f"{line.least / line.measured:.0%}" if line.measured else "–"
        counted = Text(f"{line.counted:,}", style=same)
        times = (short(line.least, "s"), short(line.measured, "s"), of_limit)
        table.add_row(lines(line.names, line.path), f"{line.predicted:,}", counted, *times)
    same = "equal" if beside.equal else "NOT equal"
    timed = "; times by path are of the forward pass, the total has both" if beside.load.training else ""
    return Group(table, Text(f"predicted and counted FLOPs are {same}{timed}"), machine_line(beside.machine))
