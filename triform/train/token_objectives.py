"""Objectives whose targets are tokens: continue, fill in, translate, restore spans. Each is one way to make an item.

An item is what goes in and, for each token of it, what should come out (or nothing); the loss is the same for all.
"""

from collections.abc import Sequence
from typing import Generic, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from triform.core.forms import Form
from triform.core.output_heads import LanguageHead
from triform.core.texts import Pair, Text
from triform.errors import InputError
from triform.train.examples import E, Ids, Place, SourceTarget, Tokens
from triform.train.head_loss import head_loss
from triform.train.objectives import NOTHING, Device, Loss, laid_out, no_loss, numbers, packed, sort_order


class Item(NamedTuple):
    """ids[t] goes in, targets[t] should come out; with a source where the model has two sides."""

    ids: Ids
    targets: npt.NDArray[np.int64]
    source: Ids = ()


class LanguageBatch(NamedTuple):
    """What a network reads, and where among all its positions the targets stand."""

    text: Text | Pair
    where: Tensor
    targets: Tensor


class Language(Generic[E]):
    """−Σ log p(target), with label smoothing"""

    def __init__(self, *, smoothing: float = 0.0) -> None:
        self.smoothing = smoothing

    def item(self, example: E, place: Place) -> Item:
        raise NotImplementedError

    def batch(self, examples: Sequence[E], *, places: Sequence[Place], device: Device) -> LanguageBatch | None:
        """None where there is nothing to learn; a text without targets is not computed."""
        made = [self.item(example, place) for example, place in zip(examples, places, strict=True)]
        made = [item for item in made if (item.targets != NOTHING).any()]
        if not made:
            return None
        items = [made[i] for i in sort_order([item.source for item in made], [item.ids for item in made])]
        ids, sources = [item.ids for item in items], [item.source for item in items]
        goal = both_sides(sources, ids, device=device) if len(sources[0]) else laid_out(ids, device=device)
        targets = np.concatenate([item.targets for item in items])
        where = np.flatnonzero(targets != NOTHING)
        return LanguageBatch(goal, numbers(where, device=device), numbers(targets[where], device=device))

    def loss(self, network: Form, batch: LanguageBatch | None) -> Loss:
        if batch is None:
            return no_loss(network)
        head = network.readout
        if not isinstance(head, LanguageHead):
            raise InputError(f"a model with the head {type(head).__name__} has no words to learn; use a language head")
        x = network.hidden(batch.text).flatten(0, 1)  # type: ignore[arg-type]  # one text or a pair, as the form reads
        if len(batch.where) < len(x):
            x = x[batch.where]
        weight, bias = head.weight(network.token.weight), head.bias()
        total = head_loss(head.ready(x), weight, batch.targets, bias=bias, smoothing=self.smoothing)
        return Loss(total, len(batch.targets))


def both_sides(sources: Sequence[Ids], targets: Sequence[Ids], *, device: Device) -> Pair:
    """Both sides in rows where each has one length, else both packed."""
    pair = Pair(laid_out(sources, device=device), laid_out(targets, device=device))
    if bool(pair.source.lengths) == bool(pair.target.lengths):
        return pair
    return Pair(packed(sources, device=device), packed(targets, device=device))


# --- the kinds ------------------------------------------------------------------------------------------------------


class NextToken(Language[Tokens]):
    """Each token is predicted from those before it; with `learn`, only some are (the answers of a chat)."""

    def item(self, example: Tokens, place: Place) -> Item:
        ids = np.asarray(example.ids, dtype=np.int64)
        targets = ids[1:]
        if example.learn is not None:
            learn = np.asarray(example.learn, dtype=bool)
            if learn.shape != ids.shape:
                raise InputError(f"{len(learn)} marks of what to learn for {len(ids)} tokens; give one a token")
            targets = np.where(learn[1:], targets, NOTHING)
        return Item(ids[:-1], targets)


