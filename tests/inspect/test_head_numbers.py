"""A few numbers of every head: what they say of weights that were made by hand."""

import numpy as np
import pytest

from triform.inspect.head_numbers import find_successors, measure_weights


def test_heads_made_by_hand_are_told_apart() -> None:
    n = 4
    first, before, own, even = (np.zeros((n, n)) for _ in range(4))
    first[:, 0] = 1
    before[0, 0] = 1
    before[range(1, n), range(n - 1)] = 1
    np.fill_diagonal(own, 1)
    even[:] = 1 / n
    found = measure_weights(np.stack([first, before, own, even]), [5, 6, 7, 8], same=True)
    assert found["first token"] == pytest.approx([1, 1 / 3, 0, 0.25])
    assert found["previous token"] == pytest.approx([1 / 3, 1, 0, 0.25])
    assert found["own token"] == pytest.approx([0.25, 0.25, 1, 0.25])
    assert found["spread"] == pytest.approx([0, 0, 0, 1])
    assert found["distance"] == pytest.approx([1.5, 0.75, 0, 1.25])
    assert "induction" not in found  # no token occurs twice


def test_induction_looks_behind_the_earlier_occurrence() -> None:
    assert find_successors([1, 2, 3, 1, 2]) == [(3, 1), (4, 2)]
    assert find_successors([1, 1]) == []  # the token behind the first is the query itself
    weights = np.zeros((1, 5, 5))
    weights[0, 3, 1] = weights[0, 4, 2] = 1
    assert measure_weights(weights, [1, 2, 3, 1, 2], same=True)["induction"] == pytest.approx([1])


def test_one_token_has_no_neighbours() -> None:
    found = measure_weights(np.ones((2, 1, 1)), [3], same=True)
    assert found["first token"] == pytest.approx([1, 1])
    assert "previous token" not in found
