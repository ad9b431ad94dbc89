"""Lanes: work beside the event loop, each kind of each model in a bounded line of its own.

Cutting texts into tokens, rendering a template, compiling a grammar and looking inside take time that depends on what
one client sends. Nothing of it runs on the event loop, and what is slow for one model never holds up another's.
"""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple, TypeVar

from triform.serve.http.http_errors import unavailable
from triform.serve.http.limits import Limits
from triform.serve.worker.daemon_thread import beside

T = TypeVar("T")

TOKENIZING_THREADS = 2  # per model: the library spreads one call over all cores by itself
MAX_VIEWS = 8  # questions of the page that wait at one model
MAX_GRAMMARS = 16  # being compiled or waiting for it
MAX_TOKENIZED = 4  # texts of /v1/tokenize at once: each takes a core and holds its tokens
NEWEST = 0.3  # weight of the newest duration in their moving mean


class Lane:
    """`threads` pieces of work at once, `most` including those that wait; one more is refused with 429.

    So is one that would wait longer than `wait_seconds`, as far as the last ones tell.
    """

    def __init__(self, *, threads: int, most: int, wait_seconds: float) -> None:
        self._threads, self._most, self._wait_seconds = threads, most, wait_seconds
        self._free = asyncio.Semaphore(threads)
        self.open = 0  # pieces of work that run or wait
        self._seconds = 0.0  # one piece of work takes, in the mean

    async def run(self, work: Callable[[], T]) -> T:
        """A client that leaves while it waits is never computed; work that has begun keeps its place until it ends."""
        wait = self._seconds * self.open / self._threads
        if self.open >= self._most or wait > self._wait_seconds:
            raise unavailable("busy", wait=wait)
        self.open += 1
        try:
            await self._free.acquire()
        except BaseException:
            self.open -= 1
            raise
        began = monotonic()

        def end() -> None:
            self._seconds += NEWEST * (monotonic() - began - self._seconds)
            self.open -= 1
            self._free.release()

        return await beside(work, ended=end)


class Lanes(NamedTuple):
    """Of one model."""

    tokens: Lane
    templates: Lane
    grammars: Lane
    views: Lane
    tokenized: Lane


def make_lanes(limits: Limits) -> Lanes:
    def lane(*, threads: int = 1, most: int = limits.rows + limits.queue) -> Lane:
        return Lane(threads=threads, most=most, wait_seconds=limits.wait_seconds)

    return Lanes(
        tokens=lane(threads=TOKENIZING_THREADS),
        templates=lane(),
        grammars=lane(most=MAX_GRAMMARS),
        views=lane(most=MAX_VIEWS),
        tokenized=lane(threads=MAX_TOKENIZED, most=MAX_TOKENIZED),
    )
