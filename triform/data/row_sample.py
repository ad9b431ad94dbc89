"""A few of many rows: those an evaluation judges by, or a quick fit learns from."""

from collections.abc import Sequence
from itertools import islice
from typing import cast

from triform.data.rows import Document, R
from triform.data.shuffle import order

USUAL_CHARACTERS = 500  # of a row: an evaluation reads at most so many times its rows


def sample_rows(rows: Sequence[R], *, most: int) -> list[R]:
    """At most so many rows, and as much text as they usually have; any of them, but of documents the first."""
    if rows and isinstance(rows[0], Document):
        return cast(list[R], take_documents(cast(Sequence[Document], rows), characters=most * USUAL_CHARACTERS))
    return [rows[int(index)] for index in islice(order(len(rows), seed=0, epoch=0).walk(0), most)]


def take_documents(rows: Sequence[Document], *, characters: int) -> list[Document]:
    """The first ones, cut where they exceed so many characters together."""
    kept: list[Document] = []
    for row in rows:
        if characters <= 0:
            break
        kept.append(row if len(row.text) <= characters else Document(row.text[:characters]))
        characters -= len(row.text)
    return kept
