"""Limits of this machine: peak FLOP/s of matrix products, memory bandwidth, and memory size.

`Machine(peak_flops=312e12, bandwidth=1.55e12)` describes another machine by its data sheet. Measurements are stored in
the cache folder. torch is imported only to measure.
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
from triform.files.atomic_file import write_file
from triform.files.format_version import CURRENT_FORMAT, FORMAT_KEY, check_format
from triform.weights.model_store import home_folder

if TYPE_CHECKING:
    from rich.console import RenderableType

MATRIX_SIDES = (256, 512, 1536)  # of the square matrices multiplied: small ones stay in the CPU cache
READ_BYTES = 2**28  # size of the matrix that measures bandwidth: far above any CPU cache
SECONDS_PER_LIMIT = 0.7  # long enough for one undisturbed round on a shared machine


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """FLOP/s of matrix products (float32 if measured), bytes per second read from memory, bytes of memory."""

    peak_flops: float
    bandwidth: float
    memory: int | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"machine: {name}={value!r} is not a limit; use a finite number above 0")

    @property
    def ridge(self) -> float:
        """FLOPs per byte: above it the peak is the limit, below it the bandwidth."""
        return self.peak_flops / self.bandwidth

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def __rich__(self) -> "RenderableType":
        from triform.costs.tables import describe_machine

        return describe_machine(self)


def store_machine(machine: Machine) -> None:
    """Stored in the cache folder under the host name: several machines may share the folder."""
    write_file(_path(), msgspec.json.encode({FORMAT_KEY: CURRENT_FORMAT} | msgspec.to_builtins(machine)))


def load_machine() -> Machine | None:
    """The stored measurement, or None if there is none or it cannot be read."""
    with suppress(OSError, msgspec.MsgspecError):
        data = _path().read_bytes()
        check_format(data, what=_path(), otherwise="remove this file: the machine is measured again")
        return msgspec.json.decode(data, type=Machine)
    return None


def _path() -> Path:
    return home_folder() / f"machine-{platform.node() or 'here'}.json"


@lru_cache(maxsize=1)
def measure() -> Machine:
    """The best of many rounds, with torch's current threads; once per process."""
    import torch

    def product(side: int) -> Callable[[], object]:
        a, b = torch.rand(side, side), torch.rand(side, side)
        return lambda: a @ b

    with torch.no_grad():
        peak = max(
            2 * side**3 / time_fastest(product(side), seconds=SECONDS_PER_LIMIT / len(MATRIX_SIDES))
            for side in MATRIX_SIDES
        )
        matrix = torch.rand(READ_BYTES // 4 // 4096, 4096)
        vector = torch.rand(4096)
        reading = time_fastest(lambda: matrix @ vector, seconds=SECONDS_PER_LIMIT)
    return Machine(peak_flops=peak, bandwidth=READ_BYTES / reading, memory=usable_memory())


def time_fastest(run: Callable[[], object], *, seconds: float) -> float:
    """Seconds of the fastest round, after one warm-up round."""
    run()
    end, fastest = perf_counter() + seconds, float("inf")
    while fastest == float("inf") or perf_counter() < end:
        start = perf_counter()
        run()
        fastest = min(fastest, perf_counter() - start)
    return fastest


def usable_memory() -> int:
    """Bytes this process may use: the machine's memory, or the smallest limit of its control groups."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *read_memory_limits()])
