"""Work outside the event loop: one bounded queue per model and kind of work.

Tokenizing, rendering a template, compiling a grammar and inspecting a model take time that depends on what one client
sends. None of it runs on the event loop, and slow work for one model does not delay another's.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from time import monotonic
from typing import NamedTuple, TypeVar, cast

from triform.serve.http.http_errors import unavailable_error
from triform.serve.http.limits import Limits

T = TypeVar("T")

TOKENIZING_THREADS = 2  # per model: the library spreads one call over all cores by itself
MAX_PAGE_REQUESTS = 8  # requests of the page that wait per model
MAX_GRAMMARS = 16  # being compiled or waiting for it
MAX_TOKENIZE_REQUESTS = 4  # concurrent requests to /v1/tokenize: each takes a core and holds its tokens
NEWEST_WEIGHT = 0.3  # of the newest duration in the moving mean


class BoundedQueue:
    """Runs `threads` pieces of work at once and queues others, `most` in all; one more is refused with 429.

    So is one that would probably wait longer than `wait_seconds`, by the durations of the last ones.
    """

    def __init__(self, *, threads: int, most: int, wait_seconds: float) -> None:
        self._threads, self._most, self._wait_seconds = threads, most, wait_seconds
        self._free = asyncio.Semaphore(threads)
        self.pending = 0  # pieces of work that run or wait
        self._seconds = 0.0  # mean duration of one piece of work

    async def run(self, work: Callable[[], T]) -> T:
        """Work whose client disconnects while it waits never starts; started work keeps its place until it ends."""
        wait = self._seconds * self.pending / self._threads
        if self.pending >= self._most or wait > self._wait_seconds:
            raise unavailable_error("busy", wait=wait)
        self.pending += 1
        try:
            await self._free.acquire()
        except BaseException:
            self.pending -= 1
            raise
        began = monotonic()

        def end() -> None:
            self._seconds += NEWEST_WEIGHT * (monotonic() - began - self._seconds)
            self.pending -= 1
            self._free.release()

        return await run_in_daemon_thread(work, ended=end)


async def run_in_daemon_thread(work: Callable[[], T], *, ended: Callable[[], None]) -> T:
    """Runs work in a daemon thread; a client that disconnects does not cancel it. The event loop calls `ended`."""
    loop = asyncio.get_running_loop()
    # An error is a result here: a future would keep its traceback, and with it everything the work held.
    future: asyncio.Future[tuple[T | None, Exception | None]] = loop.create_future()

    def run() -> None:
        try:
            outcome: tuple[T | None, Exception | None] = work(), None
        except Exception as error:
            outcome = None, error
        with suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(future.set_result, outcome)

    Thread(target=run, name="triform-daemon", daemon=True).start()
    future.add_done_callback(lambda _: ended())
    value, error = await asyncio.shield(future)
    if error is not None:
        raise error
    return cast(T, value)


class ModelQueues(NamedTuple):
    """The queues of one model."""

    tokens: BoundedQueue
    templates: BoundedQueue
    grammars: BoundedQueue
    views: BoundedQueue
    tokenized: BoundedQueue


def make_queues(limits: Limits) -> ModelQueues:
    """The bounded queues of one model, one per kind of work."""

    def lane(*, threads: int = 1, most: int = limits.rows + limits.queue) -> BoundedQueue:
        return BoundedQueue(threads=threads, most=most, wait_seconds=limits.wait_seconds)

    return ModelQueues(
        tokens=lane(threads=TOKENIZING_THREADS),
        templates=lane(),
        grammars=lane(most=MAX_GRAMMARS),
        views=lane(most=MAX_PAGE_REQUESTS),
        tokenized=lane(threads=MAX_TOKENIZE_REQUESTS, most=MAX_TOKENIZE_REQUESTS),
    )
