"""Choosing a token: pure functions on the logits of one position.

The random number of a token depends on the seed, the sample and the position alone, and a token is found by walking the
vocabulary in order until the probabilities passed exceed it: a request writes the same tokens whoever runs beside it.
Refuses to know models and batches.
"""

import math
from collections.abc import Sequence
from copy import copy

import numpy as np
import torch
from torch import Tensor

from triform.generate.settings import Settings

ENOUGH = (64, 1024, 8192)  # how many of the likeliest tokens are sorted before all are: filters rarely need more
PER_COUNT = 4  # numbers that Philox makes at each value of its counter; the first is ours


def uniforms(seed: int, position: int, *, sample: int = 0, count: int = 1) -> list[float]:
    """Numbers in [0, 1) for `count` positions: Philox with the key (seed, sample), the position as its counter."""
    philox = np.random.Philox(key=np.array([seed, sample], dtype=np.uint64), counter=position)
    numbers: list[float] = np.random.Generator(philox).random(PER_COUNT * count)[::PER_COUNT].tolist()
    return numbers


def draw(weights: Tensor, number: Tensor) -> Tensor:
    """The first token at which the weights so far exceed `number` of their sum; one for each number."""
    passed = weights.cumsum(-1)
    token = torch.searchsorted(passed, number * passed[-1], right=True)
    # number · sum may round up to the sum itself: the answer is then the last token that has any weight.
    return torch.minimum(token, torch.searchsorted(passed, passed[-1]))


def weights(logits: Tensor, settings: Settings) -> Tensor:
    """exp(logits / temperature) of what top-k, top-p, min-p and typical leave, in that order; the largest is 1.

    Each filter is a threshold, so tokens that tie at its edge stay or go together.
    """
    w = ((logits.double() - logits.max()) / settings.temperature).exp_()
    if 0 < settings.top_k < len(w):
        w.masked_fill_(w < w.topk(settings.top_k).values[-1], 0.0)
    if settings.top_p < 1.0:
        w.masked_fill_(w < mass_edge(w, settings.top_p), 0.0)
    if settings.min_p > 0.0:
        w.masked_fill_(w < settings.min_p, 0.0)
    if settings.typical < 1.0:
        w = typical(w, settings.typical)
    return w


def mass_edge(w: Tensor, share: float) -> Tensor:
    """The smallest weight among the fewest tokens that together have this share of all."""
    mass = share * w.sum()
    for count in (*ENOUGH, len(w)):
        heaviest = w.topk(min(count, len(w))).values
        passed = heaviest.cumsum(-1)
        if len(heaviest) == len(w) or passed[-1] >= mass:
            break
    return heaviest[torch.searchsorted(passed, mass).clamp(max=len(passed) - 1)]


def typical(w: Tensor, share: float) -> Tensor:
    """The tokens whose surprise −log p is nearest to the expected surprise (Meister 2022)."""
    p = w / w.sum()
    surprise = -p.log()
    expected = (p * surprise).nansum()  # what was filtered out has p · −log p = 0 · inf
    far = (surprise - expected).abs()
    order = far.argsort(stable=True)
    last = torch.searchsorted(p[order].cumsum(-1), share).clamp(max=len(p) - 1)
    return w.masked_fill(far > far[order[last]], 0.0)


class Untouched:
    """The logits decide as they are; nothing is remembered."""

    def add(self, token: int) -> None:
        pass

    def changed(self, logits: Tensor) -> Tensor:
        return logits

    def fork(self) -> "Untouched":
        return self


class History(Untouched):
    """What a row has read and written, for settings that change logits, forbid or force tokens because of it."""

    def __init__(self, settings: Settings, *, read: Sequence[int], limit: int, like: Tensor) -> None:
        self.settings = settings
        self.ids = list(read)
        self.written = 0
        self.forced = {at if at >= 0 else limit - 1: token for at, token in settings.forced.items()}
        self.bias = torch.zeros_like(like)
        for token, bias in settings.logit_bias.items():
            self.bias[token] = bias
        self.bias[list(settings.banned)] = -math.inf
        self.counts = torch.zeros_like(like)  # of what was written
        self.seen = torch.zeros_like(like, dtype=torch.bool)
        self.seen[self.ids] = True
        self.followers: dict[tuple[int, ...], set[int]] = {}  # of each (n − 1)-gram, what came after it
        for end in range(1, len(self.ids) + 1):
            self._note_ngram(end)

    def fork(self) -> "History":
        """The same past, from here on two futures."""
        other = copy(self)
        other.ids, other.counts, other.seen = list(self.ids), self.counts.clone(), self.seen.clone()
        other.followers = {before: set(after) for before, after in self.followers.items()}
        return other

    def add(self, token: int) -> None:
        self.ids.append(token)
        self.written += 1
        self.counts[token] += 1
        self.seen[token] = True
        self._note_ngram(len(self.ids))

    def _note_ngram(self, end: int) -> None:
        n = self.settings.no_repeat_ngram
        if n and end >= n:
            self.followers.setdefault(tuple(self.ids[end - n : end - 1]), set()).add(self.ids[end - 1])

    def changed(self, logits: Tensor) -> Tensor:
        """Repetition divides a positive logit and multiplies a negative one (Keskar 2019); the others are added."""
        s = self.settings
        x = logits
        if s.repetition_penalty != 1.0:
            x = torch.where(self.seen, torch.where(x > 0, x / s.repetition_penalty, x * s.repetition_penalty), x)
        if s.presence_penalty or s.frequency_penalty:
            x = x - s.presence_penalty * (self.counts > 0) - s.frequency_penalty * self.counts
        x = x + self.bias
        if s.no_repeat_ngram:
            last = tuple(self.ids[len(self.ids) - s.no_repeat_ngram + 1 :])
            x[list(self.followers.get(last, ()))] = -math.inf
        if self.written in self.forced:
            token = self.forced[self.written]
            x = torch.full_like(x, -math.inf).index_fill_(0, torch.tensor([token], device=x.device), 0.0)
        return x
