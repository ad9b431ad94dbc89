"""ROUGE-1, ROUGE-2 and ROUGE-Lsum, counted as the rouge-score package counts them (without stemming).

Words are runs of a–z and 0–9 in small letters; sentences of ROUGE-Lsum are lines. Refuses to know models.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

WORD = re.compile(r"[a-z0-9]+")


class Rouge(NamedTuple):
    """F1, from 0 to 1."""

    one: float
    two: float
    lsum: float


def rouge(text: str, *, reference: str) -> Rouge:
    words, right = words_of(text), words_of(reference)
    return Rouge(n_grams(words, right, 1), n_grams(words, right, 2), lsum(text, reference))


def best_rouge(text: str, *, references: Sequence[str]) -> Rouge:
    """With several references, for each measure the one that fits best."""
    each = [rouge(text, reference=reference) for reference in references]
    return Rouge(*(max(values) for values in zip(*each, strict=True)))


def words_of(text: str) -> list[str]:
    return WORD.findall(text.lower())


def f1(hits: int, said: int, right: int) -> float:
    """2 · precision · recall / (precision + recall) = 2 · hits / (said + right)"""
    precision, recall = hits / max(1, said), hits / max(1, right)
    return 2 * precision * recall / (precision + recall) if hits else 0.0


def n_grams(words: Sequence[str], right: Sequence[str], n: int) -> float:
    said, meant = (Counter(zip(*(each[k:] for k in range(n)), strict=False)) for each in (words, right))
    return f1((said & meant).total(), said.total(), meant.total())


def lsum(text: str, reference: str) -> float:
    """For each sentence of the reference: its words in a longest common subsequence with a sentence of the text.

    A word of the text is counted no more often than it stands there, nor one of the reference.
    """
    said, meant = ([words_of(line) for line in each.split("\n") if line] for each in (text, reference))
    left_said, left_meant = (Counter(word for line in each for word in line) for each in (said, meant))
    totals = left_said.total(), left_meant.total()
    hits = 0
    for line in meant:
        for at in sorted(set().union(*(common(line, other) for other in said))):
            if left_said[line[at]] > 0 and left_meant[line[at]] > 0:
                hits += 1
                left_said[line[at]] -= 1
                left_meant[line[at]] -= 1
    return f1(hits, *totals)


def common(line: Sequence[str], other: Sequence[str]) -> set[int]:
    """Places in `line` of one longest common subsequence with `other`."""
    table = [[0] * (len(other) + 1) for _ in range(len(line) + 1)]
    for i, word in enumerate(line, start=1):
        for j, against in enumerate(other, start=1):
            table[i][j] = table[i - 1][j - 1] + 1 if word == against else max(table[i - 1][j], table[i][j - 1])
    found, i, j = set(), len(line), len(other)
    while i and j:
        if line[i - 1] == other[j - 1]:
            found.add(i - 1)
            i, j = i - 1, j - 1
        elif table[i][j - 1] > table[i - 1][j]:
            j -= 1
        else:
            i -= 1
    return found
