"""Labels judged: accuracy, macro F1 and who is taken for whom. In hundredths, as papers print them."""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor


def accuracy(right: Sequence[tuple[str, ...]], answered: Sequence[tuple[str, ...]]) -> float:
    """The share of texts whose labels are exactly the right ones, in any order."""
    hits = sum(set(one) == set(other) for one, other in zip(right, answered, strict=True))
    return 100 * hits / max(1, len(right))


def macro_f1(right: Sequence[tuple[str, ...]], answered: Sequence[tuple[str, ...]]) -> float:
    """The mean over labels, right or answered, of 2·hits / (times right + times answered)."""
    times_right = Counter(label for labels in right for label in set(labels))
    times_answered = Counter(label for labels in answered for label in set(labels))
    hits = Counter(label for one, other in zip(right, answered, strict=True) for label in set(one) & set(other))
    every = times_right.keys() | times_answered.keys()
    return 100 * sum(2 * hits[x] / (times_right[x] + times_answered[x]) for x in every) / max(1, len(every))


def confusion(right: Sequence[str], answered: Sequence[str]) -> dict[str, dict[str, int]]:
    """right label → answered label → how often"""
    counts: dict[str, dict[str, int]] = {}
    for (one, other), times in sorted(Counter(zip(right, answered, strict=True)).items()):
        counts.setdefault(one, {})[other] = times
    return counts


def label_matrix(labels: Sequence[tuple[str, ...]], names: Sequence[str]) -> Tensor:
    """[rows, labels]: 1 where a label holds"""
    number = {name: at for at, name in enumerate(names)}
    right = torch.zeros(len(labels), len(names), dtype=torch.float64)
    for row, each in zip(right, labels, strict=True):
        row[[number[label] for label in each]] = 1.0
    return right


def chosen_labels(scores: Tensor, names: Sequence[str], *, several: bool) -> list[tuple[str, ...]]:
    """The label with the highest score, or all whose score is above 0 where several may hold."""
    if not several:
        return [(names[at],) for at in scores.argmax(-1).tolist()]
    return [tuple(name for name, score in zip(names, row, strict=True) if score > 0) for row in scores.tolist()]
