"""From a head's scores of labels to probabilities: one function for the task, the page and whatever else shows them."""

from torch import Tensor

from triform.model import Model


def is_several(model: Model) -> bool:
    """Whether several labels may hold at once: as our own folders remember it, or as released configs say it."""
    told = model.memo.get("several")
    return bool(model.config.get("problem_type") == "multi_label_classification" if told is None else told)


def label_probabilities(scores: Tensor, *, model: Model) -> Tensor:
    """Each label's own probability where several may hold, else shares that sum to 1."""
    return scores.double().sigmoid() if is_several(model) else scores.double().softmax(-1)
