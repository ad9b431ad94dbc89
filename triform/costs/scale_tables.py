"""A plan for many devices as tables for the terminal."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from triform.charts import format_number
from triform.costs.scale_plan import USED_SHARE, ReplicaPlan, ScalePlan
from triform.costs.tables import PLAIN


def make_plan_table(plan: ScalePlan) -> RenderableType:
    """Memory, messages and time side by side."""
    parts: list[RenderableType] = [make_training_table(plan), make_traffic_table(plan)] if plan.training else []
    if plan.replicas is not None:
        parts.append(describe_replicas(plan.replicas))
    missing = [
        *(["--peak and --bandwidth of a device"] if plan.machine is None else []),
        *(["--interconnect"] if plan.connection is None and plan.processes > 1 else []),
    ]
    if missing:
        parts.append(Text(f"for times, give {' and '.join(missing)}", style="dim"))
    parts.append(Text("times are lower bounds: nothing is computed while something is sent", style="dim"))
    return Group(*parts)


def make_training_table(plan: ScalePlan) -> Table:
    """A column per way to train."""
    table = Table(
        title=f"{plan.model}: a step of {plan.processes:,} processes on {plan.devices:,} devices, {plan.batch:,} × "
        f"{plan.length:,} positions each",
        **PLAIN,
    )
    table.add_column("training")
    for each in plan.training:
        table.add_column(each.way, justify="right")
    for name in ("weights", "gradients", "optimizer", "activations", "exchange"):
        table.add_row(name, *(format_number(getattr(each, name), "B") for each in plan.training))
    table.add_row("memory of a process", *(format_number(each.memory, "B") for each in plan.training))
    table.add_row("memory of a device", *(format_number(each.device_memory, "B") for each in plan.training))
    table.add_row("computing", *(format_seconds(each.computing) for each in plan.training))
    table.add_row("sending", *(format_seconds(each.sending) for each in plan.training))
    rates = (each.tokens_per_second for each in plan.training)
    table.add_row("tokens per second", *("–" if rate is None else f"{rate:,.0f}" for rate in rates))
    return table


def format_seconds(seconds: float | None) -> str:
    return "–" if seconds is None else format_number(seconds, "s")


def make_traffic_table(plan: ScalePlan) -> Table:
    """A row per collective."""
    table = Table(title="sent by each process in a step", **PLAIN)
    table.add_column("training")
    table.add_column("collective")
    for name in ("messages", "bytes"):
        table.add_column(name, justify="right")
    for each in plan.training:
        for one in each.traffic:
            table.add_row(each.way, one.name, f"{one.messages:,}", f"{one.sent:,}")
    return table


def describe_replicas(found: ReplicaPlan) -> Text:
    """One sentence."""
    return Text(
        f"{found.requests_per_second:,g} requests per second: {found.replicas:,} "
        f"{'replica' if found.replicas == 1 else 'replicas'} of "
        f"{format_number(found.memory, 'B')}, each up to {found.per_replica:,.3g} requests per second by the roofline, "
        f"loaded to {USED_SHARE:.0%}; a batch takes {format_number(found.seconds, 's')}"
    )
