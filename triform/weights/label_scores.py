"""What the scores of a label head mean: probabilities of labels, or, with one output, a number.

A temperature is written into the head: dividing its last weights by T divides its scores by T, so the model has the
same probabilities here, on the page and in other software.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from triform.core.forms import Form
from triform.model import Model
from triform.spec import Classify, ModelSpec, Tag, is_tag
from triform.weights.config_fields import Config

TEMPERATURE = "temperature"  # in the memo of folders that still carry it beside the head


def find_label_indexes(spec: ModelSpec, labels: Sequence[str]) -> list[int]:
    """The numbers of the labels of whole texts."""
    return [at for at, label in enumerate(labels) if not (isinstance(spec.head, Tag) and is_tag(label))]


@torch.no_grad()
def divide_head(network: Form, temperature: float, *, labels: Sequence[int]) -> None:
    """scores[labels] ← scores[labels] / temperature, in place."""
    parameters = dict(network.named_parameters())
    for path in ("readout.out.weight", "readout.out.bias"):
        if path in parameters:
            parameters[path][list(labels)] /= temperature


def is_multi_label(model: Model) -> bool:
    """Whether several labels may hold at once: from the memo of our own folders, or from a released config."""
    several = model.memo.get("several")
    return bool(model.config.get("problem_type") == "multi_label_classification" if several is None else several)


def compute_label_probabilities(scores: Tensor, *, model: Model) -> Tensor:
    """Each label's own probability where several may hold, else shares that sum to 1."""
    return scores.double().sigmoid() if is_multi_label(model) else scores.double().softmax(-1)


def gives_number(spec: ModelSpec, memo: Config) -> bool:
    """One output that is no label, as of regressions, cross-encoders and rerankers."""
    return isinstance(spec.head, Classify) and spec.head.labels == 1 and "several" not in memo


def compute_number(scores: Tensor, config: Config) -> float:
    """The head's output, through the sigmoid where the folder asks for it."""
    score = scores.double().reshape(())
    return float(score.sigmoid() if ends_in_sigmoid(config) else score)


def ends_in_sigmoid(config: Config) -> bool:
    """What sentence-transformers wrote into config.json, in its newer or its older place; else the kind of problem."""
    newer = config.get("sentence_transformers")
    activation = newer.get("activation_fn") if isinstance(newer, dict) else None
    function = activation or config.get("sbert_ce_default_activation_function")
    if isinstance(function, str):
        return function.rpartition(".")[2] == "Sigmoid"
    return config.get("problem_type") == "multi_label_classification"
