"""Ctrl-C and SIGTERM ask a run to save and stop; a second one ends it at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Wish:
    """What a signal has asked for: its number, or 0."""

    def __init__(self) -> None:
        self.number = 0

    @property
    def name(self) -> str:
        return signal.Signals(self.number).name if self.number else ""


def exit_code(number: int) -> int:
    """Of a command that a signal ended, as shells count it: 130 after SIGINT, 143 after SIGTERM."""
    return 128 + number


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
        wish.number = number

    before = {each: signal.signal(each, heard) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
