"""A folder takes the place of another: at every moment the old one or the new one stands under the name.

On Linux the two names are exchanged in one system call. Elsewhere, and on file systems that cannot, the old folder is
put aside under `.name.<hex>.old` for the moment between two renames; a process that is killed in that moment leaves it
there, and the next process that opens or writes the folder puts it back. Refuses to know what is in a folder.
"""

import ctypes
import errno
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from triform.errors import TriformError
from triform.files.locks import FolderBusy, lock_beside

ASIDE = ".old"
RENAME_EXCHANGE = 2  # linux/fs.h
CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)
PAUSE, MAX_PAUSES = 0.02, 50  # seconds between two looks for a folder that its writer has put aside, and how many


@contextmanager
def drafting(target: Path) -> Iterator[Path]:
    """A draft to write into, which takes the target's place when the block ends without an error. The caller keeps
    other writers away."""
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    draft.mkdir()
    try:
        yield draft
        bring_to_disk(draft)
        take_place(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # by now it may be the old folder


def take_place(draft: Path, target: Path) -> None:
    if not target.exists():
        os.rename(draft, target)
        sync(target.parent)
    elif exchange(draft, target):
        sync(target.parent)
    else:
        _put_aside_and_rename(draft, target)


def _put_aside_and_rename(draft: Path, target: Path) -> None:
    """For systems that cannot exchange two names; the old folder is put back if the new one cannot take its place."""
    aside = draft.with_name(f"{draft.name}{ASIDE}")
    os.rename(target, aside)
    try:
        os.rename(draft, target)
    except OSError:
        os.rename(aside, target)
        raise
    sync(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


def exchange(one: Path, other: Path) -> bool:
    """Two names exchanged in one step; False where the system or the file system cannot."""
    if sys.platform != "linux":
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    here = -100  # AT_FDCWD: paths are taken as they are
    if not renameat2(here, os.fsencode(one), here, os.fsencode(other), RENAME_EXCHANGE):
        return True
    number = ctypes.get_errno()
    if number in CANNOT_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(other))


# --- what killed processes leave ------------------------------------------------------------------------------------


def leftovers(target: Path) -> list[Path]:
    """Drafts and folders put aside, the newest last."""
    known = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}({re.escape(ASIDE)})?")
    with suppress(OSError, ValueError):
        found = [target.parent / name for name in os.listdir(target.parent) if known.fullmatch(name)]
        return sorted(found, key=lambda path: path.stat().st_ctime_ns)
    return []


def clear_leftovers(target: Path) -> None:
    """For the one writer of the target, who holds its lock: whatever is there is of a process that was killed."""
    _put_back(target)
    for path in leftovers(target):
        shutil.rmtree(path, ignore_errors=True)


def restore(folder: Path) -> None:
    """Puts back a folder that a killed process left aside; while a live one is at it, waits a moment for it."""
    target = Path(os.path.abspath(folder))
    for _ in range(MAX_PAUSES):
        if os.path.lexists(target) or not any(path.name.endswith(ASIDE) for path in leftovers(target)):
            return
        try:
            with lock_beside(target):
                _put_back(target)
                return
        except FolderBusy:
            time.sleep(PAUSE)
        except (TriformError, OSError):  # it cannot be written there: then there is no such folder
            return


def _put_back(target: Path) -> None:
    aside = [path for path in leftovers(target) if path.name.endswith(ASIDE)]
    if aside and not os.path.lexists(target):
        os.rename(aside[-1], target)
        sync(target.parent)


# --- to disk --------------------------------------------------------------------------------------------------------


def make_folder(folder: Path) -> list[Path]:
    """With all above it, each of them entered in its parent on disk; gives those that were missing, innermost first."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync(path.parent)
    return missing


def bring_to_disk(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        sync(path)


def sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # folders cannot be opened there
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
