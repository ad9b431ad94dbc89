"""Work in a thread of its own: nobody who leaves ends it, the process does not wait for it when it ends.

Refuses to know what is done, and how many may do it at once: that is for the one who calls, who hears of its end.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TypeVar, cast

T = TypeVar("T")


async def beside(work: Callable[[], T], *, ended: Callable[[], None]) -> T:
    """What the work gives; `ended` is called in the event loop once it is done, whether or not anyone still waits."""
    loop = asyncio.get_running_loop()
    # An error is a result here: a future would keep its traceback, and by that everything the work held.
    found: asyncio.Future[tuple[T | None, Exception | None]] = loop.create_future()

    def do() -> None:
        try:
            outcome: tuple[T | None, Exception | None] = work(), None
        except Exception as error:
            outcome = None, error
        with suppress(RuntimeError):  # the event loop has ended: nobody waits for this any more
            loop.call_soon_threadsafe(found.set_result, outcome)

    Thread(target=do, name="triform-beside", daemon=True).start()
    found.add_done_callback(lambda _: ended())
    value, error = await asyncio.shield(found)
    if error is not None:
        raise error
    return cast(T, value)
