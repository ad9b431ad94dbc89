"""The C library's heap: what lies free between what is held, given back to the system before a pass.

Activations of many sizes come and go around gradients and moments that stay; what they leave free is scattered, the
next ones find no room in it and take more. With several passes a step, 320 MB in use became 570 held; given back before
each, 360. With one pass a step it comes slowly: texts of unequal length, 0.92 GB after 5 steps, 1.28 after 100,
1.40 after 500. Pages given back must be got again, which costs a sixth of a small step: so it is done where
several passes are made, before what is rare (an evaluation, the end), and else where the process holds more than it
was said to, or, of texts of unequal length, some seconds have passed.

Where steps are all alike nothing is scattered, and what one frees is what the next one needs. By itself the library
gives it back all the same, tensors of more than 32 MB at once and of the rest what lies at the end of the heap, and
the system clears every page before it gives it again: 0.4 GB in each step of GPT-2 small, 4% of its time.
"""

import ctypes
import math
import os
import time
from collections.abc import Mapping

from triform.train.process_memory import resident

PAUSE = 0.5  # seconds between two times: passes shorter than that are small
SELDOM = 2.0  # seconds between two times where lengths differ

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # names of malloc.h
KEEPING = {MMAP_MAX: 0, TRIM_THRESHOLD: -1}  # nothing from outside the heap, nothing of it given back
# What the library comes to by itself once large tensors have been freed; told anything, it no longer does that.
USUAL = {MMAP_MAX: 65536, TRIM_THRESHOLD: 64 << 20, MMAP_THRESHOLD: 32 << 20}


class Heap:
    """Only glibc has such a heap, and such calls."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None) if os.name == "posix" else None
        self.trim, self.option = (getattr(library, name, None) for name in ("malloc_trim", "mallopt"))
        self.last = 0.0
        self.keeps = False

    def keep(self) -> None:
        """From now on what is freed stays with the process."""
        self.keeps = True
        self._set(KEEPING)

    def let_go(self) -> None:
        """No longer, where it was so."""
        if self.keeps:
            self.keeps = False
            self._set(USUAL)

    def _set(self, options: Mapping[int, int]) -> None:
        if self.option is not None:
            for name, value in options.items():
                self.option(name, value)

    def tidy(self, *, above: int = 0, after: float = math.inf) -> None:
        """Where the process holds more than so many bytes, or so many seconds have passed."""
        since = time.monotonic() - self.last
        if self.trim is not None and (since > after or (since > PAUSE and resident() > above)):
            self.trim(0)
            self.last = time.monotonic()
