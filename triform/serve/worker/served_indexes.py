"""The served indexes, described before anything is loaded: their size in memory, and the models they were made with."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from triform.errors import TriformError
from triform.files import manifest
from triform.files.safe_folder import SafeFolder
from triform.hints import Hint
from triform.model import Model
from triform.tasks import supports
from triform.tasks.index_folder import NOTE, READ_BYTES, BadIndex, IndexNote, count_scan_bytes, read_note
from triform.tasks.vector_index import Index, hash_weights


class IndexMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that one index needs: its small files, and what a search holds of those that are mapped."""

    index: str
    files: int
    scan: int

    @property
    def total(self) -> int:
        return self.files + self.scan


class DescribedIndex(NamedTuple):
    """An index: its note and the sizes of its files."""

    name: str
    note: IndexNote
    held: IndexMemory


def describe_index(name: str, folder: Path) -> DescribedIndex:
    """Reads the manifest and the note, not the vectors."""
    box = SafeFolder(folder)
    known = manifest.read(box)
    if known is None or NOTE not in known.files:
        raise BadIndex(f"--index {name}={folder} has no index; make one with: {Hint.INDEX.format(folder=folder)}")
    if damaged := [
        name for name, file in known.files.items() if not box.has(name) or read_size(box, name) != file.bytes
    ]:
        raise BadIndex(f"the index {folder} is damaged: {', '.join(damaged)} was changed; make it again")
    note = read_note(box)
    small = [file.bytes for file in known.files.values() if file.bytes <= READ_BYTES]
    held = IndexMemory(index=name, files=sum(small), scan=count_scan_bytes(note.width))
    return DescribedIndex(name, note, held)


def describe_stored_index(name: str, index: Index) -> DescribedIndex:
    """An index in a database: next to nothing of it is in this process."""
    held = IndexMemory(index=name, files=0, scan=count_scan_bytes(index.note.width))
    return DescribedIndex(name, index.note, held)


def read_size(box: SafeFolder, file: str) -> int:
    with box.open(file) as opened:
        return os.fstat(opened.fileno()).st_size


def check_owners(indexes: Sequence[DescribedIndex], models: Iterable[Model]) -> None:
    """Refuses an index that was made with none of the models; each model is loaded only while it is checked."""
    orphans = {one.name: one.note for one in indexes}
    for model in models:
        if not orphans:
            return
        if supports("search", model):
            numbers = hash_weights(model)
            orphans = {name: note for name, note in orphans.items() if note.numbers != numbers}
    for name, note in orphans.items():
        raise unknown_owner_error(name, note)


def find_owners(note: IndexNote, numbers: Mapping[str, str], *, name: str) -> list[str]:
    """The models an index was made with; `numbers` has the hash of each model's weights."""
    owners = [model for model, made in numbers.items() if made == note.numbers]
    if not owners:
        raise unknown_owner_error(name, note)
    return owners


def unknown_owner_error(name: str, note: IndexNote) -> TriformError:
    """The error for an index whose model is not served."""
    return TriformError(
        f"the index {name!r} was made with {note.model or 'a model'}, which is not served; "
        "serve it too, or make the index again"
    )
