"""A folder takes the place of another: at every moment the old one or the new one stands under the name.

On Linux the two names are exchanged in one system call. Elsewhere, and on file systems that cannot, the old folder is
put aside under `.name.<hex>.old` for the moment between two renames; a process that is killed in that moment leaves it
there, and the next process that opens or writes the folder puts it back.
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
from triform.files.atomic_file import make_folder, sync, sync_tree
from triform.files.locks import FolderBusy, lock_beside

ASIDE = ".old"
RENAME_EXCHANGE = 2  # linux/fs.h
CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)
PAUSE_SECONDS, MAX_PAUSES = 0.02, 50  # while the writer of a folder has put it aside


@contextmanager
def draft_folder(target: Path) -> Iterator[Path]:
    """A draft to write into, which takes the target's place when the block ends without an error. The caller holds the
    lock."""
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    draft.mkdir()
    try:
        yield draft
        sync_tree(draft)
        take_place(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # by now it may be the old folder


@contextmanager
def create_folder(target: Path) -> Iterator[Path]:
    """A draft of a folder that several processes may make at once with the same content: the first one stays."""
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    make_folder(target.parent)
    with lock_beside(draft):  # so that others see that it is not left by a killed process
        try:
            draft.mkdir()
            yield draft
            sync_tree(draft)
            try:
                os.rename(draft, target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            sync(target.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def take_place(draft: Path, target: Path) -> None:
    """The draft takes the target's name in one step; what was there is the draft afterwards."""
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


def find_leftovers(target: Path) -> list[Path]:
    """Drafts and folders put aside, the newest last."""
    known = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}({re.escape(ASIDE)})?")
    with suppress(OSError, ValueError):
        paths = [target.parent / name for name in os.listdir(target.parent) if known.fullmatch(name)]
        return sorted(paths, key=lambda path: path.stat().st_ctime_ns)
    return []


def clear_leftovers(target: Path) -> None:
    """For the writer that holds the target's lock: any leftover is of a process that was killed."""
    _put_back(target)
    for path in find_leftovers(target):
        shutil.rmtree(path, ignore_errors=True)


def restore_folder(folder: Path) -> None:
    """Puts back a folder that a killed process has put aside; waits a moment while a live one replaces it."""
    target = Path(os.path.abspath(folder))
    for _ in range(MAX_PAUSES):
        if os.path.lexists(target) or not any(path.name.endswith(ASIDE) for path in find_leftovers(target)):
            return
        try:
            with lock_beside(target):
                _put_back(target)
                return
        except FolderBusy:
            time.sleep(PAUSE_SECONDS)
        except (TriformError, OSError):  # it cannot be written there: then there is no such folder
            return


def _put_back(target: Path) -> None:
    aside = [path for path in find_leftovers(target) if path.name.endswith(ASIDE)]
    if aside and not os.path.lexists(target):
        os.rename(aside[-1], target)
        sync(target.parent)


def delete_folder(folder: Path) -> None:
    """Under another name first: a folder half deleted must not look like a whole one."""
    draft = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    with suppress(FileNotFoundError):  # another process has deleted it
        os.rename(folder, draft)
        shutil.rmtree(draft, ignore_errors=True)
