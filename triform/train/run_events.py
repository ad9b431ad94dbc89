"""The events of a run, for `metrics.jsonl`, the progress display and the caller's own watcher."""

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import msgspec

from triform.errors import TriformError
from triform.files.atomic_file import write_file


class RunEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag=str.lower):
    """An event of a run, at a step."""

    step: int


class Began(RunEvent, frozen=True):
    """A run begins; `step` is where it resumes, 0 for a new run."""

    total: int | None  # None: limited by time only
    minutes: float | None
    parameters: int
    trained: int
    examples: int
    damaged: tuple[str, ...] = ()  # checkpoints that could not be used


class Stepped(RunEvent, frozen=True):
    """One step was made."""

    loss: float  # per target
    norm: float  # of all gradients together, before clipping
    rate: float
    targets: int
    tokens: int
    epoch: int
    seconds: float  # of this step
    elapsed: float  # of the run, with the time before it was resumed


class Skipped(RunEvent, frozen=True):
    """A step was skipped because it would have harmed the weights."""

    reason: str
    rows: tuple[int, ...]  # numbers of examples
    places: tuple[str, ...] = ()  # their origin: `train.csv:17`


class Evaluated(RunEvent, frozen=True, tag="scored"):
    """An evaluation."""

    name: str
    value: float | None  # None: not finite
    best: bool
    others: dict[str, float | None] = {}


class Saved(RunEvent, frozen=True):
    """A checkpoint is on disk."""

    folder: str


class Ended(RunEvent, frozen=True):
    """The run ended."""

    why: str
    elapsed: float


def finite_or_none(value: float) -> float | None:
    """None if it is not finite, since JSON has only finite numbers."""
    return value if math.isfinite(value) else None


AnyEvent: TypeAlias = Began | Stepped | Skipped | Evaluated | Saved | Ended
Watcher: TypeAlias = Callable[[AnyEvent], None]


class MetricsFile:
    """`metrics.jsonl`, one line per event. Events after step `keep` are removed: a resumed run makes them again."""

    def __init__(self, path: Path, *, keep: int) -> None:
        self.path = path
        try:
            lines = [line for line in _lines(path) if _step_of(line) <= keep] if keep else []
        except OSError as error:
            raise TriformError(f"cannot read {path}: {error.strerror or error}") from error
        write_file(path, b"".join(lines))

    def __call__(self, event: AnyEvent) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(event) + b"\n")
        except OSError:
            pass  # this must not end the run; a checkpoint that cannot be written does


def read_events(path: Path) -> list[AnyEvent]:
    """All events of a file. A line cut short by a full disk or a kill is skipped."""
    decoder = msgspec.json.Decoder(AnyEvent)
    events: list[AnyEvent] = []
    for line in _lines(path):
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            events.append(decoder.decode(line))
    return events


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


def _step_of(line: bytes) -> float:
    """The step of an event; infinity for a line cut short."""
    try:
        return msgspec.json.decode(line, type=_OfStep).step
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return float("inf")


class _OfStep(msgspec.Struct):
    step: int
