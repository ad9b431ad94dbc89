"""Orders judged: Spearman's correlation, discounted gain, recall. In hundredths."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


def spearman(one: Sequence[float] | Numbers, other: Sequence[float] | Numbers) -> float:
    """Pearson's correlation of the ranks; not a number where one side has a single value."""
    a, b = _ranks(np.asarray(one, np.float64)), _ranks(np.asarray(other, np.float64))
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return 100 * float((a * b).sum()) / size if size else float("nan")


def _ranks(values: Numbers) -> Numbers:
    """Equal values share the mean of their places."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Numbers = (np.cumsum(counts) - (counts - 1) / 2)[where]
    return ranks


def ndcg(gains: Sequence[float], *, every: Sequence[float], k: int = 10) -> float:
    """Σ gain / log₂(place + 1) over the first k found, divided by the same sum in the best order of `every` gain."""
    best = _discounted(sorted(every, reverse=True)[:k])
    return 100 * _discounted(list(gains)[:k]) / best if best else 0.0


def _discounted(gains: Sequence[float]) -> float:
    return float(sum(gain / np.log2(place + 2) for place, gain in enumerate(gains)))


def recall(gains: Sequence[float], *, every: Sequence[float], k: int = 10) -> float:
    """The share of what is wanted that is among the first k."""
    wanted = sum(gain > 0 for gain in every)
    return 100 * sum(gain > 0 for gain in list(gains)[:k]) / wanted if wanted else 0.0
