"""BM25: passages ranked by the words they share with a query, rare words first. Half of a search, and its baseline.

Words are read without a plural s, and without those that say nothing ("the", "what").

score = Σ over words of the query: idf · f (k₁ + 1) / (f + k₁ (1 − b + b · length / mean length))
idf = ln(1 + (N − n + ½) / (n + ½)), N passages, n of them with the word, f times in this one
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

K1, B = 1.5, 0.75
WORD = re.compile(r"\w+")
# English words that stand in most questions and texts; other languages lose next to nothing by them.
FREQUENT_WORDS = """
a an and are as at be been but by can did do does for from had has have how i if in into is it its must no not of on or
so such than that the their then there these they this those to was we were what when where which who why will with
would you
"""
STOP_WORDS = frozenset(FREQUENT_WORDS.split())


@lru_cache(maxsize=1 << 16)
def fold_word(word: str) -> str:
    """The word without the s of a plural."""
    if len(word) > 3 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith("sses"):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def list_keywords(text: str) -> list[str]:
    return [fold_word(word) for word in WORD.findall(text.lower()) if word not in STOP_WORDS]


def find_keywords(text: str, query: str) -> Iterator[tuple[int, int]]:
    """(start, end) of each word of the text that the query has too."""
    wanted = set(list_keywords(query))
    for found in WORD.finditer(text):
        word = found[0].lower()
        if word not in STOP_WORDS and fold_word(word) in wanted:
            yield found.span()


class BM25:
    """Word by word, the passages that have it and what it adds to their scores, in two flat arrays."""

    def __init__(self, passages: Sequence[str]) -> None:
        counted = [Counter(list_keywords(passage)) for passage in passages]
        lengths = np.array([each.total() for each in counted], np.float32)
        flat = K1 * (1 - B + B * lengths / max(1.0, float(lengths.mean()) if len(lengths) else 1.0))
        numbers: dict[str, int] = {}
        words = np.array([numbers.setdefault(word, len(numbers)) for each in counted for word in each], np.int64)
        places = np.repeat(np.arange(len(counted)), [len(each) for each in counted])
        times = np.array([count for each in counted for count in each.values()], np.float32)
        order = np.argsort(words, kind="stable")
        self.size, self.numbers, self.places = len(counted), numbers, places[order].astype(np.int32)
        self.starts = np.searchsorted(words[order], np.arange(len(numbers) + 1))
        times, long = times[order], flat[self.places]
        held = np.diff(self.starts)
        idf = np.log1p((self.size - held + 0.5) / (held + 0.5)).astype(np.float32)
        self.gains = np.repeat(idf, held) * times * (K1 + 1) / (times + long)

    def scores(self, query: str) -> npt.NDArray[np.float32]:
        """Of each passage; 0 without a word in common."""
        found = np.zeros(self.size, np.float32)
        for word, times in Counter(list_keywords(query)).items():
            if word in self.numbers:
                start, end = self.starts[self.numbers[word]], self.starts[self.numbers[word] + 1]
                found[self.places[start:end]] += times * self.gains[start:end]
        return found
