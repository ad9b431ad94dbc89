"""Compiles the native kernels into a wheel; where there is no compiler, the wheel is one for every platform.

The libraries need no Python and no torch of a certain version: the wheel is tagged `py3-none-<platform>`. With
TRIFORM_KERNELS=off nothing is compiled.
"""

import os
import runpy
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelsHook(BuildHookInterface):
    """Runs before a wheel is packed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # a checkout compiles by `make`, or when it first needs the library
            return
        if os.environ.get("TRIFORM_KERNELS") == "off":
            return
        root = Path(self.root)
        # These two files need nothing that is installed later.
        sys.path.insert(0, str(root))
        try:
            build = runpy.run_path(str(root / "triform/kernels/build_library.py"))
            sets = runpy.run_path(str(root / "triform/kernels/instruction_sets.py"))
        finally:
            sys.path.remove(str(root))
        compiler = build["find_compiler"]()
        if compiler is None:
            self.app.display_warning("no C++ compiler: the wheel has no native kernels, torch computes instead")
            return
        folder = root / "triform/kernels/compiled"
        try:
            for each in sets["list_sets_of_machine"](sets["find_machine"]()):
                build["compile_library"](
                    folder / build["make_file_name"](each.name), flags=each.flags, compiler=compiler
                )
        except build["CompilerFailed"] as error:
            self.app.display_warning(f"the wheel has no native kernels, torch computes instead: {error}")
            self.remove_compiled()
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self.remove_compiled()  # in the checkout they would be used after the sources have changed

    def remove_compiled(self) -> None:
        for path in (Path(self.root) / "triform/kernels/compiled").glob("*.so"):
            path.unlink()
