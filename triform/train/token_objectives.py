"""Objectives whose targets are tokens: next token, masked tokens, sequence to sequence, spans.

Each makes inputs and, per input token, a target (or none) of an example; the loss is the same for all.
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
from triform.train.examples import E, ExamplePlace, Ids, SourceTarget, TokenExample
from triform.train.head_loss import head_loss
from triform.train.objectives import IGNORED, Device, Loss, batch_texts, pack_texts, sort_order, to_tensor, zero_loss


class TrainingItem(NamedTuple):
    """ids[t] is the input, targets[t] the target; `source` is the encoder's input in an encoder–decoder."""

    ids: Ids
    targets: npt.NDArray[np.int64]
    source: Ids = ()


class TokenBatch(NamedTuple):
    """The input of a network, the positions that have targets, and the targets."""

    text: Text | Pair
    where: Tensor
    targets: Tensor


class TokenObjective(Generic[E]):
    """−Σ log p(target), with label smoothing"""

    def __init__(self, *, smoothing: float = 0.0) -> None:
        self.smoothing = smoothing

    def make_item(self, example: E, place: ExamplePlace) -> TrainingItem:
        raise NotImplementedError

    def batch(self, examples: Sequence[E], *, places: Sequence[ExamplePlace], device: Device) -> TokenBatch | None:
        """None if there are no targets; texts without targets are left out."""
        items = [self.make_item(example, place) for example, place in zip(examples, places, strict=True)]
        items = [item for item in items if (item.targets != IGNORED).any()]
        if not items:
            return None
        items = [items[i] for i in sort_order([item.source for item in items], [item.ids for item in items])]
        ids, sources = [item.ids for item in items], [item.source for item in items]
        text = batch_pairs(sources, ids, device=device) if len(sources[0]) else batch_texts(ids, device=device)
        targets = np.concatenate([item.targets for item in items])
        where = np.flatnonzero(targets != IGNORED)
        return TokenBatch(text, to_tensor(where, device=device), to_tensor(targets[where], device=device))

    def loss(self, network: Form, batch: TokenBatch | None) -> Loss:
        if batch is None:
            return zero_loss(network)
        head = network.readout
        if not isinstance(head, LanguageHead):
            raise InputError(f"the head {type(head).__name__} predicts no tokens; use a language-model head")
        x = network.hidden(batch.text).flatten(0, 1)  # type: ignore[arg-type]  # a text or a pair, as the form needs
        if len(batch.where) < len(x):
            x = x[batch.where]
        weight, bias = head.weight(network.token.table), head.bias()
        total = head_loss(head.ready(x), weight, batch.targets, bias=bias, smoothing=self.smoothing)
        return Loss(total, len(batch.targets))


def batch_pairs(sources: Sequence[Ids], targets: Sequence[Ids], *, device: Device) -> Pair:
    """Both stacked if each has texts of one length, else both packed."""
    pair = Pair(batch_texts(sources, device=device), batch_texts(targets, device=device))
    if bool(pair.source.lengths) == bool(pair.target.lengths):
        return pair
    return Pair(pack_texts(sources, device=device), pack_texts(targets, device=device))


# --- objectives -----------------------------------------------------------------------------------------------------


class NextToken(TokenObjective[TokenExample]):
    """Predicts each token from those before it; with `learn`, only some (the answers of a chat)."""

    def make_item(self, example: TokenExample, place: ExamplePlace) -> TrainingItem:
        ids = np.asarray(example.ids, dtype=np.int64)
        targets = ids[1:]
        if example.learn is not None:
            learn = np.asarray(example.learn, dtype=bool)
            if learn.shape != ids.shape:
                raise InputError(f"{len(learn)} values of learn for {len(ids)} tokens; give one per token")
            targets = np.where(learn[1:], targets, IGNORED)
        return TrainingItem(ids[:-1], targets)


