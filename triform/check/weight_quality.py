"""What few bits change: a model beside itself in float32, on a text. Never silent: `triform check --weights q8`.

KL is the mean of Σ p log(p / q) over positions, in nats; "same top" is the share of positions where both models think
the same token likeliest; perplexity is that of the text itself, where the model predicts the next token. Models whose
head is for labels, spans or embeddings read the text sentence by sentence: the same top is then the same answer, and of
embeddings the same nearest sentence.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import torch
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F

from triform.core.forms import EncoderDecoder, EncoderOnly, Form
from triform.core.output_heads import LanguageHead
from triform.core.texts import Pair, Text
from triform.errors import InputError
from triform.model import Model

WINDOW = 256  # tokens that are read at once
ROWS = 64  # positions whose scores exist at once
SEED = 0
SENTENCE_END = re.compile(r"(?<=[.!?])[\"”]?\s+|\n{2,}")


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """One text. Perplexities are None where the model predicts no next token; `cosine` is for models without scores,
    `same_nearest` for those with one vector per sentence."""

    text: str
    positions: int
    kl: float | None = None
    same_top: float | None = None
    perplexity: float | None = None  # in float32
    perplexity_change: float | None = None  # a share: 0.01 is 1 % more
    cosine: float | None = None
    same_nearest: float | None = None

    def cells(self) -> tuple[str, ...]:
        def show_value(value: float | None, form: str) -> str:
            return "" if value is None else format(value, form)

        return (
            self.text,
            f"{self.positions:,}",
            show_value(self.kl, ".2e"),
            show_value(self.same_top, ".1%"),
            show_value(self.perplexity, ".3f"),
            show_value(self.perplexity_change, "+.2%"),
            show_value(self.cosine, ".6f"),
            show_value(self.same_nearest, ".1%"),
        )


COLUMNS = ("text", "positions", "KL", "same top", "perplexity", "change", "cosine", "same nearest")


class QualityReport(msgspec.Struct, frozen=True, kw_only=True):
    """A model in one kind of weights beside float32."""

    weights: str
    bytes: int
    bytes_float32: int
    texts: tuple[Quality, ...]

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def __rich__(self) -> Table:
        title = f"{self.weights} beside float32: {self.bytes:,} bytes, {self.bytes / self.bytes_float32:.1%} of float32"
        table = Table(title=title, title_justify="left")
        used = [at for at, name in enumerate(COLUMNS) if any(each.cells()[at] for each in self.texts)]
        for at in used:
            table.add_column(COLUMNS[at], justify="left" if at == 0 else "right")
        for each in self.texts:
            table.add_row(*(each.cells()[at] for at in used))
        return table

    def lines(self) -> Iterator[str]:
        """Markdown, for a model card."""
        yield f"| {' | '.join(COLUMNS)} |"
        yield f"|{'---|' * len(COLUMNS)}"
        for each in self.texts:
            yield f"| {' | '.join(each.cells())} |"


class Sums(NamedTuple):
    """What is summed over positions."""

    kl: float
    same: int
    loss: float
    other_loss: float
    targets: int
    positions: int


@torch.no_grad()
def compare_weights(reference: Model, other: Model, *, text: str, name: str) -> Quality:
    """`reference` is in float32; both have one tokenizer."""
    if not isinstance(reference.network.readout, LanguageHead):
        return compare_outputs(reference, other, split_sentences(reference, text), name=name)
    windows = split_windows(reference, text)
    sums = [each for window in windows for each in compare_scores(reference, other, window)]
    kl, same, loss, other_loss, targets, count = map(sum, zip(*sums, strict=True))
    predicts = targets > 0
    return Quality(
        text=name,
        positions=count,
        kl=kl / count,
        same_top=same / count,
        perplexity=math.exp(min(loss / targets, 700)) if predicts else None,
        perplexity_change=math.expm1(min((other_loss - loss) / targets, 700)) if predicts else None,
    )


def split_windows(model: Model, text: str) -> list[list[int]]:
    """The text's tokens in windows; a model without a tokenizer gets random ones."""
    longest = min(WINDOW, model.spec.context)
    if model.tokenizer is None:
        draw = torch.Generator().manual_seed(SEED)
        return torch.randint(model.spec.vocab, (2, longest), generator=draw).tolist()
    ids = list(model.tokenizer.encode(text).ids)
    if len(ids) < 2:
        raise InputError(f"the text has {len(ids)} tokens; give a page of text")
    windows = [ids[at : at + longest] for at in range(0, len(ids), longest)]
    return [window for window in windows if len(window) > 1]


