"""What a soak has found: the verdict, and the table."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table
from soak_server import Counts

MiB = 2**20
SLOPE = 1.0  # MiB per hour that memory may grow
JUDGED = 3600.0  # seconds after the warm-up from which on the slope says something
GROWTH = 64 * MiB  # that a shorter run may grow in all, beside a twentieth
BUCKET = 60.0  # seconds, of each of which the least memory counts: what a fault takes for a while is no leak
MORE = {"files": 4, "threads": 4, "children": 1}  # than at the beginning there may be, with no client connected


class Sample(NamedTuple):
    seconds: float
    rss: int


def floors(samples: Sequence[Sample], *, bucket: float) -> list[Sample]:
    """The least of each bucket of time, at the bucket's middle."""
    least: dict[int, int] = {}
    for sample in samples:
        at = int(sample.seconds // bucket)
        least[at] = min(least.get(at, sample.rss), sample.rss)
    return [Sample((at + 0.5) * bucket, rss) for at, rss in sorted(least.items())]


def slope_of(samples: Sequence[Sample]) -> float | None:
    """MiB per hour of the line with the least squares; None where there are fewer than three points."""
    if len(samples) < 3:
        return None
    middle = sum(sample.seconds for sample in samples) / len(samples)
    mean = sum(sample.rss for sample in samples) / len(samples)
    turned = sum((sample.seconds - middle) * (sample.rss - mean) for sample in samples)
    spread = sum((sample.seconds - middle) ** 2 for sample in samples)
    return turned / spread * 3600 / MiB


class Report(msgspec.Struct, kw_only=True):
    """`failures` is empty where everything held."""

    seed: int
    seconds: float
    requests: dict[str, int]
    refused: dict[str, int]
    reconnects: int
    faults: dict[str, int]
    wrong: int
    hangs: int
    examples: list[str]
    slope: float | None  # MiB per hour
    slope_seconds: float  # it was measured over
    rss_start: int
    rss_end: int
    counts_start: Counts | None
    counts_end: Counts | None
    log_events: dict[str, int]
    log_lines: list[str]  # the first ones of each event that is not of every day
    exit_code: int | None
    failures: list[str] = []

    @property
    def slope_is_judged(self) -> bool:
        return self.slope_seconds >= JUDGED

    def judge(self) -> None:
        found = [f"{self.wrong} wrong answers"] if self.wrong else []
        found += [f"{self.hangs} hangs"] if self.hangs else []
        if self.slope_is_judged and self.slope is not None and self.slope > SLOPE:
            found.append(f"memory grows by {self.slope:.2f} MiB per hour; at most {SLOPE:g} are allowed")
        if not self.slope_is_judged and self.rss_end > 1.05 * self.rss_start + GROWTH:
            found.append(f"memory grew from {self.rss_start / MiB:.0f} to {self.rss_end / MiB:.0f} MiB")
        if self.counts_start is not None and self.counts_end is not None:
            for name, more in MORE.items():
                before, after = getattr(self.counts_start, name), getattr(self.counts_end, name)
                if after > before + more:
                    found.append(f"{name} were {before} and are {after}, with no client connected")
        if self.exit_code != 0:
            found.append(f"the server ended with {self.exit_code}" if self.exit_code else "the server did not stop")
        self.failures += found

    def as_json(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self)).decode()


def show(report: Report) -> None:
    console = Console()
    requests = Table("route", "requests", title=f"{report.seconds / 60:.1f} minutes, seed {report.seed}")
    for route, count in sorted(report.requests.items()):
        requests.add_row(route, f"{count:,}")
    faults = Table("fault", "times")
    for fault, count in sorted(report.faults.items()):
        faults.add_row(fault, f"{count:,}")
    console.print(requests)
    console.print(faults)
    console.print(results(report))
    for example in report.examples:
        console.print(example, markup=False, highlight=False)
    for failure in report.failures:
        console.print(f"FAILED: {failure}", markup=False, highlight=False)
    if not report.failures:
        console.print("everything held")


def results(report: Report) -> Table:
    table = Table("what", "result")
    rows: list[tuple[str, Any]] = [
        ("requests", f"{sum(report.requests.values()):,}"),
        ("wrong answers", report.wrong),
        ("hangs", report.hangs),
        ("refused as allowed", ", ".join(f"{code} {count:,}" for code, count in report.refused.items()) or "none"),
        ("connections made again", report.reconnects),
        ("memory", f"{report.rss_start / MiB:.0f} → {report.rss_end / MiB:.0f} MiB"),
        ("memory slope", slope_shown(report)),
    ]
    if report.counts_start is not None and report.counts_end is not None:
        pairs = zip(Counts._fields[1:], report.counts_start[1:], report.counts_end[1:], strict=True)
        rows += [(name, f"{before} → {after}") for name, before, after in pairs]
    rows.append(("log", ", ".join(f"{event} {count:,}" for event, count in sorted(report.log_events.items()))))
    for name, value in rows:
        table.add_row(name, str(value))
    return table


def slope_shown(report: Report) -> str:
    if report.slope is None:
        return "not measured: the run was too short"
    said = f"{report.slope:+.2f} MiB per hour over {report.slope_seconds / 60:.0f} minutes"
    return said if report.slope_is_judged else f"{said} (means little below {JUDGED / 60:.0f} minutes, not judged)"
