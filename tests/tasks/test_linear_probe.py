"""A probe finds what is there and nothing where there is nothing: its scores are of rows it has not seen."""

import numpy as np
import pytest
import torch

from triform.errors import InputError
from triform.tasks.linear_probe import probe

dice = torch.Generator().manual_seed(0)
RIGHT = torch.randint(0, 3, (150,), generator=dice).tolist()
NOISE = torch.randn(150, 40, generator=dice)
SIGNAL = NOISE + 4 * torch.nn.functional.one_hot(torch.tensor(RIGHT), 40)


def test_signal_is_found_and_noise_is_not() -> None:
    """On its own rows a probe of 40 numbers would fit noise well above chance: held out, it does not."""
    found, nothing = (probe(x, RIGHT, folds=3) for x in (SIGNAL, NOISE))
    assert found.accuracy > 0.9
    assert nothing.accuracy < nothing.majority + 0.12
    assert found.shuffled < found.majority + 0.12
    assert set(found.recall) == {"0", "1", "2"}
    assert "on rows not seen" in str(found)


def test_copies_of_a_row_are_held_out_together() -> None:
    """Planted mistake: with copies in other folds, noise would be learned by heart."""
    double = torch.cat((NOISE[:60], NOISE[:60]))
    score = probe(double, RIGHT[:60] * 2, folds=4)
    assert score.accuracy < 0.65


def test_groups_are_held_out_together() -> None:
    """Vectors that only tell the word: no use for a word that was not seen."""
    words = torch.arange(150) % 30
    vectors = torch.nn.functional.one_hot(words, 30).double() + 0.01 * NOISE[:, :30]
    labels = [int(word) % 2 for word in words]
    assert probe(vectors, labels, folds=3).accuracy > 0.95
    assert probe(vectors, labels, folds=3, groups=words.tolist()).accuracy < 0.7


@pytest.mark.parametrize(
    ("vectors", "labels", "message"),
    [
        (NOISE, RIGHT[:-2], "150 vectors and 148 labels"),
        (NOISE[:, 0], RIGHT, "a probe needs"),
        (NOISE, [1] * 150, "all labels are the same"),
        (np.full((150, 2), np.nan), RIGHT, "vector 1 is NaN"),
        (NOISE[:3], [1, 2, 3], "folds=5 does not fit 3 rows"),
        (torch.ones(150, 2), RIGHT, "1 groups of rows"),
    ],
)
def test_bad_input_is_one_line(vectors: object, labels: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        probe(vectors, labels)