def split_sentences(model: Model, text: str) -> list[list[int]]:
    """The tokens of each sentence, of a long one its beginning; a model without a tokenizer gets random windows."""
    if model.tokenizer is None:
        return split_windows(model, text)
    longest = min(WINDOW, model.spec.context)
    found = [model.tokenizer.encode(one).ids[:longest] for one in SENTENCE_END.split(text) if one.strip()]
    if len(found) < 2:
        raise InputError(f"the text has {len(found)} sentences; give a page of text")
    return [list(ids) for ids in found if ids]


def compare_scores(reference: Model, other: Model, window: Sequence[int]) -> Iterator[Sums]:
    """Piece by piece: scores of a whole window over a large vocabulary would take more memory than the model."""
    ids = torch.tensor([window])
    predicts = not isinstance(reference.network, EncoderOnly)
    states = [hidden_states(model.network, ids, model)[0] for model in (reference, other)]
    targets = ids[0, 1:] if predicts else ids[0, :0]
    for at in range(0, ids.shape[1], ROWS):
        p, q = (
            F.log_softmax(model.network.head(x[None, at : at + ROWS])[0].double(), dim=-1)
            for model, x in zip((reference, other), states, strict=True)
        )
        wanted = targets[at : at + ROWS, None]
        losses = [-float(x[: len(wanted)].gather(1, wanted).sum()) for x in (p, q)]
        kl = float((p.exp() * (p - q)).sum())
        yield Sums(kl, int((p.argmax(-1) == q.argmax(-1)).sum()), losses[0], losses[1], len(wanted), len(p))


def hidden_states(network: Form, ids: Tensor, model: Model) -> Tensor:
    """[1, T, D]; an encoder-decoder reads the text as its source, and again as its target."""
    if isinstance(network, EncoderDecoder):
        return network.hidden(Pair(Text.of(ids), Text.of(ids)))
    return network.hidden(Text.of(ids))


def compare_outputs(reference: Model, other: Model, windows: Sequence[Sequence[int]], *, name: str) -> Quality:
    """Labels have probabilities; hidden states and embeddings have a direction."""
    pairs = [[model.logits([window]).double().flatten(0, -2) for model in (reference, other)] for window in windows]
    x, y = (torch.cat(column) for column in zip(*pairs, strict=True))
    if not reference.labels or x.shape[-1] < 2:
        cosine = float(F.cosine_similarity(x, y, dim=-1).mean())
        nearest = [find_nearest(each) for each in (x, y)] if 2 < len(x) == len(windows) else None
        same_nearest = None if nearest is None else float((nearest[0] == nearest[1]).double().mean())
        return Quality(text=name, positions=len(x), cosine=cosine, same_nearest=same_nearest)
    p, q = x.log_softmax(-1), y.log_softmax(-1)
    kl, same = (p.exp() * (p - q)).sum(-1).mean(), (p.argmax(-1) == q.argmax(-1)).double().mean()
    return Quality(text=name, positions=len(x), kl=float(kl), same_top=float(same))


def find_nearest(vectors: Tensor) -> Tensor:
    """Of each vector, which of the others has the largest cosine with it."""
    normed = F.normalize(vectors, dim=-1)
    return (normed @ normed.T).fill_diagonal_(-2.0).argmax(-1)
