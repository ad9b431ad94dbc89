"""What control groups allow a process, memory and processor time, in both versions of them."""

from pathlib import Path

import pytest

from triform.control_groups import read_cpu_limits, read_memory_limits
from triform.costs.machine import usable_memory
from triform.threads import count_cores


def tree(root: Path, told: str, bounds: dict[str, str]) -> Path:
    for name, text in {
        "proc/self/cgroup": told,
        **{f"sys/fs/cgroup/{at}": text for at, text in bounds.items()},
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


UNIT = "0::/system.slice/triform.service"
GROUPS = [
    (UNIT, {"system.slice/triform.service/memory.max": "4000", "system.slice/memory.max": "max"}, [4000]),
    (UNIT, {"system.slice/triform.service/memory.max": "max", "system.slice/memory.max": "3000"}, [3000]),
    (UNIT, {"system.slice/triform.service/memory.max": "4000", "system.slice/memory.max": "3000"}, [3000, 4000]),
    ("0::/", {"memory.max": "5000"}, [5000]),  # a container sees its own group as the root
    ("0::/../other", {"memory.max": "5000"}, [5000]),
    ("9:cpu:/a\n4:memory:/a/b\n0::/", {"memory/a/memory.limit_in_bytes": "70", "memory.max": "max"}, [70]),
    ("4:cpuset,memory:/a", {"memory/memory.limit_in_bytes": "80", "memory/a/memory.limit_in_bytes": "90"}, [80, 90]),
    (UNIT, {"other.slice/memory.max": "10"}, []),
]


@pytest.mark.parametrize(("told", "bounds", "found"), GROUPS)
def test_every_group_up_the_tree_counts(tmp_path: Path, told: str, bounds: dict[str, str], found: list[int]) -> None:
    assert sorted(read_memory_limits(tree(tmp_path, told, bounds))) == found


def test_where_there_are_no_groups(tmp_path: Path) -> None:
    assert read_memory_limits(tmp_path) == read_cpu_limits(tmp_path) == []
    assert usable_memory() > 0


CPU_GROUPS = [
    (UNIT, {"system.slice/triform.service/cpu.max": "150000 100000", "system.slice/cpu.max": "max 100000"}, [1.5]),
    (UNIT, {"system.slice/triform.service/cpu.max": "max 100000", "system.slice/cpu.max": "50000 100000"}, [0.5]),
    ("9:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "200000", "cpu/a/cpu.cfs_period_us": "100000"}, [2.0]),
    (
        "9:cpu,cpuacct:/a",
        {
            "cpu/cpu.cfs_quota_us": "-1",
            "cpu/cpu.cfs_period_us": "50000",
            "cpu/a/cpu.cfs_quota_us": "100000",
            "cpu/a/cpu.cfs_period_us": "100000",
        },
        [1.0],
    ),
    (UNIT, {"cpu.max": "100000 0", "system.slice/cpu.max": "damaged"}, []),
]


@pytest.mark.parametrize(("told", "bounds", "found"), CPU_GROUPS)
def test_processor_time_of_every_group(tmp_path: Path, told: str, bounds: dict[str, str], found: list[float]) -> None:
    assert read_cpu_limits(tree(tmp_path, told, bounds)) == found


def test_cores_are_the_least_of_affinity_and_quotas(tmp_path: Path) -> None:
    """A quota of one and a half cores is one thread: a second would be stopped half of the time."""
    assert count_cores(tree(tmp_path / "quota", "0::/", {"cpu.max": "150000 100000"})) == 1
    assert count_cores(tree(tmp_path / "little", "0::/", {"cpu.max": "20000 100000"})) == 1
    assert count_cores(tree(tmp_path / "much", "0::/", {"cpu.max": "9900000 100000"})) == count_cores(tmp_path / "none")
