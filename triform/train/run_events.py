"""What happens in a run, as values: the same for the record (`metrics.jsonl`), the display and a caller's own eyes."""

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import msgspec

from triform.errors import TriformError
from triform.files.whole_files import write_whole


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag=str.lower):
    step: int


class Began(Event, frozen=True):
    """What is about to run; `step` is where it goes on from, 0 for a new run."""

    total: int | None  # None: until the time is over
    minutes: float | None
    parameters: int
    trained: int
    examples: int
    damaged: tuple[str, ...] = ()  # checkpoints that could not be used


class Stepped(Event, frozen=True):
    """One step has been made."""

    loss: float  # a target
    norm: float  # of all gradients together, before clipping
    rate: float
    targets: int
    tokens: int
    epoch: int
    seconds: float  # of this step
    elapsed: float  # of the run, earlier sittings included


class Skipped(Event, frozen=True):
    """A step that would have harmed the weights was not made."""

    reason: str
    rows: tuple[int, ...]  # numbers of examples
    places: tuple[str, ...] = ()  # what they were made of: `train.csv:17`


class Scored(Event, frozen=True):
    """An evaluation."""

    name: str
    value: float | None  # None: not a finite number
    best: bool
    others: dict[str, float | None] = {}


class Saved(Event, frozen=True):
    """A checkpoint is on disk."""

    folder: str


class Ended(Event, frozen=True):
    """The run is over."""

    why: str
    elapsed: float


def finite(value: float) -> float | None:
    """As JSON can say it."""
    return value if math.isfinite(value) else None


AnyEvent: TypeAlias = Began | Stepped | Skipped | Scored | Saved | Ended
Watch: TypeAlias = Callable[[AnyEvent], None]


class Record:
    """`metrics.jsonl`: one line an event. On going on, lines after the checkpoint are cut: they are made again."""

    def __init__(self, path: Path, *, keep: int) -> None:
        self.path = path
        try:
            kept = [line for line in _lines(path) if _step_of(line) <= keep] if keep else []
        except OSError as error:
            raise TriformError(f"cannot read {path}: {error.strerror or error}") from error
        write_whole(path, data=b"".join(kept))

    def __call__(self, event: AnyEvent) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(event) + b"\n")
        except OSError:
            pass  # a record that cannot be written must not end the run; a checkpoint that cannot says so itself


def read_events(path: Path) -> list[AnyEvent]:
    """All that a record holds. A line that is none was cut short, by a full disk or a kill: it is passed over."""
    decoder = msgspec.json.Decoder(AnyEvent)
    events: list[AnyEvent] = []
    for line in _lines(path):
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            events.append(decoder.decode(line))
    return events


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


def _step_of(line: bytes) -> float:
    """The step a line belongs to; a line cut short belongs to none."""
    try:
        return msgspec.json.decode(line, type=_OfStep).step
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return float("inf")


class _OfStep(msgspec.Struct):
    step: int
