"""The memory of this process (0 where the system has no record of it), and the free memory of glibc's heap.

Activations of many sizes come and go around gradients and moments that stay; the free memory between them is
fragmented, so later activations do not fit into it and the process grows. With several passes per step, 320 MB in use
became 570 MB resident; with `malloc_trim` before each pass, 360. With one pass per step it grows slowly: texts of
unequal length, 0.92 GB after 5 steps, 1.28 after 100, 1.40 after 500. Trimmed pages must be allocated again, which
costs a sixth of a small step. So the heap is trimmed before each of several passes, before evaluations and at the end;
otherwise only if the process is larger than forecast or, with texts of unequal length, every few seconds.

If all steps are alike, nothing is fragmented, and the next step needs what the last one freed. By default glibc returns
it all the same (tensors of more than 32 MB at once, the rest at the end of the heap), and the system clears every page
before it gives it back: 0.4 GB in each step of GPT-2 small, 4% of its time.
"""

import ctypes
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

MIN_TRIM_SECONDS = 0.5  # least seconds between two trims
TRIM_SECONDS = 2.0  # seconds between two trims if lengths differ

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # options of mallopt, from malloc.h
KEEP_FREED = {MMAP_MAX: 0, TRIM_THRESHOLD: -1}  # allocate in the heap only, never return memory
# What glibc arrives at by itself after large tensors were freed; once an option is set, it no longer adapts.
DEFAULTS = {MMAP_MAX: 65536, TRIM_THRESHOLD: 64 << 20, MMAP_THRESHOLD: 32 << 20}


def resident_bytes() -> int:
    """Resident bytes of this process."""
    return _read_status("VmRSS")


def peak_bytes() -> int:
    """The most resident bytes so far."""
    return _read_status("VmHWM")


def reset_peak() -> None:
    """Resets `peak`, if the system allows it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _read_status(name: str) -> int:
    path = Path("/proc/self/status")
    lines = path.read_text().splitlines() if path.is_file() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(name)), 0)


class Heap:
    """malloc_trim and mallopt, where the C library is glibc; elsewhere nothing happens."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None) if os.name == "posix" else None
        self.trim, self.option = (getattr(library, name, None) for name in ("malloc_trim", "mallopt"))
        self.last = 0.0
        self.keeps = False

    def keep_freed(self) -> None:
        """From now on freed memory stays with the process."""
        self.keeps = True
        self._set(KEEP_FREED)

    def restore_defaults(self) -> None:
        """Ends `keep`."""
        if self.keeps:
            self.keeps = False
            self._set(DEFAULTS)

    def _set(self, options: Mapping[int, int]) -> None:
        if self.option is not None:
            for name, value in options.items():
                self.option(name, value)

    def trim_free(self, *, above: int = 0, after: float = math.inf) -> None:
        """Trims the heap if the process has more than `above` bytes, or `after` seconds have passed."""
        since = time.monotonic() - self.last
        if self.trim is not None and (since > after or (since > MIN_TRIM_SECONDS and resident_bytes() > above)):
            self.trim(0)
            self.last = time.monotonic()
