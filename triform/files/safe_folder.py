"""One folder and nothing outside it (`triform/files/safe_path.py` has the rule), and in it plain files only."""

import io
import os
import stat
from pathlib import Path
from typing import Any

import msgspec

from triform.files.duplicate_keys import find_duplicate_key
from triform.files.errors import WeightsError, one_line, shown
from triform.files.replace_folder import restore
from triform.files.safe_path import really

SMALL = 4 << 20  # bytes of a config, an index or a header: far more than any released model needs


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
            real = really(self.root, name)
            # A named pipe would be waited for without end: opened without waiting, then refused.
            handle = os.open(real, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        except (OSError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or "it is a link that leads nowhere"
            raise WeightsError(f"{shown(name)} in {self.root} cannot be opened: {reason}") from None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise WeightsError(f"{shown(name)} in {self.root} is not a plain file")
        return os.fdopen(handle, "rb")

    def read(self, name: str) -> bytes:
        """All of a small file."""
        with self.open(name) as file:
            data = file.read(SMALL + 1)
        if len(data) > SMALL:
            raise WeightsError(f"{name} in {self.root} is larger than {SMALL >> 20} MiB; no model needs that")
        return data

    def json(self, name: str) -> Any:
        return parse(self.read(name), name)


def parse(data: bytes, name: str, kind: Any = dict[str, Any]) -> Any:
    """JSON of this kind, or one line that says why not."""
    try:
        value = msgspec.json.decode(data, type=kind)
        twice = find_duplicate_key(data)
    except (ValueError, RecursionError) as error:  # msgspec's and json's errors are ValueErrors
        raise WeightsError(f"{name} is damaged: {one_line(error)}") from None
    if twice is not None:
        raise WeightsError(f"{name} is damaged: it has the key {shown(twice)} twice; keep one of them")
    return value
