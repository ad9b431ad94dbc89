"""This machine's two limits, measured: how fast it multiplies matrices, how fast it reads memory; and how much it has.

A `Machine` may as well be given: `Machine(peak_flops=312e12, bandwidth=1.55e12)` is a data sheet. What was measured is
kept in the cache folder. torch is imported when something is measured, not before.
"""

import os
import platform
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from triform.control_groups import read_memory_limits
from triform.errors import InputError
from triform.weights.model_store import home

if TYPE_CHECKING:
    from rich.console import RenderableType

SIDES = (256, 512, 1536)  # of the square matrices multiplied: small ones stay in the machine's cache
READ = 2**28  # bytes of the matrix that is only read: far above any cache
SECONDS = 0.7  # for each limit; a shared machine shows its best within that


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """FLOPs a second of matrix products (float32 where measured), bytes a second from memory, bytes of memory."""

    peak_flops: float
    bandwidth: float
    memory: int | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"machine: {name}={value!r} is not a limit; use a number above 0")

    @property
    def ridge(self) -> float:
        """FLOPs a byte above which computing is the limit, below which reading is."""
        return self.peak_flops / self.bandwidth

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def __rich__(self) -> "RenderableType":
        from triform.costs.tables import machine_line

        return machine_line(self)


def keep(machine: Machine) -> None:
    """In the cache folder, under this machine's name: the folder may be shared with others."""
    place = _place()
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_suffix(f".{os.getpid()}")
    draft.write_bytes(msgspec.json.encode(machine))
    draft.replace(place)


def kept() -> Machine | None:
    """What was measured here before; a file that cannot be read is as good as none."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(_place().read_bytes(), type=Machine)
    return None


def _place() -> Path:
    return home() / f"machine-{platform.node() or 'here'}.json"


@lru_cache(maxsize=1)
def measure() -> Machine:
    """The best of many rounds, with torch's threads as they are; once a process."""
    import torch

    def product(side: int) -> Callable[[], object]:
        a, b = torch.rand(side, side), torch.rand(side, side)
        return lambda: a @ b

    with torch.no_grad():
        peak = max(2 * side**3 / best(product(side), seconds=SECONDS / len(SIDES)) for side in SIDES)
        matrix = torch.rand(READ // 4 // 4096, 4096)
        vector = torch.rand(4096)
        reading = best(lambda: matrix @ vector, seconds=SECONDS)
    return Machine(peak_flops=peak, bandwidth=READ / reading, memory=memory())


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
    """Bytes this process may use: the machine's, or those of its control groups where one has less."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([whole, *read_memory_limits()])
