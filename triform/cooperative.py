"""Pauses in long work: whoever has it done may look up between two passes, and see to other things or end it.

    with pausing(look_up):
        task.run(…)  # look_up() is called before each pass; what it raises ends the work

Refuses to know what is done, and what is done in a pause.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


def nothing() -> None:
    pass


_LOOK_UP: ContextVar[Callable[[], None]] = ContextVar("look_up", default=nothing)


def pause() -> None:
    _LOOK_UP.get()()


@contextmanager
def pausing(look_up: Callable[[], None]) -> Iterator[None]:
    before = _LOOK_UP.set(look_up)
    try:
        yield
    finally:
        _LOOK_UP.reset(before)
