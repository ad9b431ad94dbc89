"""Which instructions this processor has, and for which of them the native library can be compiled. No torch.

A library is loaded only where the processor has every instruction that it may contain.
"""

import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

CPU_INFO = Path("/proc/cpuinfo")


class InstructionSet(NamedTuple):
    """One build of the library: the machine it is for, what the processor must have, the compiler's flags."""

    name: str
    machine: str
    needs: frozenset[str]
    flags: tuple[str, ...]


_AVX2 = frozenset(("avx2", "fma", "f16c", "bmi1", "bmi2", "movbe"))
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni"}
_V3, _V4 = "-march=x86-64-v3", "-march=x86-64-v4"
# The fastest first.
INSTRUCTION_SETS = (
    InstructionSet("avx512vnni", "x86_64", _AVX512, (_V4, "-mavx512vnni")),
    InstructionSet("avxvnni", "x86_64", _AVX2 | {"avx_vnni"}, (_V3, "-mavxvnni")),
    InstructionSet("avx2", "x86_64", _AVX2, (_V3,)),
    InstructionSet("dotprod", "aarch64", frozenset(("asimddp",)), ("-march=armv8.2-a+dotprod",)),
    InstructionSet("portable", "x86_64", frozenset(), ("-DTRIFORM_PORTABLE",)),
    InstructionSet("portable", "aarch64", frozenset(), ("-DTRIFORM_PORTABLE",)),
)


def find_machine() -> str:
    """x86_64, aarch64, or what else the platform calls itself."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def list_sets_of_machine(machine: str) -> list[InstructionSet]:
    """Those that a library for this kind of machine holds, the fastest first."""
    return [each for each in INSTRUCTION_SETS if each.machine == machine]


def find_usable_sets() -> list[InstructionSet]:
    """Those that this processor can run, the fastest first."""
    features = read_features()
    return [each for each in list_sets_of_machine(find_machine()) if each.needs <= features]


def read_features() -> frozenset[str]:
    """The processor's features, in Linux's words; where the system does not say them, none."""
    return frozenset(_read_features())


def _read_features() -> Iterator[str]:
    if CPU_INFO.exists():
        with suppress(OSError):
            for line in CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines():
                key, _, value = line.partition(":")
                if key.strip() in ("flags", "Features"):
                    yield from value.split()
                    return
    elif sys.platform == "darwin":
        if find_machine() == "aarch64":
            yield "asimddp"  # every processor of this kind has it
        else:
            yield from _read_features_of_macos()


def _read_features_of_macos() -> Iterator[str]:
    with suppress(OSError, subprocess.SubprocessError):
        names = ["machdep.cpu.features", "machdep.cpu.leaf7_features"]
        printed = subprocess.run(["sysctl", "-n", *names], capture_output=True, text=True, timeout=10).stdout
        yield from printed.lower().split()
