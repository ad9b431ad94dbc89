"""What a person sees while a run goes: a bar with the loss, its curve, the last score, tokens a second and time left.

A watcher like any other: give it to the loop as `watch`. Refuses to know how a run is computed.
"""

from collections import deque
from itertools import pairwise
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

from triform.files.errors import listed
from triform.train.run_events import AnyEvent, Began, Ended, Saved, Scored, Skipped, Stepped

BLOCKS = "▁▂▃▄▅▆▇█"
CURVE = 24  # columns of the loss curve
RECENT = 50  # steps over which speed and loss are averaged
PAUSE = 0.2  # seconds between two drawings


class Display:
    """`with Display(console) as display: train(..., watch=display)`

    `flops_per_second` is what the machine can do, `flops_per_token` what a token of this model takes; with both, the
    bar shows which share of the machine is used.
    """

    def __init__(self, console: Console, *, flops_per_token: float = 0.0, flops_per_second: float = 0.0) -> None:
        self.console = console
        self.share = flops_per_token / flops_per_second if flops_per_second else 0.0
        self.bar = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), console=console
        )
        self.task = self.bar.add_task("", total=None)
        self.recent: deque[Stepped] = deque(maxlen=RECENT)
        self.losses: list[float] = []
        self.score = ""
        self.shown = 0.0  # when it was last drawn
        self.told = "before the first step"  # the same in plain words
        self.began = Began(step=0, total=None, minutes=None, parameters=0, trained=0, examples=0)
        self.sat_down: float | None = None  # the run's time when this sitting began

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def __call__(self, event: AnyEvent) -> None:
        match event:
            case Began():
                self._begin(event)
            case Stepped():
                self._step(event)
            case Scored(name=name, value=value, best=best):
                shown = "is not a number" if value is None else f"{value:.4g}"
                self.score = f" · {name} {shown}{' ★' if best else ''}"
                self.console.print(f"step {event.step}: {name} {shown}{', the best so far' if best else ''}")
            case Skipped(reason=reason, places=places):
                read = escape(listed(places))
                self.console.print(f"step {event.step} was not made: {escape(reason)}; it read {read}")
            case Saved():
                pass  # every few seconds on small models; metrics.jsonl has them
            case Ended(why=why):
                self.console.print(f"{why}: {event.step} steps in {clock(event.elapsed)}")

    def describe(self) -> str:
        """One plain line: for a log, where no bar can be drawn."""
        return self.told

    def _begin(self, event: Began) -> None:
        self.began = event
        for each in event.damaged:
            self.console.print(f"damaged, so the one before it is used: {escape(each)}")
        if event.step:
            self.console.print(f"going on from step {event.step}")

    def _step(self, event: Stepped) -> None:
        if self.sat_down is None:
            self.sat_down = event.elapsed - event.seconds
        self.recent.append(event)
        self.losses.append(event.loss)
        if event.elapsed - self.shown < PAUSE and event.step != self.began.total:
            return
        self.shown = event.elapsed
        seconds = sum(each.seconds for each in self.recent)
        speed = sum(each.tokens for each in self.recent) / max(seconds, 1e-9)
        loss = sum(each.loss for each in self.recent) / len(self.recent)
        of_machine = f" ({speed * self.share:.0%} of the machine)" if self.share else ""
        # With all that comes between steps: evaluations, checkpoints.
        done, left = self._progress(event, (event.elapsed - self.sat_down) / max(1, event.step - self.began.step))
        pace_told = f"{self.score} · {speed:,.0f} tok/s{of_machine} · {clock(left)} left"
        of = f" of {self.began.total:,}" if self.began.total else ""
        self.told = f"step {event.step:,}{of}: loss {loss:.3f}{pace_told}"
        said = f"loss {loss:.3f} {curve(self.losses)}{pace_told}"
        self.bar.update(self.task, description=said, total=1.0, completed=done)

    def _progress(self, event: Stepped, pace: float) -> tuple[float, float]:
        """The share that is done and the seconds that are left: of the steps or of the time, whichever ends first."""
        ways = []
        if self.began.total:
            ways.append((event.step / self.began.total, (self.began.total - event.step) * pace))
        if self.began.minutes:
            ways.append((event.elapsed / (60 * self.began.minutes), 60 * self.began.minutes - event.elapsed))
        return max(ways, default=(0.0, 0.0))


def curve(losses: list[float]) -> str:
    """The whole run in a few columns, each the mean of its share, scaled between the lowest and the highest."""
    columns = min(CURVE, len(losses))
    edges = [len(losses) * column // max(1, columns) for column in range(columns + 1)]
    means = [sum(losses[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means, default=0.0), max(means, default=0.0)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((mean - low) * scale)] for mean in means)


def clock(seconds: float) -> str:
    """1:02:03, or 2:03 below an hour"""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
