"""BM25: passages ranked by the words they share with a query, rare words first. The baseline that search must beat.

score = Σ over words of the query: idf · f (k₁ + 1) / (f + k₁ (1 − b + b · length / mean length))
idf = ln(1 + (N − n + ½) / (n + ½)), N passages, n of them with the word, f times in this one
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from triform.tasks.bag_of_words import words_of

K1, B = 1.2, 0.75


class BM25:
    def __init__(self, passages: Sequence[str]) -> None:
        counted = [Counter(words_of(passage)) for passage in passages]
        lengths = np.array([each.total() for each in counted], np.float64)
        self.flat = K1 * (1 - B + B * lengths / max(1.0, float(lengths.mean()) if len(lengths) else 1.0))
        self.places: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for at, words in enumerate(counted):
            for word, times in words.items():
                self.places[word].append((at, times))

    def scores(self, query: str) -> npt.NDArray[np.float64]:
        """Of each passage."""
        found = np.zeros(len(self.flat))
        for word in words_of(query):
            if word in self.places:
                at, times = np.array(self.places[word]).T
                idf = np.log1p((len(self.flat) - len(at) + 0.5) / (len(at) + 0.5))
                found[at] += idf * times * (K1 + 1) / (times + self.flat[at])
        return found
