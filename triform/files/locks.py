"""One writer per folder or file: a lock that the system releases when its process ends, however it ends.

    with locks.lock_beside(target):  # `.target.lock`, for a folder or file that is replaced as a whole
    with locks.lock_inside(folder):  # `folder/.lock`, for a folder whose files are written one by one

A second writer is refused at once with the process that writes. The lock is `flock` on a small file (on Windows: a
locked byte), so a killed process leaves no lock, only the file, which the next writer takes over. The same thread may
take its own lock again. On a file system without locks (some network mounts) two writers are not prevented.
"""

import atexit
import errno
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from triform.errors import TriformError

LOCK_NAME = ".lock"
LOCKS_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
MAX_COMMAND_CHARS = 200
BYTE_ON_WINDOWS = 1 << 30  # behind the file's end: a locked byte cannot be read, its content must stay readable


class FolderBusy(TriformError):
    """Another process, or another thread of this one, writes there."""


class WriterLock:
    """Held until `release`, or until the process ends."""

    def __init__(self, path: Path, handle: int, *, made: Sequence[Path]) -> None:
        self.path, self.handle, self.count = path, handle, 1
        self.thread, self.process = threading.get_ident(), os.getpid()
        self.made = made  # the folders that were made for it, the innermost first

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """As often as it was taken; then its file is deleted, and the folders made for it if they are empty."""
        with _GUARD:
            self.count -= 1
            if self.count or _HELD.get(self.path) is not self:
                return
            del _HELD[self.path]
            if self.process == os.getpid():  # a forked child must not delete its parent's file
                _remove(self.path)
            os.close(self.handle)
            if os.name == "nt":
                _remove(self.path)  # an open file cannot be deleted there
            with suppress(OSError):
                for folder in self.made:
                    folder.rmdir()


_GUARD = threading.Lock()
_HELD: dict[Path, WriterLock] = {}


def lock_beside(target: Path) -> WriterLock:
    """For a folder or file that is replaced as a whole."""
    place = Path(os.path.abspath(target))
    return _take(place.with_name(f".{place.name}{LOCK_NAME}"), target, made=())


def lock_leftover(target: Path) -> WriterLock:
    """For what a killed process may have left: refused while anything writes it, also this thread."""
    place = Path(os.path.abspath(target))
    path = place.with_name(f".{place.name}{LOCK_NAME}")
    if path in _HELD:
        raise FolderBusy(f"{target} is being written by this process")
    return _take(path, target, made=())


def lock_inside(folder: Path) -> WriterLock:
    """For a folder that stays and whose files are written one by one; it is made where it is not there."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TriformError(f"cannot write {folder}: {error.strerror or error}") from error
    return _take(Path(os.path.realpath(folder)) / LOCK_NAME, folder, made=made)


def find_writer_inside(folder: Path) -> str:
    """The other process that holds the folder's lock; nothing where there is none."""
    path = Path(os.path.realpath(folder)) / LOCK_NAME
    with _GUARD:
        if path in _HELD:
            return ""
        try:
            handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        except OSError:
            return ""
        try:
            return "" if _try_lock(handle) else _read_owner(handle) or "another process"
        except OSError:
            return ""
        finally:
            os.close(handle)


def _take(path: Path, target: Path, *, made: Sequence[Path]) -> WriterLock:
    with _GUARD:
        held = _HELD.get(path)
        if held is not None and held.process == os.getpid():
            if held.thread != threading.get_ident():
                raise FolderBusy(f"{target} is being written by another thread of this process; wait for it")
            held.count += 1
            return held
        try:
            handle = _open_locked(path, target)
            _write_owner(handle)
        except OSError as error:
            raise TriformError(f"cannot write {target}: {error.strerror or error}") from error
        _HELD[path] = lock = WriterLock(path, handle, made=made)
        return lock


def _open_locked(path: Path, target: Path) -> int:
    """Opens and locks the lock's file; again where its last owner has just deleted it."""
    while True:
        # Never through a link: what the owner writes into it must not land in another file.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            if not _try_lock(handle):
                owner = _read_owner(handle) or "another process"
                raise FolderBusy(f"{target} is being written by {owner}; wait for it, or give another place")
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(path)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        os.lseek(handle, BYTE_ON_WINDOWS, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(handle, 0, os.SEEK_SET)
        return True
else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in LOCKS_UNSUPPORTED:
                raise
        return True


def _write_owner(handle: int) -> None:
    command = " ".join(sys.argv)[:MAX_COMMAND_CHARS]
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    os.ftruncate(handle, 0)
    os.write(handle, f"process {os.getpid()} (since {since}: {command})\n".encode("utf-8", "replace"))


def _read_owner(handle: int) -> str:
    """What its owner wrote about itself; nothing where it has not yet, or it is not text."""
    text = os.read(handle, 4 * MAX_COMMAND_CHARS + 200).decode("utf-8", "replace").strip()
    return text if text.isprintable() else ""


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _release_all() -> None:
    for lock in list(_HELD.values()):
        if lock.process == os.getpid():
            lock.count = 1
            lock.release()


atexit.register(_release_all)
