"""Answers judged as SQuAD's script does: exact match and F1 of words after normalisation, the best of all right."""

import re
import string
from collections import Counter
from collections.abc import Sequence

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """Lower case, without punctuation, without articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def exact(right: str, answered: str) -> float:
    return float(normalised(right) == normalised(answered))


def token_f1(right: str, answered: str) -> float:
    """2·shared / (words of one + words of the other); where one has no words, 1 if both have none."""
    one, other = normalised(right).split(), normalised(answered).split()
    if not one or not other:
        return float(one == other)
    shared = (Counter(one) & Counter(other)).total()
    return 2 * shared / (len(one) + len(other))


def best_of(rights: Sequence[str], answered: str) -> tuple[float, float]:
    """(exact, F1) against the nearest right answer; without any, the right answer is none."""
    there = [right for right in rights if normalised(right)] or [""]
    return max(exact(right, answered) for right in there), max(token_f1(right, answered) for right in there)
