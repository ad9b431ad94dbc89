"""The harness: contenders interleaved round by round, medians with their spread, ratios, and the machine's own limits.

Figures of different runs are never compared: a table is one run.
"""

import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


class Contender:
    """A process that runs one thing whenever it is told to."""

    def __init__(self, name: str, where: str, **settings: Any) -> None:
        self.name = name
        command = [sys.executable, "-m", "bench.worker", where, json.dumps(settings)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.setup = self._line()
        self.seconds: list[float] = []
        self.peak = 0
        self.note: Any = None

    def go(self) -> None:
        self._pipe(self.process.stdin).write("go\n")
        self._pipe(self.process.stdin).flush()
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
    """One line of a bench: ours against a peer."""

    what: str
    ours: Result
    peer: Result
    aim: float  # the ratio we want at least
    work: float = 0.0  # floating-point operations of our run
    memory_matters: bool = False

    @property
    def ratio(self) -> float:
        return self.peer.median / self.ours.median


class Limits(NamedTuple):
    flops: float
    bandwidth: float


def limits() -> Limits:
    """The machine's fp32 matrix product and memory reading, measured in this very run (best of several)."""
    product = Contender("product", "bench.limits:product")
    reading = Contender("reading", "bench.limits:reading")
    results = race([product, reading], rounds=9)
    return Limits(results[0].note / results[0].best, results[1].note / results[1].best)


def report(title: str, rows: Sequence[Row], machine: Limits) -> None:
    table = Table(title=title)
    for column in ("what", "ours", "peer", "ratio", "aim", "of fp32 limit", "memory ours / peer"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for row in rows:
        fraction = f"{row.work / row.ours.median / machine.flops:.0%}" if row.work else ""
        memory = f"{row.ours.peak / 2**20:,.0f} / {row.peer.peak / 2**20:,.0f} MiB" if row.memory_matters else ""
        mark = "" if row.ratio >= row.aim else " ✗"
        table.add_row(
            row.what, told(row.ours), told(row.peer), f"{row.ratio:.2f}×", f"{row.aim}×{mark}", fraction, memory
        )
    console = Console(width=140)
    console.print(table)
    console.print(
        f"fp32 product {machine.flops / 1e9:.0f} GFLOP/s, reading {machine.bandwidth / 1e9:.1f} GB/s, same run"
    )
    save(title, rows, machine)


def told(one: Result) -> str:
    return f"{one.median * 1000:,.0f} ms ±{one.spread:.0%}"


def save(title: str, rows: Sequence[Row], machine: Limits) -> None:
    RESULTS.mkdir(exist_ok=True)
    record = {
        "title": title,
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "machine": platform.processor() or platform.machine(),
        "limits": machine._asdict(),
        "rows": [
            {
                "what": row.what,
                "ratio": row.ratio,
                "aim": row.aim,
                "ours": row.ours._asdict(),
                "peer": row.peer._asdict(),
            }
            for row in rows
        ],
    }
    (RESULTS / f"{title.replace(' ', '-')}.json").write_text(json.dumps(record, indent=2), encoding="utf-8")
