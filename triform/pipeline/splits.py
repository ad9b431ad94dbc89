"""The rows a run learns from and those it is judged by, found where a person points, linted, and told apart.

Held-out rows follow from the rows alone: the same data is always divided the same way, in whatever order it comes, and
rows that show a model the same thing are never on both sides. Rows stay on disk; memory holds a few bytes for each.
Refuses to know tokens and models.
"""

import hashlib
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, cast

import msgspec
import numpy as np
import numpy.typing as npt

from triform.data.array_store import Cache
from triform.data.columns import Layout
from triform.data.input_paths import Paths, splits
from triform.data.lint import Report, lint
from triform.data.readers import AS_NAMED
from triform.data.row_cache import Part, Rows, digest
from triform.data.rows import Document, Question, R, Row
from triform.tasks.task import Task

LONGEST = 100_000  # characters of a text from which on lint names it; documents may be as long as they like
FEW_DOCUMENTS = 20  # up to here their common end is held out, not some of them

Hashes: TypeAlias = dict[str, str]  # file → SHA-256
Sides: TypeAlias = tuple[Sequence[R], Sequence[R]]  # to learn from, to be judged by


class Material(NamedTuple, Generic[R]):
    """`held_out`: the validation rows are a part of the data, not files of their own. `fingerprint` is of `train`."""

    train: Sequence[R]
    valid: Sequence[R]
    held_out: bool
    files: Hashes
    valid_files: Hashes
    report: Report
    fingerprint: str


class Collected(NamedTuple, Generic[R]):
    """All rows that can be read, before it is known how many are held out; `given` are those of validation files."""

    rows: Rows[R]
    given: Rows[R] | None
    report: Report


def collect(
    task: Task[R, Any, Any],
    data: Paths,
    *,
    valid: Paths | None,
    cache: Cache,
    strict: bool = False,
    layout: Layout = AS_NAMED,
) -> Collected[R]:
    """Validation files are named, or stand beside those to train on."""
    valid = valid or beside(data, task.kind, layout)
    report = linted(task.kind, data, valid=valid, layout=layout)
    if strict:
        report.refuse()
    rows = Rows(data, kind=task.kind, cache=cache, layout=layout)
    return Collected(rows, None if valid is None else Rows(valid, kind=task.kind, cache=cache, layout=layout), report)


def hold_out(collected: Collected[R], *, share: float) -> Material[R]:
    """`share` of the rows is held out where there are no validation files."""
    rows, given, report = collected
    train, judged = divided(rows, share=share) if given is None else (rows, given)
    return Material(
        train=train,
        valid=judged,
        held_out=given is None,
        files=rows.hashes,
        valid_files={} if given is None else given.hashes,
        report=report,
        fingerprint=digest(rows.fingerprint, share if given is None else 0),
    )


def linted(kind: type[Row], data: Paths, *, valid: Paths | None, layout: Layout = AS_NAMED) -> Report:
    return lint(data, kind=kind, valid=valid, layout=layout, longest=None if kind is Document else LONGEST)


def beside(data: Paths, kind: type[Row], layout: Layout = AS_NAMED) -> Paths | None:
    """The validation files of a folder, where it has some."""
    if not isinstance(data, str | Path) or not Path(data).is_dir():
        return None
    return splits(data, kind=kind, format=layout.format).valid or None


# --- held out -------------------------------------------------------------------------------------------------------


def divided(rows: Sequence[R], *, share: float) -> Sides[R]:
    """Rows to learn from and rows to be judged by, at least one of each; one row alone is only learned from."""
    if not share:
        return rows, []
    texts = _texts(rows)
    if len(texts.keys) <= FEW_DOCUMENTS and rows and isinstance(rows[0], Document):
        return cast(Sides[R], _cut(cast(Sequence[Document], rows), share=share))
    different = np.unique(texts.keys)
    count = min(max(1, round(share * len(different))), len(different) - 1)
    held = np.isin(texts.keys, different[: max(0, count)])[texts.owners]
    learned, judged = (Part(rows, np.flatnonzero(side), instead={}) for side in (~held, held))
    return learned, judged


class _Texts(NamedTuple):
    """A key for each text, of what a model is shown of it; and for each row the number of the text it is a piece of."""

    keys: npt.NDArray[np.uint64]
    owners: npt.NDArray[np.int64]


def _texts(rows: Sequence[Row]) -> _Texts:
    keys, owners = array("Q"), array("q")
    ends = True
    for row in rows:
        if ends:
            owners.append(len(keys))
            keys.append(0)
            content, sign = hashlib.sha256(b"["), b""
        else:
            owners.append(len(keys) - 1)
        content.update(sign + msgspec.json.encode(_shown(row)))
        sign, ends = b",", not (isinstance(row, Document) and row.goes_on)
        whole = content.copy()
        whole.update(b"]")
        keys[-1] = int.from_bytes(whole.digest()[:8], "big")
    return _Texts(np.array(keys, np.uint64), np.array(owners, np.int64))


def _shown(row: Row) -> object:
    """What a model is shown; of questions the context alone, since others may ask about it too."""
    return row.context if isinstance(row, Question) else row.shown


def _cut(rows: Sequence[Document], *, share: float) -> Sides[Document]:
    """The last share of all characters, from the beginning of a line."""
    ends = np.cumsum([len(row.text) for row in rows])
    left = round((1 - share) * int(ends[-1]))
    at = int(np.searchsorted(ends, left, side="right"))
    if at == len(rows):
        return rows, []
    row = rows[at]
    left -= int(ends[at]) - len(row.text)
    line = row.text.rfind("\n", 0, left) + 1 or left
    tail = Document(row.text[line:], goes_on=row.goes_on)
    judged = Part(rows, range(at, len(rows)), instead={at: tail})
    # What is learned ends here, whether a piece or a text ends here.
    last = at if line else at - 1
    head = {last: Document(rows[last].text[: line or None])} if last >= 0 else {}
    return Part(rows, range(last + 1), instead=head), judged
