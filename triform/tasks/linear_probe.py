"""Linear probes: can a label be read from vectors by a linear map? Scores are of rows that the map has not seen.

    score = probe(vectors, labels)       # vectors [N, D], one label per row
    score.accuracy, score.majority, score.shuffled

The same vectors are always in the same fold, each fold's features are scaled by what its training rows say, and beside
the accuracy stand the commonest label and the same probe with shuffled labels: what a probe of this size finds in none.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor

from triform.errors import InputError
from triform.tasks.logistic_regression import LinearFit, fit_with

FOLDS = 5
STRENGTHS = (0.01, 0.1, 1.0)  # of the fit; chosen within the training rows


class ProbeScore(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracies on held-out rows."""

    rows: int
    labels: int
    accuracy: float
    spread: float  # standard deviation over the folds
    majority: float  # of always saying the commonest label
    shuffled: float  # of the same probe where the labels are in a random order
    recall: dict[str, float]  # of each label

    def __str__(self) -> str:
        return (
            f"accuracy {self.accuracy:.1%} ± {self.spread:.1%} on rows not seen "
            f"(commonest label {self.majority:.1%}, shuffled labels {self.shuffled:.1%}; "
            f"{self.rows:,} rows, {self.labels} labels)"
        )


class Split(NamedTuple):
    """Rows to learn from and rows to judge by."""

    learned: Tensor
    held: Tensor


def probe(
    vectors: Any,
    labels: Sequence[Hashable],
    *,
    folds: int = FOLDS,
    seed: int = 0,
    groups: Sequence[Hashable] | None = None,
) -> ProbeScore:
    """A linear classifier of the vectors' labels, judged on held-out rows in turn; rows of one group (a word, a
    speaker) are held out together."""
    x = to_matrix(vectors)
    check_rows(x, labels, folds)
    names = sorted(set(labels), key=str)
    right = torch.tensor([names.index(label) for label in labels])
    splits = split_rows(x, groups, folds=folds, seed=seed)
    said = predict_held_out(x, right, splits, len(names))
    order = torch.randperm(len(right), generator=torch.Generator().manual_seed(seed))
    control = predict_held_out(x, right[order], splits, len(names))
    hits = (said == right).double()
    return ProbeScore(
        rows=len(x),
        labels=len(names),
        accuracy=float(hits.mean()),
        spread=float(torch.stack([hits[split.held].mean() for split in splits]).std()),
        majority=max(Counter(right.tolist()).values()) / len(right),
        shuffled=float((control == right[order]).double().mean()),
        recall={str(name): float(hits[right == i].mean()) for i, name in enumerate(names)},
    )


def to_matrix(vectors: Any) -> Tensor:
    """A copy in float64, of a tensor or of what numpy reads."""
    if isinstance(vectors, Tensor):
        return vectors.detach().cpu().double()
    return torch.from_numpy(np.array(vectors, dtype=np.float64))


def check_rows(x: Tensor, labels: Sequence[Hashable], folds: int) -> None:
    """One finite vector per label, and at least two labels."""
    if x.dim() != 2:
        raise InputError(f"the vectors have {x.dim()} axes, shape {list(x.shape)}; a probe needs [rows, numbers]")
    if len(x) != len(labels):
        raise InputError(
            f"there are {len(x):,} vectors and {len(labels):,} labels; give one label per vector, in the same order"
        )
    if not bool(torch.isfinite(x).all()):
        row = int((~torch.isfinite(x).all(1)).nonzero()[0])
        raise InputError(f"vector {row + 1} is NaN or infinite: its text could not be read; remove it and its label")
    if len(set(labels)) < 2:
        raise InputError("all labels are the same; a probe needs at least two different ones")
    if not 2 <= folds <= len(x):
        raise InputError(f"folds={folds} does not fit {len(x)} rows; use 2 to {len(x)}")


def split_rows(x: Tensor, given: Sequence[Hashable] | None, *, folds: int, seed: int) -> list[Split]:
    """Rows of one group are in one fold; without groups equal vectors are, so that no row is judged by its own copy."""
    if given is not None and len(given) != len(x):
        raise InputError(f"there are {len(x):,} vectors and {len(given):,} groups; give one group per vector")
    if given is None:
        owner = torch.unique(x, dim=0, return_inverse=True)[1]
    else:
        known = {group: i for i, group in enumerate(dict.fromkeys(given))}
        owner = torch.tensor([known[group] for group in given])
    groups = list(range(int(owner.max()) + 1))
    Random(seed).shuffle(groups)
    fold_of = torch.tensor([groups[i] % folds for i in owner.tolist()])
    splits = [Split((fold_of != fold).nonzero()[:, 0], (fold_of == fold).nonzero()[:, 0]) for fold in range(folds)]
    if any(not len(split.held) or not len(split.learned) for split in splits):
        raise InputError(f"there are only {len(groups)} groups of rows; use fewer folds")
    return splits


def predict_held_out(x: Tensor, right: Tensor, splits: Sequence[Split], count: int) -> Tensor:
    """The label that each row gets from the fit that has not seen it."""
    said = torch.empty_like(right)
    for split in splits:
        mean, deviation = x[split.learned].mean(0), x[split.learned].std(0).clamp(min=1e-9)
        scaled = (x - mean) / deviation
        fit = fit_best(scaled[split.learned], right[split.learned], count)
        said[split.held] = fit.scores(scaled[split.held]).argmax(-1)
    return said


def fit_best(x: Tensor, right: Tensor, count: int) -> LinearFit:
    """With the strength that does best on a fifth of these rows."""
    targets = torch.nn.functional.one_hot(right, count).double()
    held = torch.arange(len(x)) % 5 == 0

    def hits(strength: float) -> float:
        fit = fit_with(x[~held], targets[~held], strength=strength, several=False)
        return float((fit.scores(x[held]).argmax(-1) == right[held]).double().sum())

    best = max(STRENGTHS, key=hits) if bool(held.any()) and bool((~held).any()) else STRENGTHS[0]
    return fit_with(x, targets, strength=best, several=False)
