"""Choosing a token: pure functions on the logits of one position.

The random number of a token depends on the seed, the sample and the position alone, and a token is found by walking the
vocabulary in order until the summed probabilities exceed it: a request's tokens do not depend on the batch.
"""

import math
from collections.abc import Sequence
from copy import copy
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from triform.generate.settings import Settings

SORTED_COUNTS = (64, 1024, 8192)  # most likely tokens sorted before all are: filters rarely need more
NUMBERS_PER_COUNT = 4  # numbers that Philox makes per value of its counter; the first is used


def draw_uniforms(seed: int, position: int, *, sample: int = 0, count: int = 1) -> list[float]:
    """Numbers in [0, 1) for `count` positions: Philox with the key (seed, sample), the position as its counter."""
    philox = np.random.Philox(key=np.array([seed, sample], dtype=np.uint64), counter=position)
    numbers: list[float] = np.random.Generator(philox).random(NUMBERS_PER_COUNT * count)[::NUMBERS_PER_COUNT].tolist()
    return numbers


def draw(weights: Tensor, number: Tensor) -> Tensor:
    """The first token at which the weights so far exceed `number` of their sum; one for each number."""
    passed = weights.cumsum(-1)
    token = torch.searchsorted(passed, number * passed[-1], right=True)
    # number · sum may round up to the sum itself: then it is the last token that has any weight.
    return torch.minimum(token, torch.searchsorted(passed, passed[-1]))


def compute_weights(logits: Tensor, settings: Settings) -> Tensor:
    """exp(logits / temperature) after top-k, top-p, min-p, typical, epsilon and eta, in that order; the largest is 1.

    Each filter is a threshold, so tokens that tie at its edge stay or go together.
    """
    w = ((logits.double() - logits.max()) / settings.temperature).exp_()
    if 0 < settings.top_k < len(w):
        w.masked_fill_(w < w.topk(settings.top_k).values[-1], 0.0)
    if settings.top_p < 1.0:
        w.masked_fill_(w < find_mass_edge(w, settings.top_p), 0.0)
    if settings.min_p > 0.0:
        w.masked_fill_(w < settings.min_p, 0.0)
    if settings.typical < 1.0:
        w = keep_typical(w, settings.typical)
    if 0.0 < settings.epsilon < 1.0:
        w = keep_likely(w, settings.epsilon)
    if 0.0 < settings.eta < 1.0:
        w = keep_likely(w, min(settings.eta, math.sqrt(settings.eta) * math.exp(-entropy(w))))
    return w


def keep_likely(w: Tensor, least: float) -> Tensor:
    """The tokens of at least this probability, and the most likely one (Hewitt 2022)."""
    return w.masked_fill((w < least * w.sum()) & (w < w.max()), 0.0)


def entropy(w: Tensor) -> float:
    p = w / w.sum()
    return float(-(p * p.log()).nansum())


def find_mass_edge(w: Tensor, share: float) -> Tensor:
    """The smallest weight among the fewest tokens that together have this share of all."""
    mass = share * w.sum()
    for count in (*SORTED_COUNTS, len(w)):
        heaviest = w.topk(min(count, len(w))).values
        passed = heaviest.cumsum(-1)
        if len(heaviest) == len(w) or passed[-1] >= mass:
            break
    return heaviest[torch.searchsorted(passed, mass).clamp(max=len(passed) - 1)]


def keep_typical(w: Tensor, share: float) -> Tensor:
    """The tokens whose surprise −log p is nearest to the expected surprise (Meister 2022)."""
    p = w / w.sum()
    surprise = -p.log()
    expected = (p * surprise).nansum()  # what was filtered out has p · −log p = 0 · inf
    far = (surprise - expected).abs()
    order = far.argsort(stable=True)
    last = torch.searchsorted(p[order].cumsum(-1), share).clamp(max=len(p) - 1)
    return w.masked_fill(far > far[order[last]], 0.0)


class PlainHistory:
    """A history that changes no logits and stores nothing."""

    def add(self, token: int) -> None:
        pass

    def change_logits(self, logits: Tensor) -> Tensor:
        return logits

    def fork(self) -> "PlainHistory":
        return self


Followers: TypeAlias = dict[tuple[int, ...], set[int]]


def find_followers(ids: Sequence[int], n: int) -> Followers:
    """The tokens that follow each (n − 1)-gram."""
    table: Followers = {}
    for end in range(n, len(ids) + 1 if n else 0):
        table.setdefault(tuple(ids[end - n : end - 1]), set()).add(ids[end - 1])
    return table


