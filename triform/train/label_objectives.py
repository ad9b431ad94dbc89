"""Objectives whose targets are labels: per text (one, several, a number), per token, or the span of an answer."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from triform.core.forms import Form
from triform.core.texts import Text
from triform.errors import InputError
from triform.precision import at_least_float32
from triform.train.examples import AnswerExample, ExamplePlace, LabelExample, TagExample
from triform.train.objectives import IGNORED, Device, Loss, batch_texts, sort_order, split_by_text, to_tensor, zero_loss


class LabelBatch(NamedTuple):
    """Texts, and their targets in the same order."""

    text: Text
    labels: Tensor


L = TypeVar("L", LabelExample, TagExample, AnswerExample)


def _batch_texts(examples: Sequence[L], device: Device) -> tuple[Text, list[L]]:
    """The texts sorted by length, and the examples in that order."""
    ordered = [examples[i] for i in sort_order([example.ids for example in examples])]
    ids, kinds = [each.ids for each in ordered], [getattr(each, "kinds", None) for each in ordered]
    return batch_texts(ids, segment_ids=kinds, device=device), ordered


class OneLabel:
    """−log p(label), times the weight of the label where there are weights"""

    def __init__(self, *, smoothing: float = 0.0, weights: Sequence[float] | None = None) -> None:
        self.smoothing, self.weights = smoothing, weights

    def batch(self, examples: Sequence[LabelExample], *, places: Sequence[ExamplePlace], device: Device) -> LabelBatch:
        text, ordered = _batch_texts(examples, device)
        return LabelBatch(text, torch.tensor([example.label for example in ordered], dtype=torch.int64, device=device))

    def loss(self, network: Form, batch: LabelBatch) -> Loss:
        scores = at_least_float32(network(batch.text))
        weights = None if self.weights is None else torch.tensor(self.weights, dtype=scores.dtype, device=scores.device)
        total = F.cross_entropy(scores, batch.labels, weights, reduction="sum", label_smoothing=self.smoothing)
        return Loss(total, len(batch.labels))


class SeveralLabels:
    """−Σ over labels of log p(holds) or log p(does not); each label of each text is a target"""

    def __init__(self, *, labels: int) -> None:
        self.labels = labels

    def batch(self, examples: Sequence[LabelExample], *, places: Sequence[ExamplePlace], device: Device) -> LabelBatch:
        text, ordered = _batch_texts(examples, device)
        holds = torch.zeros(len(ordered), self.labels)
        for row, example in zip(holds, ordered, strict=True):
            if not isinstance(example.label, Sequence):
                raise InputError(f"label {example.label!r} is not a list; give the list of the labels' numbers")
            row[list(example.label)] = 1.0
        return LabelBatch(text, holds.to(device))

    def loss(self, network: Form, batch: LabelBatch) -> Loss:
        scores = at_least_float32(network(batch.text))
        total = F.binary_cross_entropy_with_logits(scores, batch.labels.to(scores.dtype), reduction="sum")
        return Loss(total, batch.labels.numel())


class Regression:
    """(score − number)²"""

    def batch(self, examples: Sequence[LabelExample], *, places: Sequence[ExamplePlace], device: Device) -> LabelBatch:
        text, ordered = _batch_texts(examples, device)
        return LabelBatch(
            text, torch.tensor([example.label for example in ordered], dtype=torch.float64, device=device)
        )

    def loss(self, network: Form, batch: LabelBatch) -> Loss:
        scores = at_least_float32(network(batch.text))
        if scores.shape[-1] != 1:
            raise InputError(f"regression needs a head with 1 label, this one has {scores.shape[-1]}")
        total = F.mse_loss(scores[:, 0], batch.labels.to(scores.dtype), reduction="sum")
        return Loss(total, len(batch.labels))


class TokenLabels:
    """−Σ log p(label of the token), over tokens that have a label"""

    def __init__(self, *, smoothing: float = 0.0) -> None:
        self.smoothing = smoothing

    def batch(self, examples: Sequence[TagExample], *, places: Sequence[ExamplePlace], device: Device) -> LabelBatch:
        text, ordered = _batch_texts(examples, device)
        labels = np.concatenate([np.asarray(example.labels, dtype=np.int64) for example in ordered])
        if len(labels) != text.ids.numel():
            raise InputError(
                f"{len(labels)} labels for {text.ids.numel()} tokens; give one label per token (−100 = ignore)"
            )
        return LabelBatch(text, to_tensor(np.where(labels < 0, IGNORED, labels), device=device))

    def loss(self, network: Form, batch: LabelBatch) -> Loss:
        count = int((batch.labels != IGNORED).sum())
        if not count:
            return zero_loss(network)
        scores = at_least_float32(network(batch.text)).flatten(0, 1)
        total = F.cross_entropy(
            scores, batch.labels, reduction="sum", ignore_index=IGNORED, label_smoothing=self.smoothing
        )
        return Loss(total, count)


class AnswerSpan:
    """−½ (log p(first) + log p(last)), each over the tokens of its own text"""

    def batch(self, examples: Sequence[AnswerExample], *, places: Sequence[ExamplePlace], device: Device) -> LabelBatch:
        for example in examples:
            if not 0 <= example.first <= example.last < len(example.ids):
                raise InputError(
                    f"answer {example.first} to {example.last} is not in a text of {len(example.ids)} tokens"
                )
        text, ordered = _batch_texts(examples, device)
        return LabelBatch(text, torch.tensor([(example.first, example.last) for example in ordered], device=device))

    def loss(self, network: Form, batch: LabelBatch) -> Loss:
        texts = split_by_text(batch.text, at_least_float32(network(batch.text)))
        scores = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=-torch.inf)
        total = F.cross_entropy(scores, batch.labels, reduction="sum") / 2
        return Loss(total, len(batch.labels))
