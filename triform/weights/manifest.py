"""Our own folders say what is in them: `manifest.json` holds the SHA-256 and the size of every file.

Verified whenever such a folder is read. Folders of others have none and are read without.
"""

import hashlib
import os
from pathlib import Path

import msgspec

from triform.weights.box import Box, parse
from triform.weights.errors import WeightsError, listed, shown

NAME = "manifest.json"
MAKER = "triform"


class Fingerprint(msgspec.Struct, frozen=True):
    sha256: str
    bytes: int


class Manifest(msgspec.Struct, frozen=True):
    made_by: str
    files: dict[str, Fingerprint]


def read(box: Box) -> Manifest | None:
    """The manifest of a folder of ours; None in any other folder."""
    if not box.has(NAME) or box.json(NAME).get("made_by") != MAKER:
        return None
    manifest: Manifest = parse(box.read(NAME), NAME, Manifest)
    return manifest


def verify(box: Box) -> None:
    manifest = read(box)
    if manifest is None:
        return
    wrong = [name for name, said in manifest.files.items() if not box.has(name) or fingerprint(box, name) != said]
    if wrong:
        raise WeightsError(
            f"{box.root}: {listed(map(shown, wrong))} is missing or not as it was written ({NAME}); "
            f"fetch or save the model again, or delete {NAME} if you changed it yourself"
        )


def fingerprint(box: Box, name: str) -> Fingerprint:
    with box.open(name) as file:
        return Fingerprint(hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size)


def write(folder: Path) -> None:
    box = Box(folder)
    files = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    manifest = Manifest(made_by=MAKER, files={name: fingerprint(box, name) for name in files if name != NAME})
    (folder / NAME).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
