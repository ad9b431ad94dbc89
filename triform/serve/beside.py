"""Work in a thread of its own: nobody who leaves ends it, the process does not wait for it when it ends.

Refuses to know what is done, and how many may do it at once: that is for the one who calls, who hears of its end.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


async def beside(work: Callable[[], T], *, ended: Callable[[], None]) -> T:
    """What the work gives; `ended` is called in the event loop once it is done, whether or not anyone still waits."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[T] = loop.create_future()

    def seen(_: "asyncio.Future[T]") -> None:
        found.exception()  # of work that nobody waits for, an error is no news
        ended()

    def tell(say: Callable[[Any], None], value: Any) -> None:
        with suppress(RuntimeError):  # the event loop has ended: nobody waits for this any more
            loop.call_soon_threadsafe(say, value)

    def do() -> None:
        try:
            tell(found.set_result, work())
        except Exception as error:
            tell(found.set_exception, error)

    Thread(target=do, name="triform-beside", daemon=True).start()
    found.add_done_callback(seen)
    return await asyncio.shield(found)
