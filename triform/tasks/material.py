"""The rows a run learns from and those it is judged by, found where a person points, linted, and told apart.

Held-out rows follow from the rows alone: the same data is always divided the same way, in whatever order it comes, and
rows that show a model the same thing are never on both sides. Refuses to know tokens and models.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, cast

import msgspec

from triform.data.cache import file_hash
from triform.data.lint import Report, lint
from triform.data.order import order
from triform.data.readers import read
from triform.data.rows import Bad, Document, Question, R, Row
from triform.data.sources import Paths, sources, splits
from triform.tasks.task import Task

LONGEST = 100_000  # characters of a text from which on lint names it; documents may be as long as they like
FEW_DOCUMENTS = 20  # up to here their common end is held out, not some of them
USUAL = 500  # characters of a row: an evaluation reads at most so many times its rows

Hashes: TypeAlias = dict[str, str]  # file → SHA-256


class Material(NamedTuple, Generic[R]):
    """`held_out`: the validation rows are a part of the data, not files of their own."""

    train: list[R]
    valid: list[R]
    held_out: bool
    files: Hashes
    valid_files: Hashes
    report: Report


def material(
    task: Task[R, Any, Any], data: Paths, *, valid: Paths | None, share: float, strict: bool = False
) -> Material[R]:
    """`share` of the data is held out where there are no validation files, named or beside those to train on."""
    valid = valid or beside(data, task.kind)
    report = linted(task.kind, data, valid=valid)
    if strict:
        report.refuse()
    rows = good(data, task.kind)
    train, judged = divided(rows, share=share) if valid is None else (rows, good(valid, task.kind))
    return Material(
        train=train,
        valid=judged,
        held_out=valid is None,
        files=hashes(data, task.kind),
        valid_files={} if valid is None else hashes(valid, task.kind),
        report=report,
    )


def linted(kind: type[Row], data: Paths, *, valid: Paths | None) -> Report:
    return lint(data, kind=kind, valid=valid, longest=None if kind is Document else LONGEST)


def beside(data: Paths, kind: type[Row]) -> Paths | None:
    """The validation files of a folder, where it has some."""
    if not isinstance(data, str | Path) or not Path(data).is_dir():
        return None
    return splits(data, kind=kind).valid or None


def good(paths: Paths, kind: type[R]) -> list[R]:
    return [row for row in read(paths, kind=kind) if not isinstance(row, Bad)]


def hashes(paths: Paths, kind: type[Row]) -> Hashes:
    return {str(file): file_hash(file) for source in sources(paths, kind=kind) for file in source.files}


def few(rows: Sequence[R], *, most: int) -> list[R]:
    """At most so many rows, and as much text as they usually have; any of them, but of documents the first."""
    if rows and isinstance(rows[0], Document):
        return cast(list[R], _first(cast(Sequence[Document], rows), characters=most * USUAL))
    return [rows[int(index)] for index in order(len(rows), seed=0, epoch=0).walk(0)][:most]


# --- held out -------------------------------------------------------------------------------------------------------


def divided(rows: list[R], *, share: float) -> tuple[list[R], list[R]]:
    """Rows to learn from and rows to be judged by, at least one of each; one row alone is only learned from."""
    if not share:
        return rows, []
    if rows and isinstance(rows[0], Document):
        texts = _texts(cast(list[Document], rows))
        if len(texts) <= FEW_DOCUMENTS:
            return cast(tuple[list[R], list[R]], _cut(cast(list[Document], rows), share=share))
        groups = cast(list[list[R]], texts)
    else:
        groups = [[row] for row in rows]
    keys = [_key(group) for group in groups]
    different = sorted(set(keys))
    count = min(max(1, round(share * len(different))), len(different) - 1)
    held = set(different[:count])
    sides: tuple[list[R], list[R]] = ([], [])
    for key, group in zip(keys, groups, strict=True):
        sides[key in held].extend(group)
    return sides


def _key(group: Sequence[Row]) -> bytes:
    """What a model is shown; of questions the context alone, since others may ask about it too."""
    shown = [row.context if isinstance(row, Question) else row.shown for row in group]
    return hashlib.sha256(msgspec.json.encode(shown)).digest()


def _texts(rows: list[Document]) -> list[list[Document]]:
    """The pieces of each text."""
    texts: list[list[Document]] = [[]]
    for row in rows:
        texts[-1].append(row)
        if not row.goes_on:
            texts.append([])
    return [text for text in texts if text]


def _cut(rows: list[Document], *, share: float) -> tuple[list[Document], list[Document]]:
    """The last share of all characters, from the beginning of a line."""
    left = round((1 - share) * sum(len(row.text) for row in rows))
    for at, row in enumerate(rows):
        if left < len(row.text):
            line = row.text.rfind("\n", 0, left) + 1 or left
            head, tail = Document(row.text[:line]), Document(row.text[line:], goes_on=row.goes_on)
            return [*rows[:at], head] if head.text else rows[:at], [tail, *rows[at + 1 :]]
        left -= len(row.text)
    return rows, []


def _first(rows: Sequence[Document], *, characters: int) -> list[Document]:
    kept: list[Document] = []
    for row in rows:
        if characters <= 0:
            break
        kept.append(row if len(row.text) <= characters else Document(row.text[:characters]))
        characters -= len(row.text)
    return kept
