"""What a person sees while a command works: a spinner or a bar on a terminal; where standard error is none (Docker,
nohup, CI), a plain line every half minute.

    with status("reading the data") as shown: shown.update("opening the model")
    with counting(total=lambda: 500, unit="rows") as counted: counted.advance(1)
    with saying(lambda: "step 3 of 10"): ...

The one place for all commands. Nothing goes to standard output; `--quiet`, and `--json` without `--out`, silence it.
A piece of work may be inside another: the innermost one is told. Refuses to know what is done.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import IO

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.status import Status as Spinner

from triform.cli import IS_QUIET
from triform.train.progress_display import format_clock

SECONDS_BETWEEN_LINES = 30.0
META = "triform.cli.progress"  # where click's context of a command keeps its heartbeat

Clock = Callable[[], float]


class Heartbeat:
    """Every so often a line with the time since it began and what the innermost piece of work says of itself."""

    def __init__(self, write: Callable[[str], None], *, now: Clock = time.monotonic) -> None:
        self.write, self.now = write, now
        self.began = now()
        self.due = self.began + SECONDS_BETWEEN_LINES
        self.works: list[Callable[[], str]] = []

    def beat(self) -> float:
        """Writes a line if it is time; the seconds until the next."""
        now = self.now()
        if now >= self.due:
            self.due = now + SECONDS_BETWEEN_LINES
            for describe in self.works[-1:]:
                self.write(f"[{format_clock(now - self.began)}] {describe()}")
        return self.due - now

    def keep_on(self, wait: Callable[[float], bool]) -> None:
        """Beats until `wait`, which is given seconds, says that the work is over."""
        while not wait(self.beat()):
            pass

    @contextmanager
    def during(self, describe: Callable[[], str]) -> Iterator[None]:
        """The outermost piece of work starts the thread that beats, and ends it."""
        self.works.append(describe)
        over = Event()
        if len(self.works) == 1:
            Thread(target=self.keep_on, args=(over.wait,), daemon=True).start()
        try:
            yield
        finally:
            over.set()
            self.works.remove(describe)


@contextmanager
def show_line(describe: Callable[[], str]) -> Iterator[None]:
    """While the work inside goes on, `describe` says now and then how far it is; on a terminal, nothing."""
    if sys.stderr.isatty() or is_silent():
        yield
        return
    with command_heartbeat().during(describe):
        yield


class ShownStatus:
    """What is being done; `update` changes it."""

    def __init__(self, text: str, spinner: Spinner | None) -> None:
        self.text, self.spinner = text, spinner

    def update(self, text: str) -> None:
        self.text = text
        if self.spinner is not None:
            self.spinner.update(escape(text))


@contextmanager
def status(text: str = "") -> Iterator[ShownStatus]:
    """For work of which only the name is known."""
    console = Console(stderr=True)
    spinner = console.status(escape(text)) if console.is_terminal and not is_silent() else None
    shown = ShownStatus(text, spinner)
    with show_line(lambda: shown.text):
        if spinner is None:
            yield shown
        else:
            with spinner:
                yield shown


class CountedProgress:
    """How many are done, of how many where that is known."""

    def __init__(self, unit: str, *, now: Clock = time.monotonic) -> None:
        self.unit, self.now = unit, now
        self.began = now()
        self.done = self.before = 0  # before: by an earlier run
        self.total: int | None = None
        self.note = ""
        self.draw: Callable[[], None] = lambda: None

    def begin_at(self, done: int) -> None:
        """So many were done by an earlier run: they say nothing about the speed of this one."""
        self.done = self.before = done
        self.draw()

    def advance(self, count: int) -> None:
        self.done += count
        self.draw()

    def update(self, done: int, *, total: int, note: str = "") -> None:
        self.done, self.total, self.note = done, total, note
        self.draw()

    def __str__(self) -> str:
        """`1,024 of 5,000 rows, about 2:10 left`"""
        of = f" of {self.total:,}" if self.total is not None else ""
        said = f"{self.done:,}{of} {self.unit}{self.note}"
        made = self.done - self.before
        if self.total is None or made <= 0 or self.done >= self.total:
            return said
        left = (self.now() - self.began) / made * (self.total - self.done)
        return f"{said}, about {format_clock(left)} left"


@contextmanager
def counting(
    unit: str, *, total: Callable[[], int | None] = lambda: None, beside: IO[str] | None = None
) -> Iterator[CountedProgress]:
    """For work that is counted. No bar where answers are written `beside` it on the same screen; `total` is counted
    only where it is shown."""
    counted = CountedProgress(unit)
    console = Console(stderr=True)
    if is_silent() or (console.is_terminal and beside is not None and beside.isatty()):
        yield counted
        return
    counted.total = total()
    if not console.is_terminal:
        with show_line(lambda: str(counted)):
            yield counted
        return
    with _bar(console) as bar:
        task = bar.add_task(unit, total=counted.total)
        counted.draw = lambda: bar.update(task, completed=counted.done, total=counted.total)
        yield counted


def _bar(console: Console) -> Progress:
    return Progress(
        BarColumn(), MofNCompleteColumn(), TextColumn("{task.description} ·"), TimeElapsedColumn(), TextColumn("·"),
        TimeRemainingColumn(), console=console, transient=True, redirect_stdout=False, redirect_stderr=False,
    )  # fmt: skip


def is_silent() -> bool:
    """`--quiet`; and `--json` where the answers go to a program, not to a file."""
    context = click.get_current_context(silent=True)
    if context is None:
        return False
    to_program = context.params.get("as_json") and not context.params.get("out")
    return bool(context.meta.get(IS_QUIET) or to_program)


def command_heartbeat() -> Heartbeat:
    """One for a whole command: several short pieces of work together are long."""
    context = click.get_current_context(silent=True)
    if context is None:
        return Heartbeat(write_line)
    found: Heartbeat = context.find_root().meta.setdefault(META, Heartbeat(write_line))
    return found


def write_line(line: str) -> None:
    with suppress(OSError, ValueError):  # a log that is gone must not end the work
        click.echo(line, err=True)
