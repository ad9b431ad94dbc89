"""How fast a worker writes and how long its answers are: how long a newcomer would wait follows from both."""

import math

MEMORY = 10.0  # seconds of writing that are looked back on
SHARE = 0.1  # of the mean length that the last answer decides


class Pace:
    """Told by the worker's thread, asked by the event loop's."""

    def __init__(self) -> None:
        self._tokens = self._seconds = self._length = 0.0

    def stepped(self, tokens: int, seconds: float) -> None:
        fade = math.exp(-seconds / MEMORY)
        self._tokens, self._seconds = fade * self._tokens + tokens, fade * self._seconds + seconds

    def ended(self, tokens: float) -> None:
        self._length += (tokens - self._length) * (SHARE if self._length else 1.0)

    def wait(self, answers: int) -> float:
        """Seconds until so many have ended, while all places are taken; 0 while nothing is known."""
        return answers * self._length * self._seconds / self._tokens if self._tokens else 0.0
