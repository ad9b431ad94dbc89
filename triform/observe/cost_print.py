"""The tables as a terminal shows them. Rounded for the eye; the exact numbers are in `to_json()`."""

from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from triform.observe.cost import Cost, Totals
from triform.observe.cost_beside import Beside
from triform.observe.cost_fit import Fit
from triform.observe.cost_limits import Roofline
from triform.observe.cost_load import Load
from triform.observe.cost_walk import LECTURE, Operation
from triform.observe.plot import short

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
    sizes = {"batch": load.batch, "length": load.length, "source": load.source, "new": load.new}
    said = ", ".join(f"{name} {size:,}" for name, size in sizes.items() if size)
    return f"{load.phase}, {form}, {load.dtype}: {said}"


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


def roofline_table(roofline: Roofline) -> RenderableType:
    machine = roofline.machine
    table = Table(
        title=f"at least {short(roofline.seconds, 's')} with {short(machine.peak_flops, 'FLOP/s')} and "
        f"{short(machine.bandwidth, 'B/s')} (as much of either at {machine.ridge:.3g} FLOPs/byte)",
        **PLAIN,
    )
    table.add_column("operation")
    table.add_column("least time", justify="right")
    table.add_column("share", justify="right")
    table.add_column("limited by")
    for row in roofline.rows:
        share = f"{row.seconds / roofline.seconds:.1%}"
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
    table = Table(title="predicted | counted | measured", **PLAIN)
    table.add_column("module path", overflow="fold")
    for name in ("predicted FLOPs", "counted FLOPs", "least time", "measured", "of the limit"):
        table.add_column(name, justify="right")
    for line in beside.lines:
        same = "" if line.predicted == line.counted else "bold red"
        of_limit = f"{line.least / line.measured:.0%}" if line.measured else "–"
        counted = Text(f"{line.counted:,}", style=same)
        times = (short(line.least, "s"), short(line.measured, "s"), of_limit)
        table.add_row(lines(line.names, line.path), f"{line.predicted:,}", counted, *times)
    return table
