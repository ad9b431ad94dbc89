"""A clock that stands still while the whole process does.

A stopped process (Ctrl-Z, a frozen container, a paused virtual machine) wakes to find that everything has been silent
for as long as it slept. Whoever judges another thread by its silence must count only the time it was awake itself.
"""

from threading import Lock
from time import monotonic


class AwakeClock:
    """Seconds, of which no more than `longest` pass between two readings; it must be read more often than that."""

    def __init__(self, *, longest: float) -> None:
        self._longest = longest
        self._awake = 0.0
        self._read = monotonic()
        self._lock = Lock()

    def __call__(self) -> float:
        with self._lock:
            now = monotonic()
            self._awake += min(now - self._read, self._longest)
            self._read = now
            return self._awake
