"""Work on its way between the event loop and a worker: what is to be done, and what has come of it so far."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

from triform.generate.settings import Request


class Question(NamedTuple):
    """Something a task is asked; those with the same `key` have the same `run` and settings and are answered together.

    `run(all that is asked, model=…, **settings)` gives the answers, in their order.
    """

    run: Callable[..., Iterator[Any]]
    asked: Any
    settings: Mapping[str, Any]
    key: tuple[Any, ...]
    size: int  # characters


class Job:
    """The event loop's side of some work: `groups` gives (part, value) as they come, until every part has its last.

    A value is an `Event` of a request or the answer to a question. Where a part fails, the error is raised instead, and
    whoever reads the job cancels what is left of it.
    """

    def __init__(self, work: "Sequence[Request | Question]") -> None:
        self.work = work
        self.left = sum(part.settings.n if isinstance(part, Request) else 1 for part in work)
        self.began = monotonic()
        self.cancelled = False
        self._arrived: list[tuple[int, Any]] = []
        self._news = asyncio.Event()

    def arrive(self, part: int, value: Any, *, last: bool) -> None:
        self._arrived.append((part, value))
        self.left -= last
        self._news.set()

    async def groups(self) -> AsyncIterator[list[tuple[int, Any]]]:
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


class Place(NamedTuple):
    """Where a value belongs."""

    job: Job
    part: int


class Running:
    """A request in the engine: its samples, how many of them have not ended, and tokens written so far."""

    def __init__(self, place: Place, request: Request) -> None:
        self.place, self.request, self.written, self.most = place, request, 0, request.settings.max_tokens
        self.samples = self.left = request.settings.n

    @property
    def progress(self) -> tuple[float, int]:
        """Tokens that a sample has, in the mean, and the most it may have."""
        return self.written / self.samples, self.most
