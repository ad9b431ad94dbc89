"""Compiles the native library: for a wheel all instruction sets of the machine, elsewhere the one that is used.

A compiled library is kept under the hash of its sources, flags and compiler, so that it is compiled once; two processes
that start together compile once too. Standard library only, so that the wheel's build hook needs nothing installed.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

SOURCES = Path(__file__).parent / "native"
MAIN = SOURCES / "kernels.cpp"
COMPILED = Path(__file__).parent / "compiled"  # a wheel's libraries; in a checkout those that `make` has compiled
# -ffp-contract=off: where a · b + c is rounded once is written in the source, so that all builds give the same bits.
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared", "-pthread", "-w")
COMPILERS = ("c++", "g++", "clang++")
COMPILER_VARIABLE = "CXX"
TIMEOUT = 600.0  # seconds


class CompilerFailed(Exception):
    """The first line of what the compiler said is the message."""


def make_file_name(instruction_set: str) -> str:
    return f"kernels-{instruction_set}.so"


def find_compiler(environment: Mapping[str, str] = os.environ) -> list[str] | None:
    """The command of a C++ compiler: $CXX, or the first of the usual ones that there is."""
    chosen = shlex.split(environment.get(COMPILER_VARIABLE, ""))
    if chosen:
        return chosen if shutil.which(chosen[0]) else None
    found = next((each for each in COMPILERS if shutil.which(each)), None)
    return None if found is None else [found]


def compile_library(target: Path, *, flags: Sequence[str], compiler: Sequence[str]) -> None:
    """Compiles one instruction set; `target` is replaced in one step, so that no reader sees half of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".compiling-") as folder:
        draft = Path(folder) / target.name
        run_compiler([*compiler, *FLAGS, *flags, str(MAIN), "-o", str(draft)])
        os.replace(draft, target)


def run_compiler(command: Sequence[str]) -> str:
    """What the compiler printed; raises with its first error line where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT)
    except (OSError, subprocess.SubprocessError) as error:
        raise CompilerFailed(str(error)) from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line), lines[0] if lines else f"exit code {done.returncode}")
        raise CompilerFailed(first.strip()[:300])
    return done.stdout


def hash_build(*, flags: Sequence[str], compiler: Sequence[str]) -> str:
    """Of all that decides about the compiled bytes."""
    version = run_compiler([*compiler, "--version"])
    content = hashlib.sha256(repr((version, *compiler, *FLAGS, *flags)).encode())
    for path in sorted(SOURCES.iterdir()):
        if path.suffix in (".h", ".cpp"):
            content.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return content.hexdigest()[:20]


def ensure_library(folders: Sequence[Path], *, name: str, flags: Sequence[str], compiler: Sequence[str]) -> Path:
    """The compiled library in one of these folders; compiled now into the last if it is in none."""
    content = hash_build(flags=flags, compiler=compiler)
    found = [folder / content / make_file_name(name) for folder in folders]
    for place in found:
        if place.exists():
            return place
    target = found[-1]
    with lock_folder(target.parent):
        if not target.exists():
            compile_library(target, flags=flags, compiler=compiler)
    return target


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """One process at a time; on systems without flock two may compile, and one result replaces the other."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("ab") as handle:
        with suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def find_cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """`TRIFORM_HOME`/kernels, or a folder in the platform's cache."""
    if home := environment.get("TRIFORM_HOME"):
        return Path(home).expanduser() / "kernels"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/triform/kernels"
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "triform" / "kernels"
