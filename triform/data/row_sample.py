"""A sample of rows, for an evaluation or a quick fit."""

from collections.abc import Sequence
from itertools import islice
from typing import cast

from triform.data.rows import Document, R
from triform.data.shuffle import order

USUAL_CHARACTERS = 500  # per row: a sample of documents has at most `most` times as many


def sample_rows(rows: Sequence[R], *, most: int) -> list[R]:
    """At most `most` random rows; of documents the first ones, with as much text as that many usual rows."""
    if rows and isinstance(rows[0], Document):
        return cast(list[R], take_documents(cast(Sequence[Document], rows), characters=most * USUAL_CHARACTERS))
    return [rows[int(index)] for index in islice(order(len(rows), seed=0, epoch=0).walk(0), most)]


def take_documents(rows: Sequence[Document], *, characters: int) -> list[Document]:
    """The first documents, cut after this many characters in total."""
    taken: list[Document] = []
    for row in rows:
        if characters <= 0:
            break
        taken.append(row if len(row.text) <= characters else Document(row.text[:characters]))
        characters -= len(row.text)
    return taken
