"""A folder that appears whole or not at all.

It is written under another name beside its place, synced to disk, and only then renamed (`replace_folder.py`), by one
process at a time (`locks.py`). A folder of ours that holds nothing else is replaced; anything else is left alone. Where
a model must come into a folder that holds other things already (the run it was trained in), its files move in one by
one, those that make the folder a model last.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from triform.files import manifest
from triform.files.errors import WeightsError, listed
from triform.files.locks import lock_beside, lock_inside
from triform.files.replace_folder import bring_to_disk, clear_leftovers, drafting, make_folder, sync
from triform.files.safe_folder import Box


@contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """No other process writes the folder while the block runs; what killed ones have left beside it is cleared."""
    target = Path(os.path.abspath(folder))
    with _told(folder):
        made = make_folder(target.parent)
    try:
        with lock_beside(target):
            with _told(folder):
                clear_leftovers(target)
            yield target
    finally:
        with suppress(OSError):  # those that something was written into stay
            for path in made:
                path.rmdir()


@contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """A draft to write into; it takes the folder's name when the block ends without an error. One writer at a time."""
    with writing(folder) as target, _told(folder):
        check_free(folder)
        with drafting(target) as draft:
            yield draft
            check_free(folder)  # again: it took a while, and others may have put something there


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WeightsError(f"cannot write {folder}: {error.strerror or error}; nothing was left there") from error


@contextmanager
def moving_in(folder: Path, *, last: tuple[str, ...]) -> Iterator[Path]:
    """A draft whose files move into a folder when the block ends without an error; what else is there stays.

    Without the files named `last` the folder is no model: they go first and come last, in this order, each file whole.
    So whenever this is killed there is no model or a whole one, and it can be done again.
    """
    draft = folder / f".moving-in.{secrets.token_hex(4)}"
    try:
        with lock_inside(folder):
            for left in folder.glob(".moving-in.*"):
                shutil.rmtree(left)
            draft.mkdir()
            try:
                yield draft
                bring_to_disk(draft)
                _move_in(draft, folder, last=last)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise WeightsError(f"cannot write {folder}: {error.strerror or error}; what was there before stays") from error


def _move_in(draft: Path, folder: Path, *, last: tuple[str, ...]) -> None:
    for known in reversed(last):
        (folder / known).unlink(missing_ok=True)
    sync(folder)
    files = [path.relative_to(draft) for path in sorted(draft.rglob("*")) if path.is_file()]
    for name in sorted(files, key=lambda name: (last.index(str(name)) + 1) if str(name) in last else 0):
        (folder / name).parent.mkdir(exist_ok=True)
        os.replace(draft / name, folder / name)
        sync((folder / name).parent)


def check_free(folder: Path) -> None:
    """Nothing stands there, or an empty folder, or a folder we wrote and nobody has added to."""
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise WeightsError(f"{folder} is not a folder; give another name")
    files = [
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()
    ]
    ours = manifest.read(Box(folder))
    known = {manifest.NAME, *ours.files} if ours else set()
    if strange := [name for name in files if name not in known]:
        raise WeightsError(f"{folder} already holds {listed(sorted(strange))}; give another name, or empty it first")
