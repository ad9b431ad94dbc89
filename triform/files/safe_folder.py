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
from triform.files.errors import FileError, show_value
from triform.files.replace_folder import restore_folder
from triform.files.strict_json import parse_json

MiB = 1 << 20
MAX_JSON_BYTES = 4 * MiB  # of a config, an index or a header: far more than any released model needs
T = TypeVar("T")


class OutsideFolder(TriformError):
    """A file that lies outside its folder."""


class SafeFolder:
    """A folder whose files are opened by name, never outside of it."""

    def __init__(self, folder: str | Path) -> None:
        try:
            restore_folder(Path(folder))
            self.root = Path(folder).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            raise FileError(f"there is no folder {show_value(str(folder))}") from None
        if not self.root.is_dir():
            raise FileError(f"{show_value(str(folder))} is not a folder; give the folder that holds config.json")

    def has(self, name: str) -> bool:
        return os.path.lexists(self.root / name)

    def list_names(self) -> list[str]:
        return sorted(os.listdir(self.root))

    def open(self, name: str) -> io.BufferedReader:
        try:
            # A named pipe would be waited for without end: opened without waiting, then refused.
            flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            handle = os.open(self._resolve(name), flags)
        except (OSError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or "it is a link that leads nowhere"
            raise FileError(f"cannot read {show_value(name)} in {self.root}: {reason}") from None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise FileError(f"{show_value(name)} in {self.root} is not a regular file")
        return os.fdopen(handle, "rb")

    def _resolve(self, name: str) -> Path:
        real = (self.root / name).resolve(strict=True)
        blobs = self.root.parent.parent / "blobs" if self.root.parent.name == "snapshots" else None
        if not real.is_relative_to(self.root) and real.parent != blobs:
            raise OutsideFolder(f"{name!r} leads out of {self.root}; copy the file itself into the folder")
        return real

    def read(self, name: str, *, limit: int = MAX_JSON_BYTES) -> bytes:
        """All of a small file."""
        with self.open(name) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise FileError(f"{name} in {self.root} is larger than the {limit:,} bytes such a file may have")
        return data

    def parse(self, name: str, kind: type[T]) -> T:
        return parse_json(self.read(name), type=kind, what=name, unique_keys=True)

    def parse_object(self, name: str) -> Any:
        return self.parse(name, dict[str, Any])


def read_inside(folder: Path, *, name: str, limit: int) -> bytes | None:
    """The bytes of `folder/name`, or None where there is no such file."""
    box = SafeFolder(folder)
    return box.read(name, limit=limit) if box.has(name) else None
