"""Entities judged as the field counts them (seqeval's default): an entity is right if its kind and both ends are.

An I-x that continues nothing begins an entity. Refuses to know tokens and texts.
"""

from collections.abc import Collection, Hashable, Sequence
from typing import NamedTuple


class Stretch(NamedTuple):
    """Words first to last, both included, are an entity of this kind."""

    kind: str
    first: int
    last: int


class EntityScore(NamedTuple):
    """In hundredths."""

    f1: float
    precision: float
    recall: float


def entities(tags: Sequence[str]) -> list[Stretch]:
    """The entities that O, B-x and I-x say, in their order."""
    found: list[Stretch] = []
    open_kind: str | None = None
    for at, tag in enumerate(tags):
        kind = None if tag == "O" else tag[2:]
        if kind is not None and (tag[0] == "B" or kind != open_kind):
            found.append(Stretch(kind, at, at))
        elif kind is not None:
            found[-1] = found[-1]._replace(last=at)
        open_kind = kind
    return found


def entity_score(right: Sequence[Collection[Hashable]], answered: Sequence[Collection[Hashable]]) -> EntityScore:
    """Over the entities of all texts together; 0 where there is nothing to divide by."""
    hits = sum(len(set(one) & set(other)) for one, other in zip(right, answered, strict=True))
    there, said = sum(map(len, right)), sum(map(len, answered))
    return EntityScore(_share(2 * hits, there + said), _share(hits, said), _share(hits, there))


def _share(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
