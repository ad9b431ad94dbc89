"""Cross-validation folds: rows divided into parts of about equal size with similar labels.

The division depends only on the rows, and rows with the same input are in the same fold.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from triform.data.rows import DataRow


def assign_folds(rows: Sequence[DataRow], *, folds: int) -> list[int]:
    """The fold of each row, from 0: rows sorted by label are assigned in turn."""
    shown = [msgspec.json.encode(row.shown) for row in rows]
    first: dict[bytes, tuple[tuple[str, ...], bytes]] = {}
    for row, text in zip(rows, shown, strict=True):
        first.setdefault(text, (tuple(sorted(row.classes)), hashlib.sha256(text).digest()))
    fold_of = {text: place % folds for place, text in enumerate(sorted(first, key=first.__getitem__))}
    return [fold_of[text] for text in shown]