class MaskedToken(Language[Tokens]):
    """15% of the tokens are to be told: of these 80% are masked, 10% replaced by any token, 10% left (BERT)."""

    def __init__(
        self, *, mask: int, vocab: int, never: Sequence[int] = (), share: float = 0.15, smoothing: float = 0.0
    ) -> None:
        super().__init__(smoothing=smoothing)
        self.mask, self.vocab, self.share = mask, vocab, share
        self.never = np.asarray(
            list(never), dtype=np.int64
        )  # tokens with a duty ([CLS], [SEP]) are neither told nor masked

    def item(self, example: Tokens, place: Place) -> Item:
        ids = np.asarray(example.ids, dtype=np.int64)
        may = ~np.isin(ids, self.never)
        if example.learn is not None:
            may &= np.asarray(example.learn, dtype=bool)
        which, how, what = place.uniform(3 * len(ids)).reshape(3, -1)
        candidates = np.flatnonzero(may)
        count = min(len(candidates), max(1, round(self.share * len(candidates))))
        chosen = candidates[np.argsort(which[candidates], kind="stable")[:count]]
        told, targets = ids.copy(), np.full_like(ids, NOTHING)
        targets[chosen] = ids[chosen]
        masked, other = chosen[how[chosen] < 0.8], chosen[how[chosen] >= 0.9]
        told[masked] = self.mask
        told[other] = (what[other] * self.vocab).astype(np.int64)
        return Item(told, targets)


class Translate(Language[SourceTarget]):
    """Teacher forcing: the target is predicted from the source and the target before it; it begins with `start`."""

    def __init__(self, *, start: int, smoothing: float = 0.0) -> None:
        super().__init__(smoothing=smoothing)
        self.start = start

    def item(self, example: SourceTarget, place: Place) -> Item:
        return teacher_forced(example.source, example.target, start=self.start)


class RestoreSpans(Language[Tokens]):
    """Spans of a text are each replaced by a sentinel; the target names each sentinel and its span (T5)."""

    def __init__(
        self,
        *,
        sentinels: Sequence[int],
        end: int,
        start: int,
        share: float = 0.15,
        mean_span: float = 3.0,
        smoothing: float = 0.0,
    ) -> None:
        super().__init__(smoothing=smoothing)
        self.sentinels, self.end, self.start = tuple(sentinels), end, start
        self.share, self.mean_span = share, mean_span

    def item(self, example: Tokens, place: Place) -> Item:
        ids = np.asarray(example.ids, dtype=np.int64)
        if len(ids) < 2:
            return Item(ids, np.full_like(ids, NOTHING))
        lost = min(max(round(self.share * len(ids)), 1), len(ids) - 1)
        spans = min(max(round(lost / self.mean_span), 1), len(self.sentinels), lost, len(ids) - lost)
        draws = place.uniform(len(ids))
        away, kept = segments(lost, spans, draws[:lost]), segments(len(ids) - lost, spans, draws[lost:])
        cuts = np.cumsum(np.stack([kept, away], axis=1).ravel())[:-1]
        pieces = np.split(ids, cuts)
        source: list[npt.NDArray[np.int64]] = []
        target: list[npt.NDArray[np.int64]] = []
        for sentinel, keep, lose in zip(self.sentinels, pieces[::2], pieces[1::2], strict=False):
            source += [keep, np.array([sentinel])]
            target += [np.array([sentinel]), lose]
        tail = [np.array([self.end])]
        return teacher_forced(np.concatenate(source + tail), np.concatenate(target + tail), start=self.start)


def teacher_forced(source: Ids, target: Ids, *, start: int) -> Item:
    """What should come out at t goes in at t + 1."""
    targets = np.asarray(target, dtype=np.int64)
    if not len(source) or not len(targets):
        return Item((), targets[:0])
    return Item(np.concatenate([[start], targets[:-1]]), targets, source)


def segments(total: int, count: int, draws: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """`total` shared out into `count` lengths of at least 1, every way equally likely."""
    cuts = np.sort(np.argsort(draws[: total - 1], kind="stable")[: count - 1]) + 1
    return np.diff(np.concatenate([[0], cuts, [total]])).astype(np.int64)
