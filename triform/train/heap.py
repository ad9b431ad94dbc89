"""The C library's heap: what lies free between what is held, given back to the system before a pass.

Between the passes of a step the gradients stay where activations were freed; they pin the pages around them, the next
pass finds no room between them and takes more. 320 MB in use became 570 held with three passes a step; given back
before each pass, 360. Pages given back must be got again: with one pass a step that costs a tenth of the time and is
not done, with several it costs nothing that could be measured.
"""

import ctypes
import os
import time

PAUSE = 0.5  # seconds between two times: passes shorter than that are small


class Heap:
    """Only glibc has such a heap, and such a call."""

    def __init__(self) -> None:
        self.trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
        self.last = 0.0

    def tidy(self) -> None:
        if self.trim is not None and time.monotonic() - self.last > PAUSE:
            self.trim(0)
            self.last = time.monotonic()
