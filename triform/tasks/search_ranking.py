"""How passages of an index are ranked: by vectors, by keywords, or by both joined; of all, or of those a filter leaves.

Joined by reciprocal rank: score = Σ over rankings 1 / (60 + rank), rank from 1.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, TypeAlias
from weakref import finalize

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from triform.errors import InputError
from triform.pooling import compare_vectors
from triform.tasks.bm25 import BM25
from triform.tasks.passage_splitter import Passage
from triform.tasks.vector_index import Index, scale_vectors

SearchMode: TypeAlias = Literal["hybrid", "vector", "keyword"]
RANK_CONSTANT = 60
JOINED_CANDIDATES = 1000  # of each ranking
QUERIES_AT_ONCE = 64


class RankedHit(NamedTuple):
    """A passage by number, the score it is ranked by, and its cosine with the query."""

    at: int
    score: float
    cosine: float


class PassageFilter(NamedTuple):
    """Which passages may be found: of files that match one of the patterns, and with these values."""

    files: tuple[str, ...] = ()
    values: tuple[tuple[str, str], ...] = ()

    def allows(self, passage: Passage) -> bool:
        if self.files and not any(matches_file(passage.file, pattern) for pattern in self.files):
            return False
        return all(passage.fields.get(name) == value for name, value in self.values)

    def find(self, passages: Sequence[Passage]) -> npt.NDArray[np.bool_] | None:
        """Which passages it allows; None for all. A filter that leaves none is an error."""
        if not self.files and not self.values:
            return None
        allowed = np.fromiter(map(self.allows, passages), np.bool_, len(passages))
        if not allowed.any():
            raise InputError(self.describe_empty(passages))
        return allowed

    def describe_empty(self, passages: Sequence[Passage]) -> str:
        known = sorted({name for passage in passages for name in passage.fields})
        for name, _ in self.values:
            if name not in known:
                return f"no passage has the field {name!r}; the index keeps {', '.join(known) or 'none'}"
        asked = [*self.files, *(f"{name}={value}" for name, value in self.values)]
        return f"no passage of the index fits {' and '.join(asked)}"


ALL_PASSAGES = PassageFilter()


def matches_file(file: str, pattern: str) -> bool:
    """A pattern with a slash is compared with the whole path, or its end; one without, with the name."""
    if "/" in pattern:
        return fnmatchcase(file, pattern) or fnmatchcase(file, f"*/{pattern}")
    return fnmatchcase(file.rpartition("/")[2], pattern)


def rank_passages(
    index: Index,
    queries: Sequence[str],
    vectors: Tensor,
    *,
    k: int,
    mode: SearchMode = "hybrid",
    only: PassageFilter = ALL_PASSAGES,
) -> Iterator[list[RankedHit]]:
    """For each query its best passages, best first; `vectors` are the queries', one row each."""
    allowed = only.find(index.passages)
    k = min(k, len(index.passages) if allowed is None else int(allowed.sum()))
    keywords = None if mode == "vector" else keywords_of(index)
    wanted = k if mode == "vector" else max(k, JOINED_CANDIDATES)
    for query, vector, near in zip(queries, vectors, _rank_by_vector(index, vectors, wanted, allowed), strict=True):
        scores = dict(near)
        if keywords is not None:
            found = keywords.scores(query)
            shared = [at for at in best_of(found, JOINED_CANDIDATES, allowed=allowed) if found[at] > 0]
            joined = join_rankings([[at for at, _ in near], shared])
            scores = joined if mode == "hybrid" else {at: float(found[at]) for at in shared}
        best = sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:k]
        cosines = _compute_cosines(index, vector, [at for at, _ in best])
        yield [RankedHit(at, score, cosine) for (at, score), cosine in zip(best, cosines, strict=True)]


def _rank_by_vector(
    index: Index, vectors: Tensor, k: int, allowed: npt.NDArray[np.bool_] | None
) -> Iterator[list[tuple[int, float]]]:
    """For each query the numbers and cosines of the nearest passages; a filter looks at all of them."""
    if allowed is None:
        yield from index.nearest(vectors, k=k)
        return
    for some in torch.split(vectors, QUERIES_AT_ONCE):
        for cosines in _compare(index, some, index.vectors).numpy():
            yield [(at, float(cosines[at])) for at in best_of(cosines, k, allowed=allowed)]


def _compare(index: Index, queries: Tensor, vectors: Tensor) -> Tensor:
    """Similarities as the index measures them, one row per query."""
    similarity = index.note.similarity
    scaled = scale_vectors(queries.float(), similarity)
    return compare_vectors(scaled, vectors, "dot" if similarity == "cosine" else similarity)


def _compute_cosines(index: Index, vector: Tensor, passages: list[int]) -> list[float]:
    found: list[float] = _compare(index, vector[None], index.vectors[passages])[0].tolist()
    return found


def best_of(scores: npt.NDArray[np.float32], k: int, *, allowed: npt.NDArray[np.bool_] | None) -> list[int]:
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


def join_rankings(rankings: Sequence[Sequence[int]]) -> dict[int, float]:
    """passage → its joined score."""
    joined: dict[int, float] = {}
    for ranking in rankings:
        for rank, at in enumerate(ranking, start=1):
            joined[at] = joined.get(at, 0.0) + 1 / (RANK_CONSTANT + rank)
    return joined


_KEYWORDS: dict[int, BM25] = {}  # by the identity of an index's vectors


def keywords_of(index: Index) -> BM25:
    """Made with the first search that needs them, and kept as long as the index's vectors are."""
    key = id(index.vectors)
    if key not in _KEYWORDS:
        _KEYWORDS[key] = BM25([passage.text for passage in index.passages])
        finalize(index.vectors, _KEYWORDS.pop, key, None)
    return _KEYWORDS[key]
