"""A folder that appears whole or not at all.

It is written under another name beside its place, brought to disk, and only then given its name. A folder of ours that
holds nothing else is replaced; anything else that stands there is left alone. Where a model must come into a folder
that holds other things already (the run it was trained in), its files move in one by one, those that make the folder
a model last.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from triform.weights import manifest
from triform.weights.box import Box
from triform.weights.errors import WeightsError, listed


@contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """A draft to write into; it takes the folder's name when the block ends without an error."""
    target = Path(os.path.abspath(folder))
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        check_free(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir()
        try:
            yield draft
            bring_to_disk(draft)
            take_place(draft, target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
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
        for left in folder.glob(".moving-in.*"):
            shutil.rmtree(left)
        draft.mkdir()
        try:
            yield draft
            bring_to_disk(draft)
            for known in reversed(last):
                (folder / known).unlink(missing_ok=True)
            _sync(folder)
            files = [path.relative_to(draft) for path in sorted(draft.rglob("*")) if path.is_file()]
            for name in sorted(files, key=lambda name: (last.index(str(name)) + 1) if str(name) in last else 0):
                (folder / name).parent.mkdir(exist_ok=True)
                os.replace(draft / name, folder / name)
                _sync((folder / name).parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise WeightsError(f"cannot write {folder}: {error.strerror or error}; what was there before stays") from error


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


def bring_to_disk(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        _sync(path)


def _sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # folders cannot be opened there
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def take_place(draft: Path, target: Path) -> None:
    """The folder that stood there before is put aside first, and put back if this fails."""
    old = draft.with_name(f"{draft.name}.old")
    if target.exists():
        os.rename(target, old)
    try:
        os.rename(draft, target)
    except OSError:
        if old.exists():
            os.rename(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)
    _sync(target.parent)
