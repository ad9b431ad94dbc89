"""Which services run on this machine: each notes itself in a file of its own, `triform ps` reads them."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from triform.files.atomic_file import write_file


class RunningService(msgspec.Struct, frozen=True, kw_only=True):
    """A service, by its process."""

    pid: int
    address: str
    models: tuple[str, ...]
    began: float  # seconds since 1970


@contextmanager
def note_running(folder: Path, *, address: str, models: Sequence[str]) -> Iterator[None]:
    """While the block runs, the service is noted; a folder that cannot be written to hinders nothing."""
    noted = RunningService(pid=os.getpid(), address=address, models=tuple(models), began=time.time())
    path = folder / f"{noted.pid}.json"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_file(path, msgspec.json.encode(noted))
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()


def list_running(folder: Path) -> list[RunningService]:
    """Those whose process is there; notes that a killed process left behind are removed."""
    found = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            service = msgspec.json.decode(path.read_bytes(), type=RunningService)
        except (OSError, msgspec.DecodeError):
            continue
        if is_alive(service.pid):
            found.append(service)
        else:
            with suppress(OSError):
                path.unlink()
    return found


def is_alive(pid: int) -> bool:
    """Whether a process of this number exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
