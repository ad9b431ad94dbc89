"""A folder that appears whole or not at all.

It is written under another name beside its place, synced to disk, and only then renamed (`replace_folder.py`), by one
process at a time (`locks.py`). A folder that Triform wrote and that holds nothing else is replaced; any other is left
alone. A model that is written into the folder of its run moves in file by file, those that make it a model last.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from triform.files import manifest
from triform.files.atomic_file import make_folder, sync, sync_tree
from triform.files.errors import FileError, list_names
from triform.files.locks import lock_beside, lock_inside
from triform.files.replace_folder import clear_leftovers, draft_folder
from triform.files.safe_folder import SafeFolder


@contextmanager
def lock_folder(folder: Path) -> Iterator[Path]:
    """No other process writes the folder while the block runs; leftovers of killed ones are deleted."""
    target = Path(os.path.abspath(folder))
    with _say_where(folder):
        made = make_folder(target.parent)
    try:
        with lock_beside(target):
            with _say_where(folder):
                clear_leftovers(target)
            yield target
    finally:
        with suppress(OSError):  # those that are not empty stay
            for path in made:
                path.rmdir()


@contextmanager
def write_folder(folder: Path) -> Iterator[Path]:
    """A draft to write into; it takes the folder's name when the block ends without an error. One writer at a time."""
    with lock_folder(folder) as target, _say_where(folder):
        check_free(folder)
        with draft_folder(target) as draft:
            yield draft
            check_free(folder)  # again: meanwhile others may have written something there


@contextmanager
def _say_where(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(f"cannot write {folder}: {error.strerror or error}; nothing was left there") from error


@contextmanager
def write_into_folder(folder: Path, *, last_files: tuple[str, ...]) -> Iterator[Path]:
    """A draft whose files move into a folder when the block ends without an error; what else is there stays.

    Without the files named `last_files` the folder is no model: they go first and come last, in this order, each
    file whole. So whenever this is killed there is no model or a whole one, and it can be done again.
    """
    draft = folder / f".moving-in.{secrets.token_hex(4)}"
    try:
        with lock_inside(folder):
            for left in folder.glob(".moving-in.*"):
                shutil.rmtree(left)
            draft.mkdir()
            try:
                yield draft
                sync_tree(draft)
                _move_in(draft, folder, last=last_files)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise FileError(f"cannot write {folder}: {error.strerror or error}; what was there before stays") from error


def _move_in(draft: Path, folder: Path, *, last: tuple[str, ...]) -> None:
    for left in reversed(last):
        (folder / left).unlink(missing_ok=True)
    sync(folder)
    files = [path.relative_to(draft) for path in sorted(draft.rglob("*")) if path.is_file()]
    for name in sorted(files, key=lambda name: (last.index(str(name)) + 1) if str(name) in last else 0):
        (folder / name).parent.mkdir(exist_ok=True)
        os.replace(draft / name, folder / name)
        sync((folder / name).parent)


def check_free(folder: Path) -> None:
    """Nothing is there, or an empty folder, or one that Triform wrote and that holds nothing else."""
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise FileError(f"{folder} is not a folder; give another name")
    files = [
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()
    ]
    ours = manifest.read(SafeFolder(folder))
    known = {manifest.NAME, *ours.files} if ours else set()
    if strange := [name for name in files if name not in known]:
        raise FileError(f"{folder} already holds {list_names(sorted(strange))}; give another name, or empty it first")
