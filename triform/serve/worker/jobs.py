"""Jobs between the event loop and a model's worker: what is to be done, what has arrived, how long others wait."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heapreplace
from time import monotonic
from typing import Any, NamedTuple

from triform.generate.settings import Request

DECAY_SECONDS = 10.0  # of decoding, over which the mean duration of a step forgets
NEWEST_SHARE = 0.1  # of the mean answer length that the last answer decides


class TaskInput(NamedTuple):
    """One input of a task; inputs with the same `key` have the same `run` and settings and are computed in one batch.

    `run(inputs, model=…, **settings)` yields one answer per input, in their order.
    """

    run: Callable[..., Iterator[Any]]
    value: Any
    settings: Mapping[str, Any]
    key: tuple[Any, ...]
    size: int  # characters


class WorkerJob:
    """The event loop's side of some work: `groups` yields (part, value) as they arrive, until every part has ended.

    A value is an `Event` of a request, or the answer to a task input. If a part fails, its error is raised instead, and
    the reader of the job cancels the rest.
    """

    def __init__(self, work: "Sequence[Request | TaskInput]") -> None:
        self.work = work
        self.left = sum(part.settings.n if isinstance(part, Request) else 1 for part in work)
        self.began = monotonic()
        self.cancelled = False
        self._arrived: list[tuple[int, Any]] = []
        self._news = asyncio.Event()

    def add_result(self, part: int, value: Any, *, last: bool) -> None:
        self._arrived.append((part, value))
        self.left -= last
        self._news.set()

    async def receive_groups(self) -> AsyncIterator[list[tuple[int, Any]]]:
        while True:
            await self._news.wait()
            self._news.clear()
            group, self._arrived = self._arrived, []
            for _, value in group:
                if isinstance(value, Exception):
                    raise value
            yield group
            if self.left <= 0:
                return


class JobPart(NamedTuple):
    """The part of a job that a value belongs to."""

    job: WorkerJob
    part: int


class RunningRequest:
    """A request in the engine: its samples, how many of them have not ended, and the tokens generated so far."""

    def __init__(self, place: JobPart, request: Request) -> None:
        self.place, self.request, self.written, self.most = place, request, 0, request.settings.max_tokens
        self.samples = self.left = request.settings.n

    @property
    def progress(self) -> tuple[float, int]:
        """Mean tokens per sample so far, and the maximum."""
        return self.written / self.samples, self.most


class WaitEstimate:
    """Estimates when rows of the engine become free; updated by the worker's thread, read by the event loop's."""

    def __init__(self) -> None:
        self._steps = self._seconds = self._length = 0.0
        self._left: list[float] = []  # estimated steps until each running answer ends

    def record_step(self, seconds: float, answers: Iterable[tuple[float, int]]) -> None:
        """One step; per running answer: tokens so far, and the maximum."""
        fade = math.exp(-seconds / DECAY_SECONDS)
        self._steps, self._seconds = fade * self._steps + 1, fade * self._seconds + seconds
        self._left = [max(1.0, min(self._length, most) - written) for written, most in answers]

    def record_answer(self, tokens: float) -> None:
        self._length += (tokens - self._length) * (NEWEST_SHARE if self._length else 1.0)

    def estimate_seconds(self, answers: int) -> float:
        """Seconds until this many answers have ended, if all rows are taken; 0 while nothing is known."""
        ends, end = list(self._left), 0.0
        if not ends or not self._length:
            return 0.0
        heapify(ends)
        for _ in range(answers):
            end = heapreplace(ends, ends[0] + self._length)  # the next in the queue takes the row that is free first
        return end * self._seconds / self._steps
