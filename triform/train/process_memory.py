"""The memory of this process, as Linux records it; 0 where there is no such record."""

from contextlib import suppress
from pathlib import Path


def resident() -> int:
    """Bytes it holds now."""
    return _status("VmRSS")


def peak() -> int:
    """The most bytes it has ever held."""
    return _status("VmHWM")


def forget_peak() -> None:
    """From here on `peak` is of what follows, where the system lets a process say so."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _status(name: str) -> int:
    place = Path("/proc/self/status")
    lines = place.read_text().splitlines() if place.is_file() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(name)), 0)
