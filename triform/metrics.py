"""Metrics as their reference packages compute them: labels, entities, question answering, ROUGE, ranking.

In percent, as papers print them, except ROUGE and question answering, which are from 0 to 1.
"""

import re
import string
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
ROUGE_WORD = re.compile(r"[a-z0-9]+")

Numbers = npt.NDArray[np.float64]

# --- labels -----------------------------------------------------------------------------------------------------------


def accuracy(true_labels: Sequence[tuple[str, ...]], predicted_labels: Sequence[tuple[str, ...]]) -> float:
    """The share of texts whose labels are exactly the true ones, in any order."""
    hits = sum(set(one) == set(other) for one, other in zip(true_labels, predicted_labels, strict=True))
    return 100 * hits / max(1, len(true_labels))


def macro_f1(true_labels: Sequence[tuple[str, ...]], predicted_labels: Sequence[tuple[str, ...]]) -> float:
    """The mean over labels of 2·hits / (times true + times predicted)."""
    true, predicted = (
        Counter(label for labels in rows for label in set(labels)) for rows in (true_labels, predicted_labels)
    )
    hits = Counter(
        label for one, other in zip(true_labels, predicted_labels, strict=True) for label in set(one) & set(other)
    )
    names = true.keys() | predicted.keys()
    return 100 * sum(2 * hits[x] / (true[x] + predicted[x]) for x in names) / max(1, len(names))


def count_confusions(true_labels: Sequence[str], predicted_labels: Sequence[str]) -> dict[str, dict[str, int]]:
    """The confusion matrix: true label → predicted label → count"""
    counts: dict[str, dict[str, int]] = {}
    for (one, other), times in sorted(Counter(zip(true_labels, predicted_labels, strict=True)).items()):
        counts.setdefault(one, {})[other] = times
    return counts


def make_label_matrix(labels: Sequence[tuple[str, ...]], names: Sequence[str]) -> Tensor:
    """[rows, labels]: 1 for each label of a row"""
    index = {name: at for at, name in enumerate(names)}
    matrix = torch.zeros(len(labels), len(names), dtype=torch.float64)
    for row, own in zip(matrix, labels, strict=True):
        row[[index[label] for label in own]] = 1.0
    return matrix


def choose_labels(scores: Tensor, names: Sequence[str], *, several: bool) -> list[tuple[str, ...]]:
    """The label with the highest score; if `several`, all labels with a score above 0."""
    if not several:
        return [(names[at],) for at in scores.argmax(-1).tolist()]
    return [tuple(name for name, score in zip(names, row, strict=True) if score > 0) for row in scores.tolist()]


# --- named entities, as seqeval ---------------------------------------------------------------------------------------


class EntitySpan(NamedTuple):
    """An entity of this kind: words first to last, both included."""

    kind: str
    first: int
    last: int


class EntityScore(NamedTuple):
    """In percent."""

    f1: float
    precision: float
    recall: float


def find_entities(tags: Sequence[str]) -> list[EntitySpan]:
    """The entities of O, B-x and I-x tags, in order; an I-x that continues nothing begins one."""
    found: list[EntitySpan] = []
    open_kind: str | None = None
    for at, tag in enumerate(tags):
        kind = None if tag == "O" else tag[2:]
        if kind is not None and (tag[0] == "B" or kind != open_kind):
            found.append(EntitySpan(kind, at, at))
        elif kind is not None:
            found[-1] = found[-1]._replace(last=at)
        open_kind = kind
    return found


def score_entities(
    true_entities: Sequence[Collection[Hashable]], predicted_entities: Sequence[Collection[Hashable]]
) -> EntityScore:
    """Micro average over all texts: an entity counts if its kind and both ends are right; 0 without entities."""
    hits = sum(len(set(one) & set(other)) for one, other in zip(true_entities, predicted_entities, strict=True))
    true, predicted = sum(map(len, true_entities)), sum(map(len, predicted_entities))

    def percent(part: int, whole: int) -> float:
        return 100 * part / whole if whole else 0.0

    return EntityScore(percent(2 * hits, true + predicted), percent(hits, predicted), percent(hits, true))


# --- question answering, as the SQuAD script --------------------------------------------------------------------------


