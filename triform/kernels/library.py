"""The native library of this processor: found in the wheel or compiled once, loaded once; or the reason why not.

`TRIFORM_KERNELS` chooses: `off` for torch alone, or the name of an instruction set. Without a library everything works
on torch, slower; a compiler that fails is reported once, with its first error line.
"""

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from triform.errors import UnknownName
from triform.kernels import build_library, instruction_sets
from triform.kernels.instruction_sets import InstructionSet
from triform.kernels.operations import FrameFields, OperationFields

VARIABLE = "TRIFORM_KERNELS"
OFF, AUTO = "off", "auto"


class KernelLibrary:
    """The functions of one compiled library."""

    def __init__(self, path: Path, instruction_set: str) -> None:
        self.path, self.instruction_set = path, instruction_set
        functions = ctypes.CDLL(str(path))
        pointer, long = ctypes.c_void_p, ctypes.c_int64
        for function, fields in (("operation", OperationFields), ("frame", FrameFields)):
            size = getattr(functions, f"triform_{function}_bytes")
            size.restype = long
            if size() != ctypes.sizeof(fields):
                raise OSError(f"{path} was compiled from other sources")
        self._run = functions.triform_run
        self._run.argtypes, self._run.restype = [pointer, long, pointer, long, ctypes.c_int], None
        self.summarize = functions.triform_summarize
        self.summarize.argtypes, self.summarize.restype = [pointer, long, long, pointer], None
        self.find_top = functions.triform_find_top
        self.find_top.argtypes, self.find_top.restype = [pointer, long, long, long, pointer, pointer], None
        self.look_up = functions.triform_look_up
        self.look_up.argtypes, self.look_up.restype = [ctypes.c_int, pointer, long, pointer, long, pointer], None
        self.move_rows = functions.triform_move_rows
        self.move_rows.argtypes, self.move_rows.restype = [pointer, *[long] * 6, pointer, pointer, long], None
        self.quantize = functions.triform_quantize
        self.quantize.argtypes, self.quantize.restype = [pointer, long, long, pointer, pointer, pointer], None
        self.activate = functions.triform_activate
        self.activate.argtypes, self.activate.restype = [ctypes.c_int, pointer, long], None

    def run(self, operations: int, count: int, frame: FrameFields, *, rows: int) -> None:
        """Runs operations (an address) in order, on `rows` rows, with as many threads as torch uses."""
        self._run(operations, count, ctypes.addressof(frame), rows, torch.get_num_threads())


class LoadedKernels(NamedTuple):
    """The library in use; or None, and why there is none."""

    library: KernelLibrary | None
    reason: str = ""


def find_kernels() -> KernelLibrary | None:
    """The library that this process uses, if there is one."""
    return find_loaded_kernels().library


def find_loaded_kernels() -> LoadedKernels:
    """The same with the reason, after the value of TRIFORM_KERNELS now."""
    return load_kernels(os.environ.get(VARIABLE, "") or AUTO)


@cache
def load_kernels(choice: str) -> LoadedKernels:
    """The library for `auto`, `off`, or the name of an instruction set that this processor has."""
    if choice == OFF:
        return LoadedKernels(None, f"switched off by {VARIABLE}=off")
    if choice == AUTO:
        usable = instruction_sets.find_usable_sets()
        if not usable:
            return LoadedKernels(None, f"there are no kernels for {instruction_sets.find_machine()} processors")
        chosen = usable[0]
    else:
        chosen = choose_set(choice)
    try:
        return load_set(chosen)
    except (OSError, build_library.CompilerFailed) as error:
        reason = str(error)
        print(f"no native kernels, torch computes instead (slower): {reason}", file=sys.stderr)
        return LoadedKernels(None, reason)


def choose_set(name: str) -> InstructionSet:
    """The instruction set of this name, where the processor has it."""
    usable = {each.name: each for each in instruction_sets.find_usable_sets()}
    if name not in usable:
        raise UnknownName(f"value of {VARIABLE}", name, (AUTO, OFF, *usable))
    return usable[name]


def load_set(chosen: InstructionSet) -> LoadedKernels:
    """The library for one instruction set: the wheel's, or the one that a compiler makes here."""
    in_wheel = build_library.COMPILED / build_library.make_file_name(chosen.name)
    if in_wheel.exists():
        return LoadedKernels(KernelLibrary(in_wheel, chosen.name))
    compiler = build_library.find_compiler()
    if compiler is None:
        return LoadedKernels(None, "no C++ compiler was found; install g++ or clang++, or set CXX")
    folders = [build_library.COMPILED, build_library.find_cache_folder()]
    found = build_library.ensure_library(folders, name=chosen.name, flags=chosen.flags, compiler=compiler)
    return LoadedKernels(KernelLibrary(found, chosen.name))


def compile_for_checkout() -> str:
    """What `make` does: compiles the library that this processor uses into the checkout; returns one line about it."""
    usable, compiler = instruction_sets.find_usable_sets(), build_library.find_compiler()
    if not usable or compiler is None:
        return "no native kernels: no C++ compiler for this machine; torch computes instead (slower)"
    try:
        path = build_library.ensure_library(
            [build_library.COMPILED], name=usable[0].name, flags=usable[0].flags, compiler=compiler
        )
    except (OSError, build_library.CompilerFailed) as error:
        return f"no native kernels, torch computes instead (slower): {error}"
    return f"native kernels for {usable[0].name}: {path}"


if __name__ == "__main__":
    print(compile_for_checkout())
