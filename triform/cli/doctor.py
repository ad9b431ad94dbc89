"""`triform doctor`"""

import json
import platform
import shutil
from importlib.metadata import version

import click

GIB = 2**30


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object.")
def doctor(as_json: bool) -> None:
    """Say what Triform finds on this machine: kernels, instruction set, threads, versions, memory, disk.

    \b
    Examples:
      triform doctor
      triform doctor --json | jq .kernels
      TRIFORM_KERNELS=off triform doctor
    """
    found = examine_machine()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        click.echo(f"{name.replace('_', ' '):16} {value}")


def examine_machine() -> dict[str, str | int | float | None]:
    """One line per finding; `kernels` is native or torch, with the reason where it is torch."""
    import torch

    from triform.costs.machine import usable_memory
    from triform.kernels.instruction_sets import find_usable_sets
    from triform.kernels.library import find_loaded_kernels
    from triform.threads import count_cores
    from triform.weights.model_store import home_folder

    library, reason = find_loaded_kernels()
    store = home_folder()
    existing = next(folder for folder in (store, *store.parents) if folder.exists())
    return {
        "kernels": f"torch (slower): {reason}" if library is None else "native",
        "instruction_set": None if library is None else library.instruction_set,
        "usable": ", ".join(each.name for each in find_usable_sets()),
        "library": None if library is None else str(library.path),
        "threads": torch.get_num_threads(),
        "cores": count_cores(),
        "memory_gib": round(usable_memory() / GIB, 1),
        "store": str(store),
        "free_disk_gib": round(shutil.disk_usage(existing).free / GIB, 1),
        "triform": version("triform"),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
