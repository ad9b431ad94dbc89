"""BM25: passages ranked by the words they share with a query, rare words first. Half of a search, and its baseline.

Words are read without a plural s, and without those that say nothing ("the", "what"). A `WordTable` is a few flat
arrays, so that it may lie in a file; several tables are ranked as one, without the passages that were deleted.

score = Σ over words of the query: idf · f (k₁ + 1) / (f + k₁ (1 − b + b · length / mean length))
idf = ln(1 + (N − n + ½) / (n + ½)), N passages, n of them with the word, f times in this one
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias

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

Numbers: TypeAlias = npt.NDArray[np.int64]
Counts: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float32]


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


# --- the words of passages ------------------------------------------------------------------------------------------


class WordTable(NamedTuple):
    """Which passages have a word, and how often: the words in order of their bytes, each with its postings."""

    words: npt.NDArray[np.uint8]  # all words, one behind another
    word_starts: Numbers
    posting_starts: Numbers
    places: Counts  # of each posting its passage
    times: Counts
    lengths: Counts  # of each passage, in words

    def find(self, word: str) -> tuple[Counts, Counts]:
        """The passages that have a word, and how often each has it."""
        wanted, low, high = word.encode(), 0, len(self.word_starts) - 1
        while low < high:
            middle = (low + high) // 2
            if self._get_word(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        if low == len(self.word_starts) - 1 or self._get_word(low) != wanted:
            return self.places[:0], self.times[:0]
        start, end = self.posting_starts[low : low + 2]
        return self.places[start:end], self.times[start:end]

    def _get_word(self, at: int) -> bytes:
        return self.words[self.word_starts[at] : self.word_starts[at + 1]].tobytes()

    def list_words(self) -> list[bytes]:
        """All words, in their order."""
        every, ends = self.words.tobytes(), self.word_starts.tolist()
        return [every[start:end] for start, end in pairwise(ends)]


def build_word_table(texts: Iterable[str]) -> WordTable:
    """The table of some passages."""
    numbers: dict[str, int] = {}
    words, places, times, lengths = array("i"), array("i"), array("i"), array("i")
    for at, text in enumerate(texts):
        counted = Counter(list_keywords(text))
        lengths.append(counted.total())
        for word, count in counted.items():
            words.append(numbers.setdefault(word, len(numbers)))
            places.append(at)
            times.append(count)
    return _arrange(
        [word.encode() for word in numbers], *(np.asarray(each) for each in (words, places, times, lengths))
    )


def join_word_tables(parts: Sequence[tuple[WordTable, Numbers | None]]) -> WordTable:
    """One table of several, with only the passages that are named of each (None: all)."""
    numbers: dict[bytes, int] = {}
    postings: list[tuple[Counts, ...]] = []
    start = 0
    for table, kept in parts:
        own = np.array([numbers.setdefault(word, len(numbers)) for word in table.list_words()], np.int32)
        words, places, times = np.repeat(own, np.diff(table.posting_starts)), table.places, table.times
        lengths = table.lengths
        if kept is not None:
            renumbered = np.full(len(lengths), -1, np.int32)
            renumbered[kept] = np.arange(len(kept))
            stays = renumbered[places] >= 0
            words, places, times, lengths = words[stays], renumbered[places[stays]], times[stays], lengths[kept]
        postings.append((words, places + np.int32(start), times, lengths))
        start += len(lengths)
    return _arrange(list(numbers), *(np.concatenate(each) for each in zip(*postings, strict=True)))


def _arrange(names: list[bytes], words: Counts, places: Counts, times: Counts, lengths: Counts) -> WordTable:
    """Postings sorted by word; words that no passage has any more are left out."""
    held = np.bincount(words, minlength=len(names))
    order = sorted((at for at in range(len(names)) if held[at]), key=names.__getitem__)
    rank = np.zeros(len(names), np.int32)
    rank[order] = np.arange(len(order))
    sorted_names = [names[at] for at in order]
    words = rank[words]
    by_word = np.argsort(words, kind="stable")
    return WordTable(
        np.frombuffer(b"".join(sorted_names), np.uint8),
        np.cumsum([0, *map(len, sorted_names)], dtype=np.int64),
        np.cumsum([0, *held[order]], dtype=np.int64),
        places[by_word],
        times[by_word],
        lengths,
    )


# --- scores ---------------------------------------------------------------------------------------------------------


def compute_idf(passages: int, found: int) -> np.float32:
    """Of a word that so many passages have."""
    return np.float32(np.log1p((passages - found + 0.5) / (found + 0.5)))


def compute_saturation(lengths: Counts, mean: float) -> Floats:
    """k₁ (1 − b + b · length / mean length)"""
    saturation: Floats = K1 * (1 - B + B * lengths.astype(np.float32) / np.float32(max(1.0, mean)))
    return saturation


def compute_gains(idf: np.float32, times: Counts, saturation: Floats) -> Floats:
    """What a word adds to the scores of the passages that have it."""
    often = times.astype(np.float32)
    gains: Floats = idf * often * np.float32(K1 + 1) / (often + saturation)
    return gains


class BM25:
    """Scores of passages, from the tables of their words."""

    def __init__(
        self, passages: Sequence[str] = (), *, tables: Sequence[tuple[WordTable, Numbers | None]] = ()
    ) -> None:
        """`tables`: instead of passages, and which rows of each count (None: all)."""
        self.tables: list[tuple[WordTable, Counts | None]] = []
        lengths = []
        for table, kept in tables or [(build_word_table(passages), None)]:
            numbers = None
            if kept is not None:
                numbers = np.full(len(table.lengths), -1, np.int32)
                numbers[kept] = np.arange(len(kept))
            self.tables.append((table, numbers))
            lengths.append(table.lengths if kept is None else table.lengths[kept])
        counts = [len(each) for each in lengths]
        self.starts, self.size = np.cumsum([0, *counts]), sum(counts)
        mean = sum(int(each.sum(dtype=np.int64)) for each in lengths) / max(1, self.size)
        self.saturation = [compute_saturation(each, mean) for each in lengths]

    def scores(self, query: str) -> Floats:
        """Of each passage; 0 without a word in common."""
        found = np.zeros(self.size, np.float32)
        for word, repeats in Counter(list_keywords(query)).items():
            postings = [self._find(part, word) for part in range(len(self.tables))]
            idf = compute_idf(self.size, sum(len(places) for places, _ in postings))
            for part, (places, times) in enumerate(postings):
                gains = compute_gains(idf, times, self.saturation[part][places])
                found[self.starts[part] + places] += repeats * gains
        return found

    def _find(self, part: int, word: str) -> tuple[Counts, Counts]:
        table, numbers = self.tables[part]
        places, times = table.find(word)
        if numbers is None:
            return places, times
        stays = numbers[places] >= 0
        return numbers[places[stays]], times[stays]


def best_of(scores: Floats, k: int, *, allowed: npt.NDArray[np.bool_] | None) -> list[int]:
    """The numbers of the k best, best first; of equal ones the first."""
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
        k = min(k, int(allowed.sum()))
    if k < len(scores):
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        (found,) = (scores >= least).nonzero()
    else:
        found = np.arange(len(scores))
    ordered: list[int] = found[np.argsort(-scores[found], kind="stable")][:k].tolist()
    return ordered
