"""Logistic regression on vectors that stay as they are: scores = x Wᵀ + b.

    Σ loss(scores, right) + |W|² / 2C is lowest, found by L-BFGS; C is the one whose fits do best on rows not seen

The same rows always give the same weights. Refuses to know texts, networks and what the vectors are made of.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

STRENGTHS = (0.1, 1.0, 10.0, 100.0)  # C: how far rows are believed; a larger C is a weaker penalty
FOLDS = 5
MANY_ROWS = 3000  # from here on one fold is enough to choose C
ITERATIONS = 100


class LinearFit(NamedTuple):
    """A fitted linear classifier."""

    weight: Tensor  # [labels, D]
    bias: Tensor  # [labels]
    strength: float  # the C that was chosen

    def scores(self, x: Tensor) -> Tensor:
        return x.double() @ self.weight.T + self.bias


def fit(x: Tensor, right: Tensor, *, several: bool, folds: Sequence[int], bias: bool = True) -> LinearFit:
    """`x` [rows, D] is dense or sparse; `right` [rows, labels] is 1 where a label holds; `folds` numbers the fold
    of each row."""
    strength = choose_strength(x, right, several=several, folds=folds, bias=bias)
    return fit_with(x, right, strength=strength, several=several, bias=bias)


def choose_strength(x: Tensor, right: Tensor, *, several: bool, folds: Sequence[int], bias: bool = True) -> float:
    """The C whose fits say most of the rows that they have not seen."""
    numbers = torch.tensor(folds)
    judged = sorted(set(folds))[: 1 if len(right) >= MANY_ROWS else None]
    if len(set(folds)) < 2:
        return 1.0  # nothing can be held out
    losses = dict.fromkeys(STRENGTHS, 0.0)
    for fold in judged:
        held, learned = (numbers == fold).nonzero()[:, 0], (numbers != fold).nonzero()[:, 0]
        start: LinearFit | None = None
        for strength in STRENGTHS:
            start = fit_with(
                select_rows(x, learned), right[learned], strength=strength, several=several, bias=bias, start=start
            )
            losses[strength] += float(compute_loss(start.scores(select_rows(x, held)), right[held], several=several))
    return min(STRENGTHS, key=lambda strength: losses[strength])


def fit_with(
    x: Tensor, right: Tensor, *, strength: float, several: bool, bias: bool = True, start: LinearFit | None = None
) -> LinearFit:
    """The lowest point of the loss with this C; `start` is a guess that saves steps."""
    labels, width = right.shape[1], x.shape[1]
    weight = torch.zeros(labels, width, dtype=torch.float64) if start is None else start.weight.clone()
    shift = torch.zeros(labels, dtype=torch.float64) if start is None else start.bias.clone()
    x, right, rows = x.double(), right.double(), max(1, len(right))
    weight.requires_grad_()
    shift.requires_grad_(bias)
    optimizer = torch.optim.LBFGS(
        [weight, shift] if bias else [weight],
        max_iter=ITERATIONS,
        history_size=5,
        tolerance_grad=1e-4,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = compute_loss(x @ weight.T + shift, right, several=several) + weight.square().sum() / (2 * strength)
        loss = loss / rows  # so that the tolerance means the same for few rows and for many
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    return LinearFit(weight.detach(), shift.detach(), strength)


def compute_loss(scores: Tensor, right: Tensor, *, several: bool) -> Tensor:
    """−Σ log p(right), over rows."""
    if several:
        return F.binary_cross_entropy_with_logits(scores, right, reduction="sum")
    return F.cross_entropy(scores, right, reduction="sum")


def select_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Some rows, of a dense or a sparse matrix."""
    found = x.index_select(0, rows)
    return found.coalesce() if found.is_sparse else found
