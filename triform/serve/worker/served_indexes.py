"""The indexes to be searched in, known by their notes before anything is loaded: their size, and whose they are.

Refuses to know how they are searched.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from triform.errors import TriformError
from triform.files import manifest
from triform.files.safe_folder import Box, parse
from triform.hints import Hint
from triform.model import Model
from triform.tasks import named
from triform.tasks.vector_index import GRAPH, NOTE, PASSAGES, VECTORS, BadIndex, Note, numbers_of

PASSAGE = 256  # bytes of the objects that hold a passage, beside its text


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one index."""

    index: str
    vectors: int
    passages: int
    graph: int

    @property
    def total(self) -> int:
        return self.vectors + self.passages + self.graph


class Described(NamedTuple):
    """An index by its note and the sizes of its files."""

    name: str
    note: Note
    held: Held


def described(name: str, folder: Path) -> Described:
    """What its manifest and its note say; its vectors are not read."""
    box = Box(folder)
    known = manifest.read(box)
    if known is None or not {NOTE, PASSAGES, VECTORS} <= known.files.keys():
        raise BadIndex(f"--index {name}={folder} holds no index; make one with: {Hint.INDEX.format(folder=folder)}")
    if missing := [file for file, said in known.files.items() if not box.has(file) or size_of(box, file) != said.bytes]:
        raise BadIndex(f"the index {folder} is damaged: {', '.join(missing)} is not as it was written; make it again")
    with box.open(NOTE) as told:
        note: Note = parse(told.read(), NOTE, Note)
    count = sum(file.passages for file in note.files.values())
    held = Held(
        index=name,
        vectors=size_of(box, VECTORS),
        passages=size_of(box, PASSAGES) + PASSAGE * count,
        graph=size_of(box, GRAPH) if box.has(GRAPH) else 0,
    )
    return Described(name, note, held)


def size_of(box: Box, file: str) -> int:
    with box.open(file) as opened:
        return os.fstat(opened.fileno()).st_size


def check_owners(indexes: Sequence[Described], models: Iterable[Model]) -> None:
    """Refuses an index that was made with none of the models; each is loaded only while it is looked at."""
    orphans = {one.name: one.note for one in indexes}
    for model in models:
        if not orphans:
            return
        if model.tokenizer is not None and named("search").fits(model):
            numbers = numbers_of(model)
            orphans = {name: note for name, note in orphans.items() if note.numbers != numbers}
    for name, note in orphans.items():
        raise nobodys(name, note)


def owners(note: Note, numbers: Mapping[str, str], *, name: str) -> list[str]:
    """Of models by the hashes of their numbers, those an index was made with."""
    found = [model for model, made in numbers.items() if made == note.numbers]
    if not found:
        raise nobodys(name, note)
    return found


def nobodys(name: str, note: Note) -> TriformError:
    return TriformError(
        f"the index {name!r} was made with {note.model or 'a model'}, which is none of those served; "
        "serve it too, or make the index again"
    )
