"""The metrics equal the packages that the field trusts, on random inputs and at the edges."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triform.metrics import (
    accuracy,
    count_confusions,
    exact_match,
    find_entities,
    macro_f1,
    ndcg,
    normalise,
    recall,
    score_answer,
    score_entities,
    spearman,
    token_f1,
)
from triform.tasks.bm25 import BM25

TAGS = st.sampled_from(["O", "B-a", "I-a", "B-b", "I-b", "B-a-b", "I-a-b", "I-B"])
SENTENCES = st.lists(st.lists(st.tuples(TAGS, TAGS), max_size=9), min_size=1, max_size=5)


@pytest.fixture(autouse=True)
def _quiet_references():
    """The references warn where there is nothing to divide by; ours is what they then return."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# --- entities -------------------------------------------------------------------------------------------------------


@given(SENTENCES)
@settings(deadline=None, max_examples=120)
def test_entities_are_counted_as_seqeval_counts(pairs: list[list[tuple[str, str]]]) -> None:
    seqeval = pytest.importorskip("seqeval.metrics")
    right, said = [[a for a, _ in row] for row in pairs], [[b for _, b in row] for row in pairs]
    found = score_entities([find_entities(row) for row in right], [find_entities(row) for row in said])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = [seqeval.f1_score, seqeval.precision_score, seqeval.recall_score]
        for ours, theirs in zip(found, expected, strict=True):
            assert ours == pytest.approx(100 * theirs(right, said), abs=1e-9)
    for row in right:
        assert [tuple(each) for each in find_entities(row)] == seqeval.sequence_labeling.get_entities(row)


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ([], []),
        (["O"], []),
        (["I-x"], [("x", 0, 0)]),
        (["B-x", "B-x"], [("x", 0, 0), ("x", 1, 1)]),
        (["B-x", "I-y", "I-y"], [("x", 0, 0), ("y", 1, 2)]),
        (["I-x", "O", "I-x"], [("x", 0, 0), ("x", 2, 2)]),
    ],
)
def test_entities_at_the_edges(tags: list[str], found: list[tuple[str, int, int]]) -> None:
    assert find_entities(tags) == found


# --- labels ---------------------------------------------------------------------------------------------------------

LABELS = st.sampled_from(["yes", "no", "perhaps", "ä"])


@given(st.lists(st.tuples(LABELS, LABELS), min_size=1, max_size=30))
@settings(deadline=None)
def test_one_label_is_judged_as_sklearn_does(pairs: list[tuple[str, str]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    right, said = [a for a, _ in pairs], [b for _, b in pairs]
    ours_right, ours_said = [(a,) for a in right], [(b,) for b in said]
    assert accuracy(ours_right, ours_said) == pytest.approx(100 * metrics.accuracy_score(right, said))
    expected = metrics.f1_score(right, said, average="macro", zero_division=0)
    assert macro_f1(ours_right, ours_said) == pytest.approx(100 * expected)
    names = sorted({*right, *said})
    table = metrics.confusion_matrix(right, said, labels=names)
    counts = count_confusions(right, said)
    assert [[counts.get(a, {}).get(b, 0) for b in names] for a in names] == table.tolist()


@given(st.lists(st.tuples(st.sets(LABELS), st.sets(LABELS)), min_size=1, max_size=20))
@settings(deadline=None)
def test_several_labels_are_judged_as_sklearn_does(pairs: list[tuple[set[str], set[str]]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    from sklearn.preprocessing import MultiLabelBinarizer

    names = sorted({x for a, b in pairs for x in a | b})
    if len(names) < 2:  # sklearn reads a single column as another kind of task
        return
    table = MultiLabelBinarizer(classes=names)
    right, said = table.fit_transform([a for a, _ in pairs]), table.transform([b for _, b in pairs])
    ours = [tuple(sorted(a)) for a, _ in pairs], [tuple(sorted(b)) for _, b in pairs]
    assert accuracy(*ours) == pytest.approx(100 * metrics.accuracy_score(right, said))
    assert macro_f1(*ours) == pytest.approx(100 * metrics.f1_score(right, said, average="macro", zero_division=0))


# --- answers --------------------------------------------------------------------------------------------------------

WORDS = st.lists(
    st.sampled_from(
        ["the", "The", "a", "an", "cat", "Cat's", "cat,", "theory", "AN", "—", "…", "U.S.", "ß", "ﬁ", "\n", "42"]
    )
    | st.text(max_size=4),
    max_size=7,
).map(" ".join)


@given(WORDS, WORDS)
@settings(deadline=None, max_examples=120)
def test_answers_are_judged_as_the_squad_script_does(right: str, said: str) -> None:
    theirs = pytest.importorskip("torchmetrics.functional.text.squad")
    assert normalise(right) == theirs._normalize_text(right)
    assert exact_match(right, said) == float(theirs._compute_exact_match_score(said, right))
    assert token_f1(right, said) == pytest.approx(float(theirs._compute_f1_score(said, right)), abs=1e-6)


def test_the_nearest_right_answer_counts_and_none_is_an_answer() -> None:
    assert score_answer(["the cat", "a dog"], "Dog.") == (1.0, 1.0)
    assert score_answer([], "") == (1.0, 1.0)
    assert score_answer([], "dog") == (0.0, 0.0)
    assert score_answer(["the"], "") == (1.0, 1.0)  # as the script: an answer of articles alone is none
    assert score_answer(["big cat"], "cat")[1] == pytest.approx(2 / 3)


# --- orders ---------------------------------------------------------------------------------------------------------

NUMBERS = st.floats(-5, 5) | st.integers(0, 3).map(float)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=40))
@settings(deadline=None, max_examples=120)
def test_spearman_is_scipys(pairs: list[tuple[float, float]]) -> None:
    stats = pytest.importorskip("scipy.stats")
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = float(stats.spearmanr(one, other).statistic)
    ours = spearman(one, other)
    assert (math.isnan(ours) and math.isnan(expected)) or ours == pytest.approx(100 * expected, abs=1e-9)


@given(st.permutations(range(12)), st.lists(st.integers(0, 3), min_size=12, max_size=12), st.integers(1, 12))
@settings(deadline=None)
def test_discounted_gain_is_sklearns(order: list[int], gains: list[int], k: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    expected = metrics.ndcg_score([gains], [[-order.index(at) for at in range(12)]], k=k)
    assert ndcg([gains[at] for at in order], every=gains, k=k) == pytest.approx(100 * expected)


def test_recall_is_the_share_of_what_is_wanted() -> None:
    assert recall([0, 1, 0, 1], every=[1, 1, 1], k=2) == pytest.approx(100 / 3)
    assert recall([], every=[1]) == 0
    assert recall([1], every=[]) == 0
    assert ndcg([1], every=[]) == 0


def test_bm25_is_its_formula() -> None:
    texts = ["the cat sat on the mat", "a dog", "the cat and the other cat chased a dog around"]
    ranked = BM25(texts)
    lengths = [3, 1, 6]  # without the words that say nothing
    mean = sum(lengths) / 3

    def part(times: int, length: int, holding: int) -> float:
        idf = math.log(1 + (3 - holding + 0.5) / (holding + 0.5))
        return idf * times * 2.5 / (times + 1.5 * (0.25 + 0.75 * length / mean))

    expected = [part(1, 3, 2), part(1, 1, 2), part(2, 6, 2) + part(1, 6, 2)]
    np.testing.assert_allclose(ranked.scores("cat dog"), expected, rtol=1e-6)  # float32
    assert BM25([]).scores("cat").shape == (0,)
    assert ranked.scores("zebra").tolist() == [0, 0, 0]
