"""Trains a Unigram vocabulary: the pieces, with probabilities, under which a list of words is most likely.

p(word) = Σ over its segmentations Π p(piece). The library's own trainer sums in an order that changes from run to run,
so that one corpus gives another vocabulary each time; here the same words always give the same pieces.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

MAX_PIECE_CHARACTERS = 16  # as in SentencePiece
SEED_FACTOR = 8  # initial pieces, as a multiple of the final size
KEEP_SHARE = 0.75  # of the pieces, in each round of pruning

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Group = tuple[Ints, Ints, Ints]


def train_unigram(words: Mapping[str, int], *, size: int) -> list[tuple[str, float]]:
    """At most `size` pieces with their log-probabilities, most likely first; every single character is one of them."""
    seeds = _find_seeds(words, size=size)
    pieces, used = list(seeds), np.array(list(seeds.values()), dtype=np.float64)
    long = np.array([id for id, piece in enumerate(pieces) if len(piece) > 1], dtype=np.int64)
    corpus, others = (
        Lattice(list(words), pieces=pieces),
        Lattice([pieces[id] for id in long], pieces=pieces, whole=False),
    )
    counts = np.array(list(words.values()), dtype=np.float64)
    kept = np.ones(len(pieces), dtype=bool)
    while True:
        for _ in range(2):
            scores = np.log(np.maximum(used, 1e-3) / used.sum())
            used = corpus.expected_counts(np.where(kept, scores, -np.inf), counts=counts)
        if kept.sum() <= size:
            break
        # The loss of a piece: what the corpus loses if other pieces replace it; a character cannot be replaced.
        loss = np.full(len(pieces), np.inf)
        loss[long] = used[long] * (scores[long] - others.best_scores(np.where(kept, scores, -np.inf)))
        loss[~kept] = -np.inf
        wanted = max(size, int(KEEP_SHARE * kept.sum()))
        kept[np.argsort(-loss, kind="stable")[wanted:]] = False
    result = [(pieces[id], round(float(scores[id]), 6)) for id in np.flatnonzero(kept)]
    return sorted(result, key=lambda piece: (-piece[1], piece[0]))


def _find_seeds(words: Mapping[str, int], *, size: int) -> dict[str, int]:
    """Every character, and the substrings that cover most of the corpus."""
    seen: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(len(word)):
            for end in range(start + 1, min(start + MAX_PIECE_CHARACTERS, len(word)) + 1):
                seen[word[start:end]] += count
    characters = sorted(piece for piece in seen if len(piece) == 1)
    longer = sorted((piece for piece in seen if len(piece) > 1), key=lambda piece: (-seen[piece] * len(piece), piece))
    return {piece: seen[piece] for piece in (*characters, *longer[: SEED_FACTOR * size])}


class Lattice:
    """All segmentations of all words: one node per position between characters, one edge per piece."""

    def __init__(self, words: Sequence[str], *, pieces: Sequence[str], whole: bool = True) -> None:
        id_of = {piece: id for id, piece in enumerate(pieces)}
        edges: list[tuple[int, int, int, int, int]] = []  # from node, to node, piece, word, place of the to node
        self.first = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
        self.last = self.first + np.array([len(word) for word in words])
        for number, word in enumerate(words):
            node = int(self.first[number])
            for start in range(len(word)):
                for end in range(start + 1, min(start + MAX_PIECE_CHARACTERS, len(word)) + 1):
                    id = id_of.get(word[start:end])
                    if id is not None and (whole or end - start < len(word)):
                        edges.append((node + start, node + end, id, number, end))
        table: Ints = np.array(edges, dtype=np.int64).reshape(-1, 5).T
        self.start, self.end, self.piece, self.word, place = table
        self.forward = _group_edges(self.end, order=place)
        self.backward = _group_edges(self.start, order=-(self.start - self.first[self.word]))

    def expected_counts(self, scores: Floats, *, counts: Floats) -> Floats:
        """Expected count of each piece, over all segmentations of all words."""
        before = self._sum_paths(scores, np.logaddexp, seeds=self.first, via=self.start, groups=self.forward)
        after = self._sum_paths(scores, np.logaddexp, seeds=self.last, via=self.end, groups=self.backward)
        through = before[self.start] + scores[self.piece] + after[self.end] - before[self.last][self.word]
        used = np.zeros(len(scores))
        np.add.at(used, self.piece, np.exp(through) * counts[self.word])
        return used

    def best_scores(self, scores: Floats) -> Floats:
        """The score of the most likely segmentation of each word."""
        return self._sum_paths(scores, np.maximum, seeds=self.first, via=self.start, groups=self.forward)[self.last]

    def _sum_paths(self, scores: Floats, add: np.ufunc, *, seeds: Ints, via: Ints, groups: list[Group]) -> Floats:
        """The sum over all paths from the seeds to each node, one position of all words at a time."""
        sums = np.full(int(self.last[-1]) + 1, -np.inf)
        sums[seeds] = 0.0
        for edges, cuts, nodes in groups:
            sums[nodes] = add.reduceat(sums[via[edges]] + scores[self.piece[edges]], cuts)
        return sums


def _group_edges(nodes: Ints, *, order: Ints) -> list[Group]:
    """Edges by position, then by node: (edges, where each node's edges begin, the nodes)."""
    edges = np.lexsort((nodes, order))
    groups = []
    for part in np.split(edges, np.flatnonzero(np.diff(order[edges])) + 1):
        found, cuts = np.unique(nodes[part], return_index=True)
        groups.append((part, cuts, found))
    return groups
