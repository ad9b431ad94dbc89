"""Training and validation rows of a run: read, linted and split.

The split depends on the rows alone: the same data is always split the same way, in whatever order it comes, and rows
with the same input are never on both sides. Rows stay on disk; a few bytes per row are in memory.
"""

import hashlib
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, cast

import msgspec
import numpy as np
import numpy.typing as npt

from triform.data.array_store import FolderCache
from triform.data.columns import Layout
from triform.data.input_paths import Paths, find_inputs, find_splits
from triform.data.lint import LintReport, lint
from triform.data.readers import DEFAULT_LAYOUT
from triform.data.row_cache import CachedRows, RowSubset, digest
from triform.data.rows import AnsweredQuestionRow, DataRow, DocumentRow, R
from triform.tasks.task import Task

MAX_CHARACTERS = 100_000  # of a text, above which lint reports it; documents may be longer
FEW_DOCUMENTS = 20  # up to here the end of all text is held out, not whole documents

Hashes: TypeAlias = dict[str, str]  # file → SHA-256
TrainValid: TypeAlias = tuple[Sequence[R], Sequence[R]]


class DataSplit(NamedTuple, Generic[R]):
    """`held_out`: the validation rows are part of the data, not from own files. `fingerprint` is of `train`."""

    train: Sequence[R]
    valid: Sequence[R]
    held_out: bool
    files: Hashes
    valid_files: Hashes
    report: LintReport
    fingerprint: str


class CollectedRows(NamedTuple, Generic[R]):
    """All readable rows, before the split; `given` are those of validation files."""

    rows: CachedRows[R]
    given: CachedRows[R] | None
    report: LintReport


def collect_rows(
    task: Task[R, Any, Any],
    data: Paths,
    *,
    valid: Paths | None,
    cache: FolderCache,
    strict: bool = False,
    layout: Layout = DEFAULT_LAYOUT,
) -> CollectedRows[R]:
    """Reads and lints the data; validation files are named, or are in the same folder."""
    valid = valid or find_validation_files(data, task.kind, layout)
    if valid is not None:
        find_inputs(valid, kind=task.kind, format=layout.format)  # missing files are an error before the data is read
    report = lint_data(task.kind, data, valid=valid, layout=layout)
    if strict:
        report.refuse()
    rows = CachedRows(data, kind=task.kind, cache=cache, layout=layout)
    return CollectedRows(
        rows, None if valid is None else CachedRows(valid, kind=task.kind, cache=cache, layout=layout), report
    )


def hold_out(collected: CollectedRows[R], *, share: float) -> DataSplit[R]:
    """Holds out `share` of the rows if there are no validation files."""
    rows, given, report = collected
    train, valid = split_rows(rows, share=share) if given is None else (rows, given)
    return DataSplit(
        train=train,
        valid=valid,
        held_out=given is None,
        files=rows.hashes,
        valid_files={} if given is None else given.hashes,
        report=report,
        fingerprint=digest(rows.fingerprint, share if given is None else 0),
    )


def lint_data(kind: type[DataRow], data: Paths, *, valid: Paths | None, layout: Layout = DEFAULT_LAYOUT) -> LintReport:
    return lint(data, kind=kind, valid=valid, layout=layout, longest=None if kind is DocumentRow else MAX_CHARACTERS)


def find_validation_files(data: Paths, kind: type[DataRow], layout: Layout = DEFAULT_LAYOUT) -> Paths | None:
    """The validation files of a folder, if it has some."""
    if not isinstance(data, str | Path) or not Path(data).is_dir():
        return None
    return find_splits(data, kind=kind, format=layout.format).valid or None


# --- split ----------------------------------------------------------------------------------------------------------


def split_rows(rows: Sequence[R], *, share: float) -> TrainValid[R]:
    """Training and validation rows, at least one of each; a single row is for training."""
    if not share:
        return rows, []
    texts = _hash_texts(rows)
    if len(texts.keys) <= FEW_DOCUMENTS and rows and isinstance(rows[0], DocumentRow):
        return cast(TrainValid[R], _cut_end(cast(Sequence[DocumentRow], rows), share=share))
    different = np.unique(texts.keys)
    count = min(max(1, round(share * len(different))), len(different) - 1)
    held = np.isin(texts.keys, different[: max(0, count)])[texts.owners]
    train, valid = (RowSubset(rows, np.flatnonzero(side), instead={}) for side in (~held, held))
    return train, valid


class _Texts(NamedTuple):
    """A hash per text, of the model's input; and per row the number of its text (a text may be several rows)."""

    keys: npt.NDArray[np.uint64]
    owners: npt.NDArray[np.int64]


def _hash_texts(rows: Sequence[DataRow]) -> _Texts:
    keys, owners = array("Q"), array("q")
    ends = True
    for row in rows:
        if ends:
            owners.append(len(keys))
            keys.append(0)
            content, separator = hashlib.sha256(b"["), b""
        else:
            owners.append(len(keys) - 1)
        content.update(separator + msgspec.json.encode(_input(row)))
        separator, ends = b",", not (isinstance(row, DocumentRow) and row.goes_on)
        whole = content.copy()
        whole.update(b"]")
        keys[-1] = int.from_bytes(whole.digest()[:8], "big")
    return _Texts(np.array(keys, np.uint64), np.array(owners, np.int64))


def _input(row: DataRow) -> object:
    """The model's input; of questions the context alone, since it may have several questions."""
    return row.context if isinstance(row, AnsweredQuestionRow) else row.shown


def _cut_end(rows: Sequence[DocumentRow], *, share: float) -> TrainValid[DocumentRow]:
    """Holds out the last share of all characters, from the beginning of a line."""
    ends = np.cumsum([len(row.text) for row in rows])
    left = round((1 - share) * int(ends[-1]))
    at = int(np.searchsorted(ends, left, side="right"))
    if at == len(rows):
        return rows, []
    row = rows[at]
    left -= int(ends[at]) - len(row.text)
    line = row.text.rfind("\n", 0, left) + 1 or left
    tail = DocumentRow(row.text[line:], goes_on=row.goes_on)
    valid = RowSubset(rows, range(at, len(rows)), instead={at: tail})
    # The training text ends here, within a text or not.
    last = at if line else at - 1
    head = {last: DocumentRow(rows[last].text[: line or None])} if last >= 0 else {}
    return RowSubset(rows, range(last + 1), instead=head), valid
