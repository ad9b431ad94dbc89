"""How much memory there is for this process: the least that its control groups allow, in both versions of them."""

from pathlib import Path

import pytest

from triform.observe.machine import group_limits, memory


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
    assert sorted(group_limits(tree(tmp_path, told, bounds))) == found


def test_where_there_are_no_groups(tmp_path: Path) -> None:
    assert list(group_limits(tmp_path)) == []
    assert memory() > 0
