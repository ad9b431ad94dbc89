"""A sample of rows, for an evaluation or a quick fit."""

from collections.abc import Sequence
from itertools import islice
from typing import cast

from triform.data.rows import DocumentRow, R
from triform.data.shuffle import make_order

USUAL_CHARACTERS = 500  # per row: a sample of documents has at most `most` times as many


def sample_rows(rows: Sequence[R], *, most: int) -> list[R]:
    """At most `most` random rows; of documents the first ones, with as much text as that many usual rows."""
    if rows and isinstance(rows[0], DocumentRow):
        return cast(list[R], take_documents(cast(Sequence[DocumentRow], rows), characters=most * USUAL_CHARACTERS))
    return [rows[int(index)] for index in islice(make_order(len(rows), seed=0, epoch=0).walk(0), most)]


def take_documents(rows: Sequence[DocumentRow], *, characters: int) -> list[DocumentRow]:
    """The first documents, cut after this many characters in total."""
    taken: list[DocumentRow] = []
    for row in rows:
        if characters <= 0:
            break
        taken.append(row if len(row.text) <= characters else DocumentRow(row.text[:characters]))
        characters -= len(row.text)
    return taken
