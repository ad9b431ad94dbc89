"""Objectives on pairs of texts: the cosine of their embeddings (the mean over tokens)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from triform.core.forms import Form
from triform.core.texts import Text
from triform.train.examples import ExamplePlace, TwoTexts
from triform.train.objectives import Device, Loss, WholeBatchObjective, batch_texts, mean_vectors, sort_order


class PairBatch(NamedTuple):
    """All first texts and all second texts in one pass; `back[i]` is the position of text i in it. Equal second texts
    have the same number in `second`."""

    text: Text
    back: Tensor
    scores: Tensor
    second: Tensor


class PairObjective:
    """Normalised embeddings of both texts per pair."""

    def batch(self, examples: Sequence[TwoTexts], *, places: Sequence[ExamplePlace], device: Device) -> PairBatch:
        rows = [each.first for each in examples] + [each.second for each in examples]
        order = sort_order(rows)
        text = batch_texts([rows[i] for i in order], device=device)
        back = torch.tensor(order, device=device).argsort()
        scores = torch.tensor([each.score for each in examples], dtype=torch.float64).to(device)
        texts = [tuple(each.second) for each in examples]
        number = {each: at for at, each in enumerate(texts)}
        return PairBatch(text, back, scores, torch.tensor([number[each] for each in texts], device=device))

    def vectors(self, network: Form, batch: PairBatch) -> tuple[Tensor, Tensor]:
        x = mean_vectors(batch.text, network.hidden(batch.text))  # type: ignore[arg-type]  # models of one side
        first, second = F.normalize(x[batch.back], dim=-1).chunk(2)
        return first, second


class InBatchNegatives(PairObjective, WholeBatchObjective):
    """−log softmax over j of (scale · firstᵢ · secondⱼ) at j = i: the other pairs of a batch are the negatives, except
    equal second texts (one passage answers several questions)."""

    def __init__(self, *, scale: float = 20.0) -> None:
        self.scale = scale

    def loss(self, network: Form, batch: PairBatch) -> Loss:
        first, second = self.vectors(network, batch)
        own = torch.arange(len(first), device=first.device)
        duplicate = (batch.second[:, None] == batch.second) & (own[:, None] != own)
        scores = (self.scale * first @ second.T).masked_fill(duplicate, -torch.inf)
        return Loss(F.cross_entropy(scores, own, reduction="sum"), len(own))


class CosineScores(PairObjective):
    """(cos(first, second) − score)²"""

    def loss(self, network: Form, batch: PairBatch) -> Loss:
        first, second = self.vectors(network, batch)
        cosines = (first * second).sum(-1)
        return Loss(F.mse_loss(cosines, batch.scores.to(cosines.dtype), reduction="sum"), len(cosines))
