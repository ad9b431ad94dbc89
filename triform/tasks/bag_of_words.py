"""A classical baseline: words and pairs of neighbouring words without their order, logistic regression on them.

x[gram] = (1 + ln count) · (1 + ln((1 + texts) / (1 + texts with it))), each row divided by its length (TF-IDF)
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from triform.data.folds import assign_folds
from triform.data.rows import LabelledRow
from triform.metrics import choose_labels, make_label_matrix
from triform.tasks import logistic_regression
from triform.tasks.logistic_regression import LinearFit

WORD = re.compile(r"\w+|[^\w\s]")
MAX_GRAMS = 40_000


def split_words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def list_grams(text: str) -> list[str]:
    """Its words, and each with the next one."""
    words = split_words(text)
    return words + [f"{one} {other}" for one, other in pairwise(words)]


class BagOfWords(NamedTuple):
    """A linear classifier on words and pairs of words: a baseline."""

    grams: dict[str, int]
    rarity: list[float]  # of each gram
    labels: tuple[str, ...]
    several: bool
    linear: LinearFit

    def answers(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        scores = self.linear.scores(_counted(texts, self.grams, self.rarity))
        return choose_labels(scores, self.labels, several=self.several)


@torch.inference_mode(False)
def fit_bag_of_words(texts: Sequence[str], labels: Sequence[tuple[str, ...]]) -> BagOfWords:
    """Fits the baseline to labelled texts."""
    frequent = Counter(gram for text in texts for gram in set(list_grams(text))).most_common(MAX_GRAMS)
    grams = {gram: at for at, (gram, _) in enumerate(frequent)}
    rarity = [1 + math.log((1 + len(texts)) / (1 + times)) for _, times in frequent]
    names = tuple(sorted({label for each in labels for label in each}))
    several = any(len(each) != 1 for each in labels)
    folds = assign_folds(list(map(LabelledRow, texts, labels)), folds=logistic_regression.FOLDS)
    right = make_label_matrix(labels, names)
    fitted = logistic_regression.fit(_counted(texts, grams, rarity), right, several=several, folds=folds)
    return BagOfWords(grams, rarity, names, several, fitted)


def _counted(texts: Sequence[str], grams: dict[str, int], rarity: Sequence[float]) -> Tensor:
    """[texts, grams], sparse, each row of length 1"""
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    for row, text in enumerate(texts):
        counts = Counter(grams[gram] for gram in list_grams(text) if gram in grams)
        found = {at: (1 + math.log(count)) * rarity[at] for at, count in sorted(counts.items())}
        length = math.hypot(*found.values())
        rows += [row] * len(found)
        columns += found
        values += [value / length for value in found.values()]
    return torch.sparse_coo_tensor(
        torch.tensor([rows, columns], dtype=torch.int64).view(2, -1),
        torch.tensor(values, dtype=torch.float64),
        (len(texts), len(grams)),
        check_invariants=True,
    ).coalesce()
