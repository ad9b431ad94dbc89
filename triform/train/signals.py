"""Ctrl-C and SIGTERM make a run save and stop; a second signal ends it at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class ReceivedSignal:
    """The number of the signal that was received, or 0."""

    def __init__(self) -> None:
        self.number = 0

    @property
    def name(self) -> str:
        return signal.Signals(self.number).name if self.number else ""


def exit_code(number: int) -> int:
    """The exit code of a command that a signal ended: 130 after SIGINT, 143 after SIGTERM."""
    return 128 + number


@contextmanager
def catch_signals() -> Iterator[ReceivedSignal]:
    """Catches the signals inside the block; outside the main thread, which alone receives them, it does nothing."""
    wish = ReceivedSignal()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if wish.name:
            raise KeyboardInterrupt
        wish.number = number

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
