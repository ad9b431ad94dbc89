"""Limits from the control groups (cgroups) of this process: bytes of memory, processor time.

A container, a systemd unit and its slice are nested control groups; each may have a limit of its own.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")


def read_memory_limits(root: Path = ROOT) -> list[int]:
    """Bytes, from the group of this process and all groups above it."""
    version_1 = _read_files(root, "memory", "memory.limit_in_bytes")
    version_2 = _read_files(root, "", "memory.max")
    return [int(text) for text in (*version_1, *version_2) if text.isdigit()]


def read_cpu_limits(root: Path = ROOT) -> list[float]:
    """Cores: `200000 100000` (quota, period) in cpu.max are 2 cores; version 1 has one file per number."""
    quotas = [*_read_files(root, "cpu", "cpu.cfs_quota_us"), *_read_files(root, "", "cpu.max")]
    periods = _read_files(root, "cpu", "cpu.cfs_period_us")
    limits = []
    for text in quotas:
        quota, _, period = text.partition(" ")
        period = period or next(periods, "")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            limits.append(int(quota) / int(period))
    return limits


def _read_files(root: Path, controller: str, name: str) -> Iterator[str]:
    """The file of that name in each group. /proc/self/cgroup names the group, as `0::/system.slice/x.service`; in
    version 1, with one tree per controller, as `9:memory:/docker/x`.
    """
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                yield from _read_upwards(root / "sys/fs/cgroup" / controller, path, name)


def _read_upwards(top: Path, path: str, name: str) -> Iterator[str]:
    parts = [part for part in path.split("/") if part not in ("", "..")]  # inside a container, a group may be above `/`
    for depth in range(len(parts) + 1):
        with suppress(OSError):
            yield top.joinpath(*parts[:depth], name).read_text().strip()
