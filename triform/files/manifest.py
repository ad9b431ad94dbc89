"""Our own folders say what is in them: `manifest.json` holds the SHA-256 and the size of every file.

Verified whenever such a folder is read. Folders of others have none and are read without. What was verified is what is
used: `verify` gives each file's identity, and after all has been read `check_unchanged` compares it again.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from triform.files.errors import WeightsError, listed, shown
from triform.files.safe_folder import Box, parse

NAME = "manifest.json"
MAKER = "triform"

# Device, inode, size, times of the last write and the last change: equal before and after means not written meanwhile.
Identity: TypeAlias = tuple[int, int, int, int, int]
Seen: TypeAlias = Mapping[str, Identity | None]  # file → None where it is not there


class Fingerprint(msgspec.Struct, frozen=True):
    sha256: str
    bytes: int


class Manifest(msgspec.Struct, frozen=True):
    made_by: str
    files: dict[str, Fingerprint]


class _Shape(msgspec.Struct, frozen=True):
    """What makes a file a manifest of ours, whoever it says made it."""

    files: dict[str, Fingerprint]


def read(box: Box) -> Manifest | None:
    """The manifest of a folder of ours; None in any other folder. One that was changed is not taken for another's."""
    if not box.has(NAME):
        return None
    said = box.json(NAME)
    if said.get("made_by") != MAKER:
        if not _has_our_shape(said):
            return None
        raise WeightsError(
            f"{NAME} in {box.root} was changed: made_by is {shown(said.get('made_by'))}, not {MAKER!r}; "
            f"fetch or save the model again, or delete {NAME} if you changed it yourself"
        )
    manifest: Manifest = parse(box.read(NAME), NAME, Manifest)
    return manifest


def _has_our_shape(said: Mapping[str, object]) -> bool:
    try:
        return bool(msgspec.convert(said, _Shape).files)
    except msgspec.ValidationError:
        return False


def verify(box: Box, *, always: tuple[str, ...] = ()) -> Seen:
    """Compares every file with the manifest, where there is one; gives the identity of these and of those `always`."""
    before = watch(box, always)
    manifest = read(box)
    if manifest is None:
        return before
    seen = {**before, **watch(box, manifest.files)}
    if wrong := damaged(box, manifest):
        raise WeightsError(
            f"{box.root}: {listed(map(shown, wrong))} is missing or not as it was written ({NAME}); "
            f"fetch or save the model again, or delete {NAME} if you changed it yourself"
        )
    return seen


def watch(box: Box, names: Iterable[str]) -> Seen:
    """Before they are read."""
    return {name: identity(box, name) for name in (NAME, *names)}


def damaged(box: Box, manifest: Manifest) -> list[str]:
    """Files that are missing, or not as they were written."""
    return [name for name, said in manifest.files.items() if not box.has(name) or fingerprint(box, name) != said]


def check_unchanged(box: Box, seen: Seen) -> None:
    """What was verified is what was read: nothing was written to these files since."""
    changed = [name for name, before in seen.items() if identity(box, name) != before]
    if changed:
        raise WeightsError(
            f"{box.root}: {listed(map(shown, changed))} was changed by another program while it was being read; "
            "load it again when that has finished"
        )


def identity(box: Box, name: str) -> Identity | None:
    try:
        return identity_of(os.stat(box.root / name))
    except OSError:
        return None


def identity_of(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def fingerprint(box: Box, name: str) -> Fingerprint:
    with box.open(name) as file:
        return Fingerprint(hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size)


def write(folder: Path) -> None:
    box = Box(folder)
    files = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    manifest = Manifest(made_by=MAKER, files={name: fingerprint(box, name) for name in files if name != NAME})
    (folder / NAME).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
