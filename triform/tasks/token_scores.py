"""Log-probabilities of tokens that are given: each behind those before it, or each where it is masked.

Many rows share a pass, and nothing is computed on padding. Refuses to know texts.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from triform.cooperative import pause
from triform.core.forms import DecoderOnly, EncoderOnly, Form
from triform.core.inputs import split_by_tokens
from triform.core.texts import Text
from triform.errors import InputError
from triform.model import Model
from triform.native.native_network import choose_network
from triform.precision import at_least_float32, check_scores
from triform.tasks.encoder_batches import MAX_PASS_TOKENS
from triform.train.examples import Ids
from triform.train.objectives import batch_texts, to_tensor
from triform.train.token_objectives import batch_pairs

HEAD_POSITIONS = 256  # whose scores for the whole vocabulary are held at once


class TokenRow(NamedTuple):
    """Each of `ids` but the first is scored behind those before it, and behind the source in an encoder–decoder."""

    ids: Ids
    source: Ids = ()


class TokenLogprobs(NamedTuple):
    """log p of each scored token, and whether it was the likeliest."""

    values: Tensor
    greedy: Tensor


@torch.no_grad()
def score_rows(rows: Sequence[TokenRow], *, model: Model) -> list[TokenLogprobs]:
    """The log-probabilities of each row's tokens, in the order of the rows."""
    network, device = get_network(model), model.device
    found: dict[int, TokenLogprobs] = {}
    for some in split_by_tokens(
        [len(row.source) for row in rows], [len(row.ids) for row in rows], most=MAX_PASS_TOKENS
    ):
        sources, inputs = [rows[at].source for at in some], [rows[at].ids[:-1] for at in some]
        text = batch_pairs(sources, inputs, device=device) if sources[0] else batch_texts(inputs, device=device)
        pause()
        x = network.hidden(text).flatten(0, 1)  # type: ignore[arg-type]  # a text or a pair, as the form needs
        targets = to_tensor(np.concatenate([rows[at].ids[1:] for at in some]), device=device)
        values, greedy = score_targets(network, x, targets)
        sizes = [len(row) for row in inputs]
        for at, *parts in zip(some, torch.split(values, sizes), torch.split(greedy, sizes), strict=True):
            found[at] = TokenLogprobs(*parts)
    return [found[at] for at in range(len(rows))]


@torch.no_grad()
def score_next(rows: Sequence[Ids], wanted: Sequence[Sequence[int]], *, model: Model) -> list[Tensor]:
    """Of a decoder, log p of each of the wanted tokens behind each row."""
    network, device = get_network(model), model.device
    if not isinstance(network, DecoderOnly):
        raise InputError(f"this model is the form {model.spec.form!r}; next tokens need a decoder")
    found: dict[int, Tensor] = {}
    for some in split_by_tokens([len(row) for row in rows], most=MAX_PASS_TOKENS):
        text = batch_texts([rows[at] for at in some], device=device)
        pause()
        logits = at_least_float32(network.head(text.last(network.hidden(text))))
        check_scores(logits)
        for at, logprobs in zip(some, logits.log_softmax(-1).double().cpu(), strict=True):
            found[at] = logprobs[list(wanted[at])]
    return [found[at] for at in range(len(rows))]


@torch.no_grad()
def score_masked(
    rows: Sequence[Ids], places: Sequence[Sequence[int]], *, mask: int, model: Model
) -> list[TokenLogprobs]:
    """For each row log p of its tokens at these places, each masked alone while all others are seen."""
    network = get_network(model)
    if not isinstance(network, EncoderOnly):
        raise InputError(f"this model is the form {model.spec.form!r}; masked tokens need an encoder")
    values = [torch.empty(len(some), dtype=torch.float64) for some in places]
    greedy = [torch.empty(len(some), dtype=torch.bool) for some in places]
    for length in sorted({len(row) for row in rows}):
        every = [(n, i) for n, row in enumerate(rows) if len(row) == length for i in range(len(places[n]))]
        step = max(1, MAX_PASS_TOKENS // length)
        for begin in range(0, len(every), step):
            some = every[begin : begin + step]
            at = torch.tensor([places[n][i] for n, i in some], device=model.device)
            ids = torch.tensor([list(rows[n]) for n, _ in some], device=model.device)
            targets = ids.gather(1, at[:, None])[:, 0]
            pause()
            x = network.hidden(Text.of(ids.scatter(1, at[:, None], mask)))
            found = score_targets(network, x[torch.arange(len(some), device=at.device), at], targets)
            for (n, i), value, likeliest in zip(some, *found, strict=True):
                values[n][i], greedy[n][i] = value, likeliest
    return [TokenLogprobs(*each) for each in zip(values, greedy, strict=True)]


def score_targets(network: Form, x: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """log softmax(head(x))[target] in float64, and whether no other token has a higher one."""
    values, greedy = [], []
    for hidden, wanted in zip(torch.split(x, HEAD_POSITIONS), torch.split(targets, HEAD_POSITIONS), strict=True):
        logits = at_least_float32(network.head(hidden))
        check_scores(logits)
        own = logits.gather(1, wanted[:, None])[:, 0]
        values.append((own - logits.logsumexp(-1)).double().cpu())
        greedy.append((own >= logits.amax(-1)).cpu())
    return torch.cat(values), torch.cat(greedy)


def get_network(model: Model) -> Form:
    """The network, or a copy of it that is faster."""
    return choose_network(model.network)[0]
