"""Objectives on pairs of texts, and on queries with passages: the cosine of their embeddings (the mean over tokens)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from triform.core.forms import Form
from triform.core.texts import Text
from triform.train.examples import ExamplePlace, RankedTexts, TwoTexts, texts_of
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


class RankedBatch(NamedTuple):
    """All queries, their relevant passages and all others in one pass; `back[i]` is the position of text i in it.
    `hidden[i, j]`: passage j is relevant to query i too, and not the one that is to be found."""

    text: Text
    back: Tensor
    hidden: Tensor


class RankedPassages(WholeBatchObjective):
    """−log softmax over j of (scale · queryᵢ · passageⱼ) at i's own passage: the others are all passages of the batch
    that are not known to be relevant to query i."""

    def __init__(self, *, scale: float = 20.0) -> None:
        self.scale = scale

    def batch(self, examples: Sequence[RankedTexts], *, places: Sequence[ExamplePlace], device: Device) -> RankedBatch:
        split = [texts_of(each) for each in examples]
        queries, own = [texts[0] for texts in split], [texts[1] for texts in split]
        passages = own + [other for texts in split for other in texts[2:]]
        order = sort_order(queries + passages)
        text = batch_texts([(queries + passages)[at] for at in order], device=device)
        names = [tuple(map(int, query)) for query in queries]
        relevant = {(name, tuple(map(int, passage))) for name, passage in zip(names, own, strict=True)}
        keys = [tuple(map(int, passage)) for passage in passages]
        hidden = [
            [(name, key) in relevant and at != row for at, key in enumerate(keys)] for row, name in enumerate(names)
        ]
        return RankedBatch(text, torch.tensor(order).argsort().to(device), torch.tensor(hidden, device=device))

    def loss(self, network: Form, batch: RankedBatch) -> Loss:
        x = mean_vectors(batch.text, network.hidden(batch.text))  # type: ignore[arg-type]  # models of one side
        vectors, count = F.normalize(x[batch.back], dim=-1), len(batch.hidden)
        scores = (self.scale * vectors[:count] @ vectors[count:].T).masked_fill(batch.hidden, -torch.inf)
        return Loss(
            F.cross_entropy(scores, torch.arange(len(scores), device=scores.device), reduction="sum"), len(scores)
        )
