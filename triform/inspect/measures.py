"""Measures: one number for a changed answer, beside the unchanged one. A sweep colours its cells with them.

LogitDifference(" Mary", " John")   Probability("positive")   Divergence()   CosineDistance()
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from triform.errors import InputError
from triform.inspect.model_answers import find_kind, find_number, to_probabilities
from triform.model import Model

Names: TypeAlias = str | int | Sequence[str | int]  # of a token or label: one, or one per text


class Measure(ABC):
    """Scores [..., texts, V], and the unchanged ones, [texts, V] → [..., texts]; `texts` are their numbers."""

    @abstractmethod
    def measure(self, model: Model, scores: Tensor, clean: Tensor, texts: Sequence[int]) -> Tensor:
        """One number per row of scores."""


@dataclass(frozen=True)
class AnswerScore(Measure):
    """The score (logit) of a token or label."""

    of: Names

    def measure(self, model: Model, scores: Tensor, clean: Tensor, texts: Sequence[int]) -> Tensor:
        return pick_scores(model, scores, self.of, texts)

    def __str__(self) -> str:
        return f"score of {show_names(self.of)}"


@dataclass(frozen=True)
class LogitDifference(Measure):
    """score(right) − score(wrong)"""

    right: Names
    wrong: Names

    def measure(self, model: Model, scores: Tensor, clean: Tensor, texts: Sequence[int]) -> Tensor:
        right, wrong = (pick_scores(model, scores, names, texts) for names in (self.right, self.wrong))
        return right - wrong

    def __str__(self) -> str:
        return f"logit difference {show_names(self.right)} − {show_names(self.wrong)}"


@dataclass(frozen=True)
class Probability(Measure):
    """The probability of a token or label."""

    of: Names

    def measure(self, model: Model, scores: Tensor, clean: Tensor, texts: Sequence[int]) -> Tensor:
        flat = to_probabilities(model, scores.flatten(0, -2)).view_as(scores)
        return pick_scores(model, flat, self.of, texts)

    def __str__(self) -> str:
        return f"probability of {show_names(self.of)}"


@dataclass(frozen=True)
class Divergence(Measure):
    """KL(unchanged ‖ changed), in nats; of a head with one score, how far the score moved"""

    def measure(self, model: Model, scores: Tensor, clean: Tensor, texts: Sequence[int]) -> Tensor:
        if scores.shape[-1] == 1:
            return (scores - clean).double().abs()[..., 0]
        a, b = clean.double().log_softmax(-1), scores.double().log_softmax(-1)
        return (a.exp() * (a - b)).sum(-1).clamp(min=0)

    def __str__(self) -> str:
        return "KL divergence from the unchanged answer, in nats"


@dataclass(frozen=True)
class CosineDistance(Measure):
    """1 − cosine of the changed and the unchanged embedding"""

    def measure(self, model: Model, scores: Tensor, clean: Tensor, texts: Sequence[int]) -> Tensor:
        return 1 - torch.cosine_similarity(scores.double(), clean.double().expand_as(scores), dim=-1)

    def __str__(self) -> str:
        return "1 − cosine with the unchanged embedding"


def default_measure(model: Model) -> Measure:
    """How far the answer moved."""
    return CosineDistance() if find_kind(model) == "vector" else Divergence()


def pick_scores(model: Model, scores: Tensor, names: Names, texts: Sequence[int]) -> Tensor:
    """The scores of a token or label, [..., texts]"""
    if find_kind(model) == "vector":
        raise InputError("this model has neither tokens nor labels to name; use CosineDistance()")
    several = [names] if isinstance(names, str | int) else list(names)
    if len(several) > 1 and max(texts) >= len(several):
        raise InputError(f"there are {len(several)} names and at least {max(texts) + 1} texts; give one name per text")
    numbers = [find_number(model, several[0 if len(several) == 1 else i]) for i in texts]
    if wrong := [n for n in numbers if not 0 <= n < scores.shape[-1]]:
        raise InputError(f"{wrong[0]} is not among the {scores.shape[-1]} scores of this model")
    index = torch.tensor(numbers, device=scores.device).expand(scores.shape[:-1])
    return scores.double().gather(-1, index[..., None])[..., 0]


def show_names(names: Names) -> str:
    if isinstance(names, str | int):
        return repr(names)
    return repr(names[0]) if len(set(names)) == 1 else "one per text"
