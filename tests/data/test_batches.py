"""Every text once, within the limits, without much padding, and from any batch on as if never stopped."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triform.data import batches
from triform.data.batches import batch_by_tokens, pack_texts
from triform.data.shuffle import make_order
from triform.errors import TriformError

lengths_of_texts = st.lists(st.integers(1, 60), max_size=200)


@given(lengths=lengths_of_texts, limit=st.integers(60, 200))
def test_packing_loses_and_splits_nothing(lengths: list[int], limit: int):
    rows = pack_texts(lengths, limit=limit)
    assert sorted(text for row in rows for text in row) == list(range(len(lengths)))
    assert all(0 < sum(lengths[text] for text in row) <= limit for row in rows)
    assert all(row == sorted(row) for row in rows)
    assert rows == pack_texts(np.array(lengths, np.int64), limit=limit)


@given(lengths=lengths_of_texts, limit=st.integers(60, 200))
def test_no_two_packed_rows_could_be_one(lengths: list[int], limit: int):
    filled = sorted(sum(lengths[text] for text in row) for row in pack_texts(lengths, limit=limit))
    assert len(filled) < 2 or filled[0] + filled[1] > limit


def test_a_text_goes_where_it_leaves_least_room():
    assert pack_texts([5, 7, 3, 5, 2], limit=10) == [[0, 3], [1, 2], [4]]


@pytest.mark.parametrize("lengths", [[3, 11], [0]])
def test_what_cannot_be_packed(lengths: list[int]):
    with pytest.raises(TriformError, match=f"text {len(lengths) - 1} has {lengths[-1]} tokens"):
        pack_texts(lengths, limit=10)


epochs = {
    "lengths": st.builds(
        lambda count, seed: np.random.default_rng(seed).integers(0, 60, count), st.integers(0, 300), st.integers(0)
    ),
    "budget": st.integers(1, 300),
    "seed": st.integers(0, 2**31),
    "window": st.integers(1, 40),
}


def epoch(lengths, budget: int, seed: int, window: int, start: int = 0) -> list[list[int]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "SORTED_ROWS", window)
        shuffled = make_order(len(lengths), seed=seed, epoch=0)
        return [batch.tolist() for batch in batch_by_tokens(lengths, batch_tokens=budget, order=shuffled, start=start)]


@settings(max_examples=50, deadline=None)
@given(**epochs)
def test_no_row_is_lost_or_repeated_in_an_epoch(lengths, budget: int, seed: int, window: int):
    found = epoch(lengths, budget, seed, window)
    assert sorted(row for batch in found for row in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or len(batch) * lengths[batch].max() <= budget for batch in found)


@settings(max_examples=50, deadline=None)
@given(**epochs, start=st.integers(0, 60))
def test_resumed_from_a_batch_it_is_the_rest(lengths, budget: int, seed: int, window: int, start: int):
    assert epoch(lengths, budget, seed, window, start) == epoch(lengths, budget, seed, window)[start:]


def test_similar_lengths_are_together_and_batches_are_shuffled():
    lengths = np.random.default_rng(0).integers(1, 500, 20_000)
    found = list(batch_by_tokens(lengths, batch_tokens=4096, order=make_order(20_000, seed=1, epoch=0)))
    computed = sum(len(batch) * lengths[batch].max() for batch in found)
    assert lengths.sum() / computed > 0.95
    longest = np.array([lengths[batch].max() for batch in found])
    assert abs(np.corrcoef(longest, np.arange(len(found)))[0, 1]) < 0.1
    plain = np.arange(20_000).reshape(-1, 16)
    assert lengths.sum() / sum(len(batch) * lengths[batch].max() for batch in plain) < 0.6  # what it saves


def test_epochs_differ():
    lengths = np.arange(1, 101)
    first, second = (
        [
            batch.tolist()
            for batch in batch_by_tokens(lengths, batch_tokens=200, order=make_order(100, seed=1, epoch=number))
        ]
        for number in (0, 1)
    )
    assert first != second


@pytest.mark.parametrize(("count", "budget", "start"), [(4, 10, 0), (3, 0, 0), (3, 10, -1)])
def test_what_makes_no_batches(count: int, budget: int, start: int):
    with pytest.raises(TriformError, match="one length per row"):
        list(
            batch_by_tokens(np.ones(3, int), batch_tokens=budget, order=make_order(count, seed=0, epoch=0), start=start)
        )
