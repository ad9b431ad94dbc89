"""How long a step takes, how long answers are, and how far those being written have come: when places fall free."""

import math
from collections.abc import Iterable
from heapq import heapify, heapreplace

MEMORY = 10.0  # seconds of writing that are looked back on
SHARE = 0.1  # of the mean length that the last answer decides


class Pace:
    """Told by the worker's thread, asked by the event loop's."""

    def __init__(self) -> None:
        self._steps = self._seconds = self._length = 0.0
        self._left: list[float] = []  # steps that each answer with a place still takes, as far as is known

    def stepped(self, seconds: float, answers: Iterable[tuple[float, int]]) -> None:
        """One step; of each answer that has a place, the tokens it has and the most it may have."""
        fade = math.exp(-seconds / MEMORY)
        self._steps, self._seconds = fade * self._steps + 1, fade * self._seconds + seconds
        self._left = [max(1.0, min(self._length, most) - written) for written, most in answers]

    def ended(self, tokens: float) -> None:
        self._length += (tokens - self._length) * (SHARE if self._length else 1.0)

    def wait(self, answers: int) -> float:
        """Seconds until so many have ended, while all places are taken; 0 while nothing is known."""
        ends, end = list(self._left), 0.0
        if not ends or not self._length:
            return 0.0
        heapify(ends)
        for _ in range(answers):
            end = heapreplace(ends, ends[0] + self._length)  # whoever waits takes the place that falls free first
        return end * self._seconds / self._steps
