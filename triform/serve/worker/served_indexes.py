"""The served indexes, described before anything is loaded: their size in memory, and the models they were made with."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from triform.errors import TriformError
from triform.files import manifest
from triform.files.safe_folder import Box
from triform.hints import Hint
from triform.model import Model
from triform.tasks import supports
from triform.tasks.vector_index import GRAPH, NOTE, PASSAGES, VECTORS, BadIndex, Note, numbers_of, read_note

PASSAGE_OVERHEAD_BYTES = 256  # of the Python objects that hold a passage, besides its text


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that one index needs."""

    index: str
    vectors: int
    passages: int
    graph: int

    @property
    def total(self) -> int:
        return self.vectors + self.passages + self.graph


class Described(NamedTuple):
    """An index: its note and the sizes of its files."""

    name: str
    note: Note
    held: Held


def described(name: str, folder: Path) -> Described:
    """Reads the manifest and the note, not the vectors."""
    box = Box(folder)
    known = manifest.read(box)
    if known is None or not {NOTE, PASSAGES, VECTORS} <= known.files.keys():
        raise BadIndex(f"--index {name}={folder} has no index; make one with: {Hint.INDEX.format(folder=folder)}")
    if damaged := [name for name, file in known.files.items() if not box.has(name) or size_of(box, name) != file.bytes]:
        raise BadIndex(f"the index {folder} is damaged: {', '.join(damaged)} was changed; make it again")
    note = read_note(box)
    count = sum(file.passages for file in note.files.values())
    held = Held(
        index=name,
        vectors=size_of(box, VECTORS),
        passages=size_of(box, PASSAGES) + PASSAGE_OVERHEAD_BYTES * count,
        graph=size_of(box, GRAPH) if box.has(GRAPH) else 0,
    )
    return Described(name, note, held)


def size_of(box: Box, file: str) -> int:
    with box.open(file) as opened:
        return os.fstat(opened.fileno()).st_size


def check_owners(indexes: Sequence[Described], models: Iterable[Model]) -> None:
    """Refuses an index that was made with none of the models; each model is loaded only while it is checked."""
    orphans = {one.name: one.note for one in indexes}
    for model in models:
        if not orphans:
            return
        if supports("search", model):
            numbers = numbers_of(model)
            orphans = {name: note for name, note in orphans.items() if note.numbers != numbers}
    for name, note in orphans.items():
        raise nobodys(name, note)


def owners(note: Note, numbers: Mapping[str, str], *, name: str) -> list[str]:
    """The models an index was made with; `numbers` has the hash of each model's weights."""
    owners = [model for model, made in numbers.items() if made == note.numbers]
    if not owners:
        raise nobodys(name, note)
    return owners


def nobodys(name: str, note: Note) -> TriformError:
    return TriformError(
        f"the index {name!r} was made with {note.model or 'a model'}, which is not served; "
        "serve it too, or make the index again"
    )
