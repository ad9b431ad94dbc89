"""Searches over short codes find exactly what a search over all vectors finds, in every similarity."""

from typing import get_args

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from triform.pooling import SimilarityName, compare_vectors
from triform.tasks import index_segment
from triform.tasks.index_segment import (
    IndexedFile,
    Segment,
    VectorKind,
    encode_vectors,
    iterate_vectors,
    make_segment,
    scan_vectors,
)
from triform.tasks.passage_splitter import Passage

ROWS, WIDTH = 700, 24
KINDS: tuple[VectorKind, ...] = get_args(VectorKind)
SIMILARITIES: tuple[SimilarityName, ...] = get_args(SimilarityName)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_segment, "SCAN_ROWS", 64)
    monkeypatch.setattr(index_segment, "RESCORED_ROWS", 7)


def make(kind: VectorKind, similarity: SimilarityName, *, seed: int = 0) -> Segment:
    """Many vectors lie close together, so that their codes are in another order than they are."""
    rng = torch.Generator().manual_seed(seed)
    vectors = torch.randn(20, WIDTH, generator=rng).repeat_interleave(ROWS // 20, 0)
    vectors += 0.003 * torch.randn(ROWS, WIDTH, generator=rng)
    if similarity == "cosine":
        vectors = F.normalize(vectors, dim=-1)
    files = {"a": IndexedFile("", 300), "b": IndexedFile("", 300), "c": IndexedFile("", 100)}
    passages = [Passage("abc"[row // 300], row, 0, f"text {row}") for row in range(ROWS)]
    segment = make_segment(passages, vectors, files)
    if kind != "float32":
        segment.codes = encode_vectors(vectors, kind)
    return segment


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_nearest_are_those_of_the_plain_formula(kind: VectorKind, similarity: SimilarityName) -> None:
    """In float64, over all rows; with rows that are deleted, and with a filter."""
    queries = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(9))
    whole = make(kind, similarity)
    allowed = np.arange(ROWS) % 3 > 0
    for segment, only in ((whole, None), (whole.delete(frozenset("b")), None), (whole, allowed)):
        rows = np.arange(ROWS) if segment.kept is None else segment.kept
        rows = rows if only is None else rows[only[rows]]
        plain = "dot" if similarity == "cosine" else similarity
        scores = compare_vectors(queries.double(), segment.vectors.double(), plain).float().numpy()
        for k in (1, 12, ROWS + 5):
            found = segment.find_nearest(queries, k=k, similarity=similarity, allowed=only)
            for near, row in zip(found, scores, strict=True):
                order = rows[np.argsort(-row[rows], kind="stable")][:k]
                assert near.rows.tolist() == order.tolist()
                assert near.scores == pytest.approx(row[order], rel=1e-6)


def test_codes_alone_would_find_others() -> None:
    """The control: ranked by what the codes say, 8 bits put other rows first; and few rows are compared again."""
    queries, segment = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(9)), make("int8", "cosine")
    exact = segment.find_nearest(queries, k=12, similarity="cosine", allowed=None)
    assert segment.codes is not None
    coded = (queries @ segment.codes.decode(0, ROWS).T).topk(12).indices.tolist()
    assert [near.rows.tolist() for near in exact] != coded
    candidates = scan_vectors(segment, queries, k=12, similarity="cosine", allowed=None)
    assert all(12 <= len(rows) < 200 for rows in candidates)


def test_codes_are_as_near_as_they_say() -> None:
    vectors = torch.cat((torch.randn(50, WIDTH), torch.zeros(2, WIDTH), 1e9 * torch.randn(2, WIDTH)))
    for kind in KINDS[1:]:
        codes = encode_vectors(vectors, kind)
        errors = torch.linalg.vector_norm((vectors - codes.decode(0, len(vectors))).double(), dim=-1)
        assert (errors <= codes.errors).all()


def test_what_is_left_of_a_segment() -> None:
    segment = make("float32", "dot").delete(frozenset("a"))
    assert (segment.rows, len(segment), list(segment.kept_files)) == (700, 400, ["b", "c"])
    assert torch.equal(torch.cat(list(iterate_vectors(segment))), segment.vectors[300:])
