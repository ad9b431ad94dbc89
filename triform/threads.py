"""How many threads torch uses, and how they wait for each other: set before torch is imported.

OpenMP threads spin at a barrier before they sleep. On a busy machine the thread they wait for has no core, and the
spinning takes the time it needs: two trainings on two cores took 8 to 20 times as long per step as one alone. A short
spin costs a single process nothing measurable (`docs/lab.md`).
"""

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

from triform.control_groups import ROOT, read_cpu_limits

SPIN_COUNT = "1000"  # rounds of libgomp's barrier before a thread sleeps; its own default is millions


def prepare_threads(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set what OpenMP reads when torch is imported, unless the user has set it; without effect after that import."""
    if not environment.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
        environment["GOMP_SPINCOUNT"] = SPIN_COUNT
    cores = count_cores()
    if cores < (os.cpu_count() or 1):
        environment.setdefault("OMP_NUM_THREADS", str(cores))


def count_cores(root: Path = ROOT) -> int:
    """Cores this process may use: by its affinity (`taskset`, cpusets) and by its control groups' quotas."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([affinity, *(int(limit) for limit in read_cpu_limits(root))]))


def set_threads(count: int) -> None:
    """Use this many threads from now on, whether or not torch is imported already."""
    os.environ["OMP_NUM_THREADS"] = str(count)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(count)
