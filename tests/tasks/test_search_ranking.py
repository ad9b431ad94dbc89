"""Passages ranked by vectors, by keywords and by both; filters; a reranker's second order."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from triform.errors import InputError
from triform.tasks.bm25 import BM25, best_of
from triform.tasks.index_folder import IndexNote
from triform.tasks.index_segment import IndexedFile
from triform.tasks.passage_filter import PassageFilter
from triform.tasks.passage_splitter import Passage
from triform.tasks.search_ranking import SearchMode, join_rankings, rank_passages
from triform.tasks.vector_index import SegmentIndex, make_index

TEXTS = ["A mole digs holes.", "Lions eat meat.", "A hole in the roof.", "Moles are blind."]
FILES = ["a/one.md", "a/two.md", "b/one.md", "b/three.txt"]


def make_words_index(count: int = 0) -> SegmentIndex:
    rng = torch.Generator().manual_seed(0)
    texts = TEXTS if not count else [f"word{number % 7} word{number % 5}" for number in range(count)]
    passages = [
        Passage(FILES[number * 4 // len(texts)], number, 0, text, "line", {"lang": "en" if number % 2 else "de"})
        for number, text in enumerate(texts)
    ]
    vectors = F.normalize(torch.randn(len(texts), 8, generator=rng), dim=-1)
    files = {file: IndexedFile("", len(texts) // 4) for file in FILES}
    return make_index(IndexNote("", "", 8, files), passages, vectors)


def rank(index: SegmentIndex, query: str, vector: torch.Tensor, *, k: int, mode: SearchMode = "hybrid") -> list[int]:
    (found,) = rank_passages(index, [query], vector[None], k=k, mode=mode)
    return [one.at for one in found]


def test_joined_ranks_are_the_sum_of_reciprocal_ranks() -> None:
    """Against the formula in plain loops, over every passage."""
    index = make_words_index(200)
    query, vector = "word3 word1", torch.randn(8, generator=torch.Generator().manual_seed(1))
    cosines = (index.read_vectors() @ F.normalize(vector, dim=-1)).tolist()
    keywords = BM25([passage.text for passage in index.passages]).scores(query).tolist()
    orders = [
        sorted(range(200), key=lambda at: (-cosines[at], at)),
        sorted((at for at in range(200) if keywords[at] > 0), key=lambda at: (-keywords[at], at)),
    ]
    scores = {at: sum(1 / (61 + order.index(at)) for order in orders if at in order) for at in range(200)}
    wanted = sorted(scores, key=lambda at: (-scores[at], at))[:20]
    assert rank(index, query, vector, k=20) == wanted
    assert rank(index, query, vector, k=20, mode="keyword") == orders[1][:20]
    assert rank(index, query, vector, k=20, mode="vector") == orders[0][:20]


def test_a_filter_leaves_what_it_allows_and_says_when_nothing_is_left() -> None:
    index, vector = make_words_index(), torch.ones(8)
    modes: tuple[SearchMode, ...] = ("hybrid", "vector", "keyword")
    for mode in modes:
        only = PassageFilter(files=("one.md",), values=(("lang", "de"),))
        (found,) = rank_passages(index, ["moles hole"], vector[None], k=4, mode=mode, only=only)
        assert {one.at for one in found} == {0, 2}
    for only, said in [
        (PassageFilter(files=("b/*.md",)), None),
        (PassageFilter(files=("*.rst",)), "fits"),
        (PassageFilter(values=(("lang", "fr"),)), "lang=fr"),
        (PassageFilter(values=(("author", "x"),)), "keeps lang"),
    ]:
        if said is None:
            (found,) = rank_passages(index, ["mole"], vector[None], k=4, only=only)
            assert [one.at for one in found] == [2]
        else:
            with pytest.raises(InputError, match=said):
                list(rank_passages(index, ["mole"], vector[None], k=4, only=only))


def test_keywords_fold_plurals_and_skip_frequent_words() -> None:
    index = BM25(TEXTS)
    assert np.flatnonzero(index.scores("What is it that the moles do?")).tolist() == [0, 3]
    assert index.scores("xyzzy").tolist() == [0, 0, 0, 0]
    assert BM25([]).scores("mole").tolist() == []


def test_bm25_is_its_formula() -> None:
    """The flat arrays against the sum in plain lines, in float64."""
    from triform.tasks.bm25 import K1, B, list_keywords

    texts = [passage.text for passage in make_words_index(52).passages] + TEXTS
    words = [list_keywords(text) for text in texts]
    mean = sum(map(len, words)) / len(words)
    for query in ("word3 word1 word1", "moles hole"):
        wanted = []
        for own in words:
            total = 0.0
            for word in list_keywords(query):
                n = sum(word in other for other in words)
                idf = np.log1p((len(texts) - n + 0.5) / (n + 0.5))
                f = own.count(word)
                total += idf * f * (K1 + 1) / (f + K1 * (1 - B + B * len(own) / mean))
            wanted.append(total)
        assert BM25(texts).scores(query).tolist() == pytest.approx(wanted, rel=1e-5)


def test_best_of_breaks_ties_by_place() -> None:
    scores = np.array([1, 3, 3, 2, 3], np.float32)
    assert best_of(scores, 2, allowed=None) == [1, 2]
    assert best_of(scores, 9, allowed=np.array([True, False, True, True, False])) == [2, 3, 0]
    assert join_rankings([[4, 2], [2]]) == {4: 1 / 61, 2: 1 / 62 + 1 / 61}
