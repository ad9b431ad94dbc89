"""`manifest.json` of the folders that Triform writes: the SHA-256 and the size of every file.

Verified whenever such a folder is read; folders of other programs have none. What was verified is what is used:
`verify` returns each file's identity, and after all has been read `check_unchanged` compares it again.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from triform.files.errors import FileError, list_names, show_value, to_one_line
from triform.files.format_version import CURRENT_FORMAT, FORMAT_KEY, check_version
from triform.files.safe_folder import SafeFolder
from triform.files.strict_json import encode_json

NAME = "manifest.json"
MAKER = "triform"

# Device, inode, size, times of the last write and the last change: equal before and after means not written meanwhile.
Identity: TypeAlias = tuple[int, int, int, int, int]
Identities: TypeAlias = Mapping[str, Identity | None]  # file → None where it is not there


class Fingerprint(msgspec.Struct, frozen=True):
    """Hash and size of one file."""

    sha256: str
    bytes: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a folder held when it was written: the fingerprint of each file."""

    format_version: int = CURRENT_FORMAT
    made_by: str = MAKER
    files: dict[str, Fingerprint]


def read(box: SafeFolder) -> Manifest | None:
    """The manifest of a folder that Triform wrote; None in any other folder. One whose maker was changed is refused."""
    if not box.has(NAME):
        return None
    content = box.parse_object(NAME)
    if content.get("made_by") == MAKER:
        check_version(content.get(FORMAT_KEY, 1), what=box.root / NAME, otherwise="make the folder again with this one")
        try:
            return msgspec.convert(content, Manifest)
        except msgspec.ValidationError as error:
            raise FileError(f"{NAME} is damaged: {to_one_line(error)}") from None
    try:
        files = msgspec.convert(content.get("files"), dict[str, Fingerprint])
    except msgspec.ValidationError:
        return None
    if files:
        raise FileError(
            f"{NAME} in {box.root} was changed: made_by is {show_value(content.get('made_by'))}, not {MAKER!r}; "
            f"fetch or save the model again, or delete {NAME} if you changed it yourself"
        )
    return None


def verify(box: SafeFolder, *, others: tuple[str, ...] = ()) -> Identities:
    """Compares every file with the manifest, where there is one; gives the identity of these and of those `others`."""
    before = read_identities(box, others)
    manifest = read(box)
    if manifest is None:
        return before
    seen = {**before, **read_identities(box, manifest.files)}
    if wrong := find_damaged(box, manifest):
        raise FileError(
            f"{box.root}: {list_names(map(show_value, wrong))} is missing or not as it was written ({NAME}); "
            f"fetch or save the model again, or delete {NAME} if you changed it yourself"
        )
    return seen


def read_identities(box: SafeFolder, names: Iterable[str]) -> Identities:
    """Before they are read."""
    return {name: read_identity(box, name) for name in (NAME, *names)}


def find_damaged(box: SafeFolder, manifest: Manifest) -> list[str]:
    """Files that are missing, or not as they were written."""
    files = manifest.files.items()
    return [name for name, written in files if not box.has(name) or compute_fingerprint(box, name) != written]


def check_unchanged(box: SafeFolder, before: Identities) -> None:
    """What was verified is what was read: nothing was written to these files since."""
    changed = [name for name, before in before.items() if read_identity(box, name) != before]
    if changed:
        raise FileError(
            f"{box.root}: {list_names(map(show_value, changed))} was changed by another program "
            "while it was being read; load it again when that has finished"
        )


def read_identity(box: SafeFolder, name: str) -> Identity | None:
    """The identity of a file, or None if there is none."""
    try:
        return make_identity(os.stat(box.root / name))
    except OSError:
        return None


def make_identity(s: os.stat_result) -> Identity:
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns


def compute_fingerprint(box: SafeFolder, name: str) -> Fingerprint:
    with box.open(name) as file:
        return Fingerprint(hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size)


def write(folder: Path, *, known: Mapping[str, Fingerprint] = MappingProxyType({})) -> None:
    """Writes the manifest of a folder's files; those whose fingerprint is known are not read."""
    box = SafeFolder(folder)
    files = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    manifest = Manifest(
        files={name: known.get(name) or compute_fingerprint(box, name) for name in files if name != NAME}
    )
    (folder / NAME).write_bytes(encode_json(manifest))
