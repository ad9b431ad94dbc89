"""This machine's two limits, measured: how fast it multiplies matrices, how fast it reads memory; and how much it has.

A `Machine` may as well be given: `Machine(peak_flops=312e12, bandwidth=1.55e12, memory=80 * 10**9)` is a data sheet.
torch is imported when something is measured, not before.
"""

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from time import perf_counter

import msgspec

from triform.errors import InputError

SIDE = 1536  # of the square matrices multiplied: large enough to reach the limit, 7 GFLOP a product
READ = 2**28  # bytes of the matrix that is only read: far above any cache
SECONDS = 0.7  # for each limit; a shared machine shows its best within that


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """FLOPs a second of float32 matrix products, bytes a second from memory, bytes of memory."""

    peak_flops: float
    bandwidth: float
    memory: int

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise InputError(f"machine: {name}={getattr(self, name)!r} is not a limit; use a number above 0")

    @property
    def ridge(self) -> float:
        """FLOPs a byte above which computing is the limit, below which reading is."""
        return self.peak_flops / self.bandwidth


@lru_cache(maxsize=1)
def measure() -> Machine:
    """The best of many rounds, with torch's threads as they are; once a process."""
    import torch

    with torch.no_grad():
        a, b = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE)
        product = best(lambda: a @ b, seconds=SECONDS)
        matrix = torch.rand(READ // 4 // 4096, 4096)
        vector = torch.rand(4096)
        reading = best(lambda: matrix @ vector, seconds=SECONDS)
    return Machine(peak_flops=2 * SIDE**3 / product, bandwidth=READ / reading, memory=memory())


def best(run: Callable[[], object], *, seconds: float) -> float:
    """Seconds of the fastest round, after one that does not count; the others were disturbed."""
    run()
    end, fastest = perf_counter() + seconds, float("inf")
    while fastest == float("inf") or perf_counter() < end:
        start = perf_counter()
        run()
        fastest = min(fastest, perf_counter() - start)
    return fastest


def memory() -> int:
    """Bytes this process may use: the machine's, or its container's where that is less."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.is_file() else "max"
    return min(whole, int(text)) if text.isdigit() else whole
