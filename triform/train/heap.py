"""The C library's heap: what lies free between what is held, given back to the system before a pass.

Activations of many sizes come and go around gradients and moments that stay; what they leave free is scattered, the
next ones find no room in it and take more. With several passes a step, 320 MB in use became 570 held; given back before
each, 360. With one pass a step it comes slowly: texts of unequal length, 0.92 GB after 5 steps, 1.28 after 100,
1.40 after 500. Pages given back must be got again, which costs a sixth of a small step: so it is done where
several passes are made, before what is rare (an evaluation, the end), and else where the process holds more than it
was said to, or, of texts of unequal length, some seconds have passed.
"""

import ctypes
import math
import os
import time

from triform.train.process import resident

PAUSE = 0.5  # seconds between two times: passes shorter than that are small
SELDOM = 2.0  # seconds between two times where lengths differ


class Heap:
    """Only glibc has such a heap, and such a call."""

    def __init__(self) -> None:
        self.trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
        self.last = 0.0

    def tidy(self, *, above: int = 0, after: float = math.inf) -> None:
        """Where the process holds more than so many bytes, or so many seconds have passed."""
        since = time.monotonic() - self.last
        if self.trim is not None and (since > after or (since > PAUSE and resident() > above)):
            self.trim(0)
            self.last = time.monotonic()
