"""Logistic regression by L-BFGS, against scikit-learn; folds; and the classical baseline made of both."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from triform.data.folds import assign_folds
from triform.data.rows import LabelledRow
from triform.metrics import make_label_matrix
from triform.tasks import bag_of_words, logistic_regression

NAMES = ("a", "b", "c")


def clusters(rows: int = 90, *, noise: float = 1.0) -> tuple[torch.Tensor, list[str]]:
    generator = torch.Generator().manual_seed(5)
    labels = [NAMES[at % 3] for at in range(rows)]
    centres = torch.eye(3, 6, dtype=torch.float64)
    drawn = torch.randn(rows, 6, generator=generator, dtype=torch.float64)
    return torch.stack([centres[NAMES.index(label)] for label in labels]) + noise * drawn, labels


@pytest.mark.parametrize("strength", [0.1, 10.0])
def test_the_fit_is_the_one_of_scikit_learn(strength: float) -> None:
    x, labels = clusters()
    right = make_label_matrix([(label,) for label in labels], NAMES)
    found = logistic_regression.fit_with(x, right, strength=strength, several=False)
    reference = LogisticRegression(C=strength, tol=1e-8, max_iter=1000).fit(x.numpy(), labels)
    sure = found.scores(x).softmax(-1).numpy()
    np.testing.assert_allclose(sure, reference.predict_proba(x.numpy()), atol=2e-3)


def test_a_sparse_matrix_gives_the_same_fit() -> None:
    x, labels = clusters()
    right = make_label_matrix([(label,) for label in labels], NAMES)
    folds = [at % 5 for at in range(len(labels))]
    dense = logistic_regression.fit(x, right, several=False, folds=folds)
    sparse = logistic_regression.fit(x.to_sparse().coalesce(), right, several=False, folds=folds)
    assert dense.strength == sparse.strength
    torch.testing.assert_close(dense.weight, sparse.weight)


def test_c_is_chosen_on_rows_that_were_not_seen() -> None:
    """Vectors that say nothing are best believed least; clear ones most."""
    x, labels = clusters(noise=0.05)
    right = make_label_matrix([(label,) for label in labels], NAMES)
    folds = [at // 3 % 5 for at in range(len(labels))]
    empty = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert (
        logistic_regression.choose_strength(empty, right, several=False, folds=folds)
        == logistic_regression.STRENGTHS[0]
    )
    assert (
        logistic_regression.choose_strength(x, right, several=False, folds=folds) == logistic_regression.STRENGTHS[-1]
    )
    assert (
        logistic_regression.choose_strength(x, right, several=False, folds=[0] * len(labels)) == 1.0
    )  # nothing to hold out


def test_several_labels_may_hold() -> None:
    x, labels = clusters(noise=0.1)
    right = make_label_matrix([(label, "c") if label == "a" else (label,) for label in labels], NAMES)
    found = logistic_regression.fit_with(x, right, strength=100.0, several=True)
    assert ((found.scores(x) > 0).double() == right).all()


def test_folds_are_alike_and_keep_the_same_text_together() -> None:
    rows = [LabelledRow(f"text {at}", ("rare",) if at % 10 == 0 else ("usual",)) for at in range(60)]
    numbers = assign_folds([*rows, *rows], folds=3)
    assert numbers[:60] == numbers[60:]
    for fold in range(3):
        mine = [row for row, number in zip(rows, numbers[:60], strict=True) if number == fold]
        assert len(mine) == 20
        assert sum(row.labels == ("rare",) for row in mine) == 2
    assert dict(zip([row.text for row in rows], numbers, strict=False)) == dict(
        zip([row.text for row in reversed(rows)], assign_folds(list(reversed(rows)), folds=3), strict=True)
    )


def test_pairs_of_words_are_seen() -> None:
    """Each word is as frequent in both classes: only the order tells them apart."""
    good, bad = ["not bad", "bad ? no"] * 12, ["bad not", "no ? bad"] * 12
    found = bag_of_words.fit_bag_of_words([*good, *bad], [("good",)] * 24 + [("bad",)] * 24)
    assert found.answers(["not bad", "bad not", "no ? bad"]) == [("good",), ("bad",), ("bad",)]
