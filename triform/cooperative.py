"""Yield points in long work: the caller can do other things, or cancel, between two forward passes.

with call_at_pauses(callback):
    task.run(…)  # callback() is called before each pass; an exception from it ends the work
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CALLBACK: ContextVar[Callable[[], None]] = ContextVar("callback", default=lambda: None)


def pause() -> None:
    """A yield point: calls the callback of the caller, if there is one."""
    _CALLBACK.get()()


@contextmanager
def call_at_pauses(callback: Callable[[], None]) -> Iterator[None]:
    """Long work in this block calls `callback` at its pauses."""
    before = _CALLBACK.set(callback)
    try:
        yield
    finally:
        _CALLBACK.reset(before)
