"""Rows divided into parts of about equal size and alike in labels, so that each part can be judged by the others.

The division follows from the rows alone, and rows that show a model the same thing are in the same part.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from triform.data.rows import Row


def number_folds(rows: Sequence[Row], *, folds: int) -> list[int]:
    """The number of the fold of each row, from 0: rows in the order of their labels are dealt out one by one."""
    shown = [msgspec.json.encode(row.shown) for row in rows]
    first: dict[bytes, tuple[tuple[str, ...], bytes]] = {}
    for row, text in zip(rows, shown, strict=True):
        first.setdefault(text, (tuple(sorted(row.classes)), hashlib.sha256(text).digest()))
    dealt = {text: place % folds for place, text in enumerate(sorted(first, key=first.__getitem__))}
    return [dealt[text] for text in shown]