class History(PlainHistory):
    """The tokens of a sequence, for settings that change logits, ban or force tokens because of them.

    `source` are the encoder's tokens; in a decoder-only model the prompt takes their place.
    """

    def __init__(
        self, settings: Settings, *, prompt: Sequence[int], limit: int, like: Tensor, source: Sequence[int] = ()
    ) -> None:
        self.settings = settings
        self.ids = list(prompt)
        self.written = 0
        self.forced = {
            at if at >= 0 else limit - 1: list(ids) if isinstance(ids, tuple) else [ids]
            for at, ids in settings.forced.items()
        }
        forced_bos = settings.forced_bos if len(prompt) == 1 else None
        self.first_free = 0 if forced_bos is None else 1
        if forced_bos is not None:
            self.forced.setdefault(0, [forced_bos])
        self.may_end = max(settings.min_tokens, settings.min_length - len(prompt))
        self.bias = torch.zeros_like(like)
        for token, bias in settings.logit_bias.items():
            self.bias[token] = bias
        self.bias[list(settings.banned)] = -math.inf
        self.counts = torch.zeros_like(like)  # of generated tokens
        self.seen = torch.zeros_like(like, dtype=torch.bool)
        self.seen[self.ids] = True
        self.in_source = torch.zeros_like(self.seen)
        self.in_source[list(source or prompt)] = True
        self.followers = find_followers(self.ids, settings.no_repeat_ngram)
        self.source_followers = find_followers(source or prompt, settings.no_source_ngram)

    def fork(self) -> "History":
        """A copy that continues independently."""
        other = copy(self)
        other.ids, other.counts, other.seen = list(self.ids), self.counts.clone(), self.seen.clone()
        other.followers = {before: set(after) for before, after in self.followers.items()}
        return other

    def add(self, token: int) -> None:
        self.ids.append(token)
        self.written += 1
        self.counts[token] += 1
        self.seen[token] = True
        if n := self.settings.no_repeat_ngram:
            for before, after in find_followers(self.ids[-n:], n).items():
                self.followers.setdefault(before, set()).update(after)

    def change_logits(self, logits: Tensor) -> Tensor:
        """In the order of transformers: sequences, repetition, n-grams, bans, ends, forced tokens."""
        x = self._ban(self._penalise(logits))
        if self.written in self.forced:
            allowed = torch.tensor(self.forced[self.written], device=x.device)
            x = torch.full_like(x, -math.inf).index_fill_(0, allowed, 0.0)
        x = self._raise_eos(x)
        if self.written == self.first_free:
            x[list(self.settings.banned_first)] = -math.inf
        return x.log_softmax(-1) if self.settings.renormalize else x

    def _penalise(self, logits: Tensor) -> Tensor:
        """Repetition divides a positive logit and multiplies a negative one (Keskar 2019); the others are added."""
        s, x = self.settings, logits.clone()
        for tokens, bias in s.sequence_bias.items():
            if self._follows(tokens):
                x[tokens[-1]] += bias
        if s.source_penalty != 1.0:
            x = torch.where(self.in_source, torch.where(x < 0, x / s.source_penalty, x * s.source_penalty), x)
        if s.repetition_penalty != 1.0:
            x = torch.where(self.seen, torch.where(x > 0, x / s.repetition_penalty, x * s.repetition_penalty), x)
        if s.presence_penalty or s.frequency_penalty:
            x = x - s.presence_penalty * (self.counts > 0) - s.frequency_penalty * self.counts
        return x + self.bias

    def _ban(self, x: Tensor) -> Tensor:
        s = self.settings
        banned = [tokens[-1] for tokens in s.banned_sequences if self._follows(tokens)]
        for n, after in ((s.no_repeat_ngram, self.followers), (s.no_source_ngram, self.source_followers)):
            banned += after.get(tuple(self.ids[len(self.ids) - n + 1 :]), ()) if n else ()
        if self.written < self.may_end:
            banned += s.eos
        x[banned] = -math.inf
        return x

    def _follows(self, tokens: Sequence[int]) -> bool:
        """The tokens so far end with all of these tokens but the last."""
        before = len(tokens) - 1
        return before <= len(self.ids) and self.ids[len(self.ids) - before :] == list(tokens[:-1])

    def _raise_eos(self, x: Tensor) -> Tensor:
        """After `start` generated tokens the logit of eos rises by |logit| · (factorᵗ − 1)."""
        if self.settings.length_decay is None or not self.settings.eos:
            return x
        start, factor = self.settings.length_decay
        if self.written > start:
            ends = list(self.settings.eos)
            risen = x[ends] + x[ends].abs() * (factor ** (self.written - start) - 1)
            x[ends] = torch.where(x[ends].isfinite(), risen, x[ends])
        return x
