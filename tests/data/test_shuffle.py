"""Every row once, the same for everyone, from any position; and every order about as often as any other."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triform.data import shuffle as module
from triform.data.shuffle import make_order
from triform.errors import TriformError

numbers = st.integers(0, 2**63 - 1)


def whole(count: int, *, seed: int, epoch: int) -> list[int]:
    return list(make_order(count, seed=seed, epoch=epoch).walk())


@settings(max_examples=50, deadline=None)
@given(count=st.integers(0, 3000), seed=numbers, epoch=numbers)
def test_no_row_is_lost_or_repeated(count: int, seed: int, epoch: int):
    assert sorted(whole(count, seed=seed, epoch=epoch)) == list(range(count))


def test_no_row_is_lost_among_many():
    found = make_order(1 << 18, seed=1, epoch=2).at(np.arange(1 << 18))
    assert np.bincount(found).tolist() == [1] * (1 << 18)


@settings(max_examples=50, deadline=None)
@given(count=st.integers(1, 300), seed=numbers, start=st.integers(0, 300), block=st.integers(20, 200))
def test_resumed_from_a_position_it_is_the_rest(count: int, seed: int, start: int, block: int):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        assert list(make_order(count, seed=seed, epoch=3).walk(start)) == whole(count, seed=seed, epoch=3)[start:]


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
def test_any_number_of_processes_have_the_same_order(processes: int):
    parts = [make_order(1000, seed=5, epoch=1).at(np.arange(rank, 1000, processes)) for rank in range(processes)]
    together = np.empty(1000, int)
    for rank, part in enumerate(parts):
        together[rank::processes] = part
    assert together.tolist() == whole(1000, seed=5, epoch=1)


def test_the_order_of_a_seed_never_changes():
    """A checkpoint of last year resumes with the same rows: these numbers are part of the file format."""
    assert whole(10, seed=0, epoch=0) == [5, 9, 6, 8, 3, 0, 4, 2, 7, 1]
    assert make_order(10**12, seed=7, epoch=1).at(np.array([0, 10**11])).tolist() == [648375065134, 84456213372]


def test_epochs_and_seeds_differ():
    orders = {tuple(whole(50, seed=seed, epoch=epoch)) for seed in range(20) for epoch in range(20)}
    assert len(orders) == 400


def surprise(count: int, rounds: int) -> float:
    """How far the orders of `count` rows are from equally frequent, in standard deviations of chi²."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ROUNDS", rounds)
        seen = Counter(tuple(whole(count, seed=seed, epoch=epoch)) for seed in range(30) for epoch in range(30))
    kinds = math.factorial(count)
    expected = 900 / kinds
    missing = (kinds - len(seen)) * expected
    chi2 = sum((times - expected) ** 2 / expected for times in seen.values()) + missing
    return (chi2 - (kinds - 1)) / math.sqrt(2 * (kinds - 1))


@pytest.mark.parametrize("count", [3, 4, 5])
def test_every_order_is_about_as_frequent(count: int):
    assert abs(surprise(count, module.ROUNDS)) < 3.5


def test_too_few_rounds_would_be_noticed():
    assert surprise(4, 4) > 7


def test_neighbours_are_torn_apart():
    found = np.array(whole(10_000, seed=3, epoch=0))
    steps = np.abs(np.diff(found))
    assert abs(steps.mean() - 10_000 / 3) < 100  # two random places are a third apart on average
    assert abs(np.corrcoef(found, np.arange(10_000))[0, 1]) < 0.03


@pytest.mark.parametrize("wrong", [{"count": -1}, {"seed": -1}, {"epoch": 2**63}])
def test_numbers_that_make_no_order(wrong: dict[str, int]):
    with pytest.raises(TriformError, match="from 0 to"):
        make_order(**({"count": 1, "seed": 1, "epoch": 1} | wrong))