def normalise(text: str) -> str:
    """Lower case, without punctuation, without articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def exact_match(reference: str, answer: str) -> float:
    return float(normalise(reference) == normalise(answer))


def token_f1(reference: str, answer: str) -> float:
    """2·shared / (words of one + words of the other); if one has no words, 1 if both have none."""
    one, other = normalise(reference).split(), normalise(answer).split()
    if not one or not other:
        return float(one == other)
    shared = (Counter(one) & Counter(other)).total()
    return 2 * shared / (len(one) + len(other))


def score_answer(references: Sequence[str], answer: str) -> tuple[float, float]:
    """(exact match, F1) against the best reference; without any, the right answer is the empty one."""
    references = [right for right in references if normalise(right)] or [""]
    return max(exact_match(right, answer) for right in references), max(token_f1(right, answer) for right in references)


# --- ROUGE, as the rouge-score package without stemming ---------------------------------------------------------------


class RougeScore(NamedTuple):
    """F1 of ROUGE-1, ROUGE-2 and ROUGE-Lsum, from 0 to 1."""

    one: float
    two: float
    lsum: float


def score_rouge(text: str, *, reference: str) -> RougeScore:
    words, right = split_words(text), split_words(reference)
    return RougeScore(rouge_n(words, right, 1), rouge_n(words, right, 2), rouge_lsum(text, reference))


def score_best_rouge(text: str, *, references: Sequence[str]) -> RougeScore:
    """For each measure, the best of several references."""
    scores = [score_rouge(text, reference=reference) for reference in references]
    return RougeScore(*map(max, zip(*scores, strict=True)))


def split_words(text: str) -> list[str]:
    return ROUGE_WORD.findall(text.lower())


def f1(hits: int, predicted: int, true: int) -> float:
    """2 · precision · recall / (precision + recall)"""
    precision, recall = hits / max(1, predicted), hits / max(1, true)
    return 2 * precision * recall / (precision + recall) if hits else 0.0


def rouge_n(words: Sequence[str], right: Sequence[str], n: int) -> float:
    got, want = (Counter(zip(*(text[k:] for k in range(n)), strict=False)) for text in (words, right))
    return f1((got & want).total(), got.total(), want.total())


def rouge_lsum(text: str, reference: str) -> float:
    """Per line of the reference: its words in a longest common subsequence with a line of the text.

    A word counts no more often than it occurs in the text, nor than in the reference.
    """
    got, want = ([split_words(line) for line in side.split("\n") if line] for side in (text, reference))
    left_got, left_want = (Counter(word for line in lines for word in line) for lines in (got, want))
    totals = left_got.total(), left_want.total()
    hits = 0
    for line in want:
        for at in sorted(set().union(*(common_places(line, other) for other in got))):
            if left_got[line[at]] > 0 and left_want[line[at]] > 0:
                hits += 1
                left_got[line[at]] -= 1
                left_want[line[at]] -= 1
    return f1(hits, *totals)


def common_places(line: Sequence[str], other: Sequence[str]) -> set[int]:
    """Indices in `line` of one longest common subsequence with `other`."""
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


# --- ranking ----------------------------------------------------------------------------------------------------------


def spearman(one: Sequence[float] | Numbers, other: Sequence[float] | Numbers) -> float:
    """Pearson's correlation of the ranks; NaN if all values of one side are equal."""
    a, b = _ranks(np.asarray(one, np.float64)), _ranks(np.asarray(other, np.float64))
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return 100 * float((a * b).sum()) / size if size else float("nan")


def _ranks(values: Numbers) -> Numbers:
    """Equal values share their mean rank."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Numbers = (np.cumsum(counts) - (counts - 1) / 2)[where]
    return ranks


def ndcg(gains: Sequence[float], *, every: Sequence[float], k: int = 10) -> float:
    """Σ gain / log₂(rank + 1) over the first k results, divided by the same sum for the best order of `every` gain."""
    best = _discounted(sorted(every, reverse=True)[:k])
    return 100 * _discounted(list(gains)[:k]) / best if best else 0.0


def _discounted(gains: Sequence[float]) -> float:
    return float(sum(gain / np.log2(rank + 2) for rank, gain in enumerate(gains)))


def recall(gains: Sequence[float], *, every: Sequence[float], k: int = 10) -> float:
    """The share of relevant results among the first k."""
    wanted = sum(gain > 0 for gain in every)
    return 100 * sum(gain > 0 for gain in list(gains)[:k]) / wanted if wanted else 0.0
