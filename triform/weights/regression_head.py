"""Heads with one output: not labels but a number, as of regressions, cross-encoders and rerankers.

Owns how a folder says which function its makers put behind the last layer. Refuses to know what the number means.
"""

from torch import Tensor

from triform.spec import Classify, ModelSpec
from triform.weights.config_fields import Config


def gives_number(spec: ModelSpec, memo: Config) -> bool:
    """One output, and not trained here on labels, of which there may be one, too."""
    return isinstance(spec.head, Classify) and spec.head.labels == 1 and "several" not in memo


def number_of(scores: Tensor, config: Config) -> float:
    """The head's output, through the sigmoid where the folder says so."""
    score = scores.double().reshape(())
    return float(score.sigmoid() if ends_in_sigmoid(config) else score)


def ends_in_sigmoid(config: Config) -> bool:
    """What sentence-transformers wrote into config.json, in its newer or its older place; else the kind of problem."""
    newer = config.get("sentence_transformers")
    said = newer.get("activation_fn") if isinstance(newer, dict) else None
    function = said or config.get("sbert_ce_default_activation_function")
    if isinstance(function, str):
        return function.rpartition(".")[2] == "Sigmoid"
    return config.get("problem_type") == "multi_label_classification"
