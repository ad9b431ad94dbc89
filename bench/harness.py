"""The harness: contenders interleaved round by round, medians with their spread, ratios, and the machine's own limits.

Figures of different runs are never compared: a table is one run.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


class Contender:
    """A process that runs one thing whenever it is told to."""

    def __init__(self, name: str, where: str, *, environment: Mapping[str, str] | None = None, **settings: Any) -> None:
        self.name = name
        command = [sys.executable, "-m", "bench.worker", where, json.dumps(settings)]
        env = os.environ | (environment or {})
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.setup = self._line()
        self.seconds: list[float] = []
        self.peak = 0
        self.note: Any = None

    def go(self) -> None:
        self.begin()
        self.end()

    def begin(self) -> None:
        self._pipe(self.process.stdin).write("go\n")
        self._pipe(self.process.stdin).flush()

    def end(self) -> None:
        answer = self._line()
        self.seconds.append(answer["seconds"])
        self.peak, self.note = answer["peak"], answer["note"]

    def close(self) -> None:
        self._pipe(self.process.stdin).close()
        self.process.wait()

    def _line(self) -> dict[str, Any]:
        line = self._pipe(self.process.stdout).readline()
        if not line:
            raise SystemExit(f"the contender {self.name!r} died; its error is above")
        return json.loads(line)

    @staticmethod
    def _pipe(pipe: Any) -> Any:
        return pipe


class Result(NamedTuple):
    name: str
    median: float
    best: float
    spread: float  # half the distance between the quartiles, relative to the median
    peak: int
    note: Any


def race(contenders: Sequence[Contender], *, rounds: int) -> list[Result]:
    """Each round runs everyone once, in turn, so that the machine's moods meet all alike."""
    for _ in range(rounds):
        for contender in contenders:
            contender.go()
    for contender in contenders:
        contender.close()
    return [result(contender) for contender in contenders]


def result(contender: Contender) -> Result:
    seconds = sorted(contender.seconds)
    quarter = max(1, len(seconds) // 4)
    middle = statistics.median(seconds)
    spread = (seconds[-quarter] - seconds[quarter - 1]) / 2 / middle
    return Result(contender.name, middle, seconds[0], spread, contender.peak, contender.note)


class Row(NamedTuple):
    """One line of a bench: ours against a peer; what is left out is not told."""

    what: str
    ours: Result
    peer: Result
    aim: float | None = None  # the ratio we want at least
    work: float = 0.0  # floating-point operations of our run
    moved: float = 0.0  # bytes that our run must read
    moved_aim: float | None = None  # the share of the reading limit we want at least
    tokens: int = 0  # that each run writes
    beside: str = ""  # a number that belongs beside the peer's speed: the error of a quantised one
    memory_matters: bool = False
    memory_aim: float | None = None  # the most memory we want, as a share of the peer's
    by_best: bool = False  # the fastest rounds are compared, not the medians

    def seconds(self, one: Result) -> float:
        return one.best if self.by_best else one.median

    @property
    def ratio(self) -> float:
        return self.seconds(self.peer) / self.seconds(self.ours)


class Claim(NamedTuple):
    """A figure of ours alone, and the most that it should be."""

    what: str
    value: float
    most: float
    points: dict[str, float]  # what it was made from


class Limits(NamedTuple):
    flops: float
    bandwidth: float


def limits() -> Limits:
    """The machine's fp32 matrix product and memory reading, measured in this very run (best of several)."""
    product = Contender("product", "bench.limits:product")
    reading = Contender("reading", "bench.limits:reading")
    results = race([product, reading], rounds=9)
    return Limits(results[0].note / results[0].best, results[1].note / results[1].best)


def report(
    title: str, rows: Sequence[Row], machine: Limits, *, claims: Sequence[Claim] = (), keep: bool = True
) -> None:
    """A table on the screen and, unless it was only a try, JSON on disk."""
    cells = [row_cells(row, machine) for row in rows]
    shown = [name for name in (cells[0] if cells else ()) if any(one[name] for one in cells)]
    table = Table(title=title)
    for name in shown:
        table.add_column(name, justify="left" if name in ("what", "peer", "beside") else "right")
    for one in cells:
        table.add_row(*(one[name] for name in shown))
    console = Console(width=160)
    if cells:
        console.print(table)
    for claim in claims:
        console.print(f"{claim.what}: {claim.value:.2f}, aim at most {claim.most}{mark(claim.value <= claim.most)}")
    console.print(
        f"fp32 product {machine.flops / 1e9:.0f} GFLOP/s, reading {machine.bandwidth / 1e9:.1f} GB/s, same run"
    )
    if keep:
        save(make_record(title, rows, machine, claims))


def row_cells(row: Row, machine: Limits) -> dict[str, str]:
    limit = f"{row.work / row.seconds(row.ours) / machine.flops:.0%} of fp32" if row.work else ""
    if row.moved:
        share = row.moved / row.seconds(row.ours) / machine.bandwidth
        wanted = "" if row.moved_aim is None else f", aim {row.moved_aim:.0%}{mark(share >= row.moved_aim)}"
        limit = f"{share:.0%} of reading{wanted}"
    speeds = [row.tokens / row.seconds(one) for one in (row.ours, row.peer)]
    return {
        "what": row.what,
        "peer": row.peer.name,
        "ours": told(row, row.ours),
        "its time": told(row, row.peer),
        "ratio": f"{row.ratio:.2f}×",
        "aim": "" if row.aim is None else f"{row.aim}×{mark(row.ratio >= row.aim)}",
        "tokens/s": f"{speeds[0]:,.1f} / {speeds[1]:,.1f}" if row.tokens else "",
        "limit": limit,
        "memory": memory_cell(row) if row.memory_matters else "",
        "beside": row.beside,
    }


def memory_cell(row: Row) -> str:
    share = row.ours.peak / row.peer.peak
    wanted = "" if row.memory_aim is None else f" = {share:.2f}, aim {row.memory_aim}{mark(share <= row.memory_aim)}"
    return f"{row.ours.peak / 2**20:,.0f} / {row.peer.peak / 2**20:,.0f} MiB{wanted}"


def mark(reached: bool) -> str:
    return "" if reached else " ✗"


def told(row: Row, one: Result) -> str:
    return f"{row.seconds(one) * 1000:,.0f} ms ±{one.spread:.0%}"


def make_record(title: str, rows: Sequence[Row], machine: Limits, claims: Sequence[Claim]) -> dict[str, Any]:
    return {
        "title": title,
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "machine": platform.processor() or platform.machine(),
        "limits": machine._asdict(),
        "rows": [
            row._asdict() | {"ratio": row.ratio, "ours": row.ours._asdict(), "peer": row.peer._asdict()} for row in rows
        ],
        "claims": [claim._asdict() for claim in claims],
    }


def save(record: Mapping[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    place = RESULTS / f"{record['title'].replace(' ', '-')}.json"
    place.write_text(json.dumps(record, indent=2), encoding="utf-8")
