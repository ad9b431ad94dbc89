"""Ctrl-C and SIGTERM ask a run to save and stop; a second one ends it at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Wish:
    """What a signal has asked for: the name of it, or nothing."""

    def __init__(self) -> None:
        self.name = ""


@contextmanager
def listening() -> Iterator[Wish]:
    """Signals reach only the main thread; elsewhere nobody can ask."""
    wish = Wish()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return

    def heard(number: int, frame: FrameType | None) -> None:
        if wish.name:
            raise KeyboardInterrupt
        wish.name = signal.Signals(number).name

    before = {each: signal.signal(each, heard) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
