"""Labels judged: accuracy, macro F1 and who is taken for whom. In hundredths, as papers print them."""

from collections import Counter
from collections.abc import Sequence


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
