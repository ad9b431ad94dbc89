"""One folder and nothing outside it, and in it regular files of bounded size only.

A file is opened only where it really lies inside its folder, links followed. One exception: in a snapshot of a hub
cache (`…/snapshots/<revision>`) the files are links into `…/blobs`, so there a link may lead to a file that lies
directly in those blobs. Everything else that leads out is refused.
"""

import io
import os
import stat
from pathlib import Path
from typing import Any, TypeVar

from triform.errors import TriformError
from triform.files.errors import WeightsError, shown
from triform.files.replace_folder import restore
from triform.files.strict_json import parse_json

MiB = 1 << 20
MAX_JSON_BYTES = 4 * MiB  # of a config, an index or a header: far more than any released model needs
T = TypeVar("T")


class LeadsOut(TriformError):
    """A file that lies outside its folder."""


class Box:
    def __init__(self, folder: str | Path) -> None:
        try:
            restore(Path(folder))
            self.root = Path(folder).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            raise WeightsError(f"there is no folder {shown(str(folder))}") from None
        if not self.root.is_dir():
            raise WeightsError(f"{shown(str(folder))} is not a folder; give the folder that holds config.json")

    def has(self, name: str) -> bool:
        return os.path.lexists(self.root / name)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.root))

    def open(self, name: str) -> io.BufferedReader:
        try:
            # A named pipe would be waited for without end: opened without waiting, then refused.
            flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            handle = os.open(self._resolve(name), flags)
        except (OSError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or "it is a link that leads nowhere"
            raise WeightsError(f"cannot read {shown(name)} in {self.root}: {reason}") from None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise WeightsError(f"{shown(name)} in {self.root} is not a regular file")
        return os.fdopen(handle, "rb")

    def _resolve(self, name: str) -> Path:
        real = (self.root / name).resolve(strict=True)
        blobs = self.root.parent.parent / "blobs" if self.root.parent.name == "snapshots" else None
        if not real.is_relative_to(self.root) and real.parent != blobs:
            raise LeadsOut(f"{name!r} leads out of {self.root}; copy the file itself into the folder")
        return real

    def read(self, name: str, *, limit: int = MAX_JSON_BYTES) -> bytes:
        """All of a small file."""
        with self.open(name) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise WeightsError(f"{name} in {self.root} is larger than the {limit:,} bytes such a file may have")
        return data

    def parse(self, name: str, kind: type[T]) -> T:
        return parse_json(self.read(name), type=kind, what=name, unique_keys=True)

    def json(self, name: str) -> Any:
        return self.parse(name, dict[str, Any])


def read_inside(folder: Path, *, name: str, limit: int) -> bytes | None:
    """The bytes of `folder/name`, or None where there is no such file."""
    box = Box(folder)
    return box.read(name, limit=limit) if box.has(name) else None