class MaskedToken(TokenObjective[TokenExample]):
    """Predicts 15% of the tokens: 80% of these are masked, 10% replaced by a random token, 10% left (BERT)."""

    def __init__(
        self, *, mask: int, vocab: int, never: Sequence[int] = (), share: float = 0.15, smoothing: float = 0.0
    ) -> None:
        super().__init__(smoothing=smoothing)
        self.mask, self.vocab, self.share = mask, vocab, share
        self.never = np.asarray(list(never), dtype=np.int64)  # special tokens: neither masked nor predicted

    def make_item(self, example: TokenExample, place: ExamplePlace) -> TrainingItem:
        ids = np.asarray(example.ids, dtype=np.int64)
        allowed = ~np.isin(ids, self.never)
        if example.learn is not None:
            allowed &= np.asarray(example.learn, dtype=bool)
        which, how, what = place.uniform(3 * len(ids)).reshape(3, -1)
        candidates = np.flatnonzero(allowed)
        count = min(len(candidates), max(1, round(self.share * len(candidates))))
        chosen = candidates[np.argsort(which[candidates], kind="stable")[:count]]
        inputs, targets = ids.copy(), np.full_like(ids, IGNORED)
        targets[chosen] = ids[chosen]
        masked, other = chosen[how[chosen] < 0.8], chosen[how[chosen] >= 0.9]
        inputs[masked] = self.mask
        inputs[other] = (what[other] * self.vocab).astype(np.int64)
        return TrainingItem(inputs, targets)


class SequenceToSequence(TokenObjective[SourceTarget]):
    """Teacher forcing: predicts each target token from the source and the target before it, after `start`."""

    def __init__(self, *, start: int, smoothing: float = 0.0) -> None:
        super().__init__(smoothing=smoothing)
        self.start = start

    def make_item(self, example: SourceTarget, place: ExamplePlace) -> TrainingItem:
        return shift_targets(example.source, example.target, start=self.start)


class RestoreSpans(TokenObjective[TokenExample]):
    """Span corruption: each span is replaced by a sentinel; the target lists each sentinel and its span (T5)."""

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

    def make_item(self, example: TokenExample, place: ExamplePlace) -> TrainingItem:
        ids = np.asarray(example.ids, dtype=np.int64)
        if len(ids) < 2:
            return TrainingItem(ids, np.full_like(ids, IGNORED))
        lost = min(max(round(self.share * len(ids)), 1), len(ids) - 1)
        spans = min(max(round(lost / self.mean_span), 1), len(self.sentinels), lost, len(ids) - lost)
        draws = place.uniform(len(ids))
        removed, visible = split_lengths(lost, spans, draws[:lost]), split_lengths(len(ids) - lost, spans, draws[lost:])
        cuts = np.cumsum(np.stack([visible, removed], axis=1).ravel())[:-1]
        pieces = np.split(ids, cuts)
        source: list[npt.NDArray[np.int64]] = []
        target: list[npt.NDArray[np.int64]] = []
        for sentinel, keep, lose in zip(self.sentinels, pieces[::2], pieces[1::2], strict=False):
            source += [keep, np.array([sentinel])]
            target += [np.array([sentinel]), lose]
        tail = [np.array([self.end])]
        return shift_targets(np.concatenate(source + tail), np.concatenate(target + tail), start=self.start)


def shift_targets(source: Ids, target: Ids, *, start: int) -> TrainingItem:
    """The target at t is the input at t + 1."""
    targets = np.asarray(target, dtype=np.int64)
    if not len(source) or not len(targets):
        return TrainingItem((), targets[:0])
    return TrainingItem(np.concatenate([[start], targets[:-1]]), targets, source)


def split_lengths(total: int, count: int, draws: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Splits `total` into `count` lengths of at least 1; every split is equally likely."""
    cuts = np.sort(np.argsort(draws[: total - 1], kind="stable")[: count - 1]) + 1
    return np.diff(np.concatenate([[0], cuts, [total]])).astype(np.int64)
