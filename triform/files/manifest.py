"""`manifest.json` of the folders that Triform writes: the SHA-256 and the size of every file.

Verified whenever such a folder is read; folders of other programs have none. What was verified is what is used:
`verify` returns each file's identity, and after all has been read `check_unchanged` compares it again.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from triform.files.errors import WeightsError, listed, one_line, shown
from triform.files.format_version import FORMAT, KEY, check_version
from triform.files.safe_folder import Box
from triform.files.strict_json import encode_json

NAME = "manifest.json"
MAKER = "triform"

# Device, inode, size, times of the last write and the last change: equal before and after means not written meanwhile.
Identity: TypeAlias = tuple[int, int, int, int, int]
Seen: TypeAlias = Mapping[str, Identity | None]  # file → None where it is not there


class Fingerprint(msgspec.Struct, frozen=True):
    sha256: str
    bytes: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format_version: int = FORMAT
    made_by: str = MAKER
    files: dict[str, Fingerprint]


def read(box: Box) -> Manifest | None:
    """The manifest of a folder that Triform wrote; None in any other folder. One whose maker was changed is refused."""
    if not box.has(NAME):
        return None
    content = box.json(NAME)
    if content.get("made_by") == MAKER:
        check_version(content.get(KEY, 1), what=box.root / NAME, otherwise="make the folder again with this one")
        try:
            return msgspec.convert(content, Manifest)
        except msgspec.ValidationError as error:
            raise WeightsError(f"{NAME} is damaged: {one_line(error)}") from None
    try:
        files = msgspec.convert(content.get("files"), dict[str, Fingerprint])
    except msgspec.ValidationError:
        return None
    if files:
        raise WeightsError(
            f"{NAME} in {box.root} was changed: made_by is {shown(content.get('made_by'))}, not {MAKER!r}; "
            f"fetch or save the model again, or delete {NAME} if you changed it yourself"
        )
    return None


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
    files = manifest.files.items()
    return [name for name, written in files if not box.has(name) or fingerprint(box, name) != written]


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


def identity_of(s: os.stat_result) -> Identity:
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns


def fingerprint(box: Box, name: str) -> Fingerprint:
    with box.open(name) as file:
        return Fingerprint(hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size)


def write(folder: Path) -> None:
    box = Box(folder)
    files = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    manifest = Manifest(files={name: fingerprint(box, name) for name in files if name != NAME})
    (folder / NAME).write_bytes(encode_json(manifest))
