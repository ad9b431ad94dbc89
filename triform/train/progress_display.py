"""Progress of a run in the terminal: a bar with the loss, its curve, the last score, tokens per second, time left.

A watcher: give it to the loop as `watch`.
"""

from collections import deque
from itertools import pairwise
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

from triform.files.errors import list_names
from triform.train.run_events import AnyEvent, Began, Ended, Evaluated, Saved, Skipped, Stepped

BLOCKS = "▁▂▃▄▅▆▇█"
CURVE_COLUMNS = 24
MEAN_STEPS = 50  # over which speed and loss are averaged
REFRESH_SECONDS = 0.2


class ProgressDisplay:
    """`with Display(console) as display: train(..., watch=display)`

    With `flops_per_second` of the machine and `flops_per_token` of the model, the bar shows the utilisation.
    """

    def __init__(self, console: Console, *, flops_per_token: float = 0.0, flops_per_second: float = 0.0) -> None:
        self.console = console
        self.share = flops_per_token / flops_per_second if flops_per_second else 0.0
        self.bar = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), console=console
        )
        self.task = self.bar.add_task("", total=None)
        self.recent: deque[Stepped] = deque(maxlen=MEAN_STEPS)
        self.losses: list[float] = []
        self.score = ""
        self.shown = 0.0  # the run's time when it was last drawn
        self.line = "before the first step"  # the same without a bar
        self.began = Began(step=0, total=None, minutes=None, parameters=0, trained=0, examples=0)
        self.resumed_at: float | None = None  # the run's time at the first step seen

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
            case Evaluated(name=name, value=value, best=best):
                shown = "is not finite" if value is None else f"{value:.4g}"
                self.score = f" · {name} {shown}{' ★' if best else ''}"
                self.console.print(f"step {event.step}: {name} {shown}{', the best so far' if best else ''}")
            case Skipped(reason=reason, places=places):
                rows = escape(list_names(places))
                self.console.print(f"step {event.step} was skipped: {escape(reason)}; its rows: {rows}")
            case Saved():
                pass  # too frequent on small models; metrics.jsonl has them
            case Ended(why=why):
                self.console.print(f"{why}: {event.step} steps in {format_clock(event.elapsed)}")

    def describe(self) -> str:
        """One line for a log, where no bar can be drawn."""
        return self.line

    def _begin(self, event: Began) -> None:
        self.began = event
        for message in event.damaged:
            self.console.print(f"damaged, using the checkpoint before it: {escape(message)}")
        if event.step:
            self.console.print(f"resuming from step {event.step}")

    def _step(self, event: Stepped) -> None:
        if self.resumed_at is None:
            self.resumed_at = event.elapsed - event.seconds
        self.recent.append(event)
        self.losses.append(event.loss)
        if event.elapsed - self.shown < REFRESH_SECONDS and event.step != self.began.total:
            return
        self.shown = event.elapsed
        seconds = sum(step.seconds for step in self.recent)
        speed = sum(step.tokens for step in self.recent) / max(seconds, 1e-9)
        loss = sum(step.loss for step in self.recent) / len(self.recent)
        of_machine = f" ({speed * self.share:.0%} of the machine)" if self.share else ""
        # The pace includes evaluations and checkpoints between steps.
        done, left = self._progress(event, (event.elapsed - self.resumed_at) / max(1, event.step - self.began.step))
        pace = f"{self.score} · {speed:,.0f} tok/s{of_machine} · {format_clock(left)} left"
        of = f" of {self.began.total:,}" if self.began.total else ""
        self.line = f"step {event.step:,}{of}: loss {loss:.3f}{pace}"
        self.bar.update(
            self.task, description=f"loss {loss:.3f} {draw_curve(self.losses)}{pace}", total=1.0, completed=done
        )

    def _progress(self, event: Stepped, pace: float) -> tuple[float, float]:
        """The share done and the seconds left, by steps or by time, whichever ends first."""
        ways = []
        if self.began.total:
            ways.append((event.step / self.began.total, (self.began.total - event.step) * pace))
        if self.began.minutes:
            ways.append((event.elapsed / (60 * self.began.minutes), 60 * self.began.minutes - event.elapsed))
        return max(ways, default=(0.0, 0.0))


def draw_curve(losses: list[float]) -> str:
    """The losses of the whole run in a few columns, each a mean, scaled from the lowest to the highest."""
    columns = min(CURVE_COLUMNS, len(losses))
    edges = [len(losses) * column // max(1, columns) for column in range(columns + 1)]
    means = [sum(losses[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means, default=0.0), max(means, default=0.0)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((mean - low) * scale)] for mean in means)


def format_clock(seconds: float) -> str:
    """1:02:03, or 2:03 below an hour"""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
