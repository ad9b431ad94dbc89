"""How passages of an index are ranked: by vectors, by keywords, or by both joined; of all, or of those a filter leaves.

Joined by reciprocal rank: score = Σ over rankings 1 / (60 + rank), rank from 1.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from torch import Tensor

from triform.tasks.passage_filter import ALL_PASSAGES, PassageFilter
from triform.tasks.vector_index import Index

SearchMode: TypeAlias = Literal["hybrid", "vector", "keyword"]
RANK_CONSTANT = 60
JOINED_CANDIDATES = 1000  # of each ranking


class RankedHit(NamedTuple):
    """A passage by number, the score it is ranked by, and its cosine with the query."""

    at: int
    score: float
    cosine: float


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
    index.check_filter(only)
    wanted = k if mode == "vector" else max(k, JOINED_CANDIDATES)
    rankings = [[]] * len(queries) if mode == "keyword" else index.nearest(vectors, k=wanted, only=only)
    for query, vector, near in zip(queries, vectors, rankings, strict=True):
        scores = dict(near)
        if mode != "vector":
            shared = index.match_words(query, k=JOINED_CANDIDATES, only=only)
            joined = join_rankings([[at for at, _ in near], [at for at, _ in shared]])
            scores = joined if mode == "hybrid" else dict(shared)
        best = sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:k]
        cosines = index.compare(vector, [at for at, _ in best])
        yield [RankedHit(at, score, cosine) for (at, score), cosine in zip(best, cosines, strict=True)]


def join_rankings(rankings: Sequence[Sequence[int]]) -> dict[int, float]:
    """passage → its joined score."""
    joined: dict[int, float] = {}
    for ranking in rankings:
        for rank, at in enumerate(ranking, start=1):
            joined[at] = joined.get(at, 0.0) + 1 / (RANK_CONSTANT + rank)
    return joined
