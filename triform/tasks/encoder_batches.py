"""Batches of texts for an encoder (or a decoder with a head): windows, grouped by length, results in the texts' order.

Nothing is computed on padding, and memory does not grow with the number of texts. Refuses to know what is read from a
text (labels, spans, vectors).
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from triform.cluster.shared_evaluation import map_batches
from triform.cooperative import pause
from triform.core.forms import DecoderOnly, EncoderOnly
from triform.core.inputs import split_by_tokens
from triform.core.texts import Text
from triform.errors import ALL_EQUAL, InputError, InvalidScores
from triform.model import Model
from triform.native.native_network import choose_network
from triform.precision import at_least_float32, check_finite
from triform.text.tokenizer import Encoding
from triform.train.objectives import batch_texts, split_by_text

MAX_PASS_TOKENS = 2048  # of one forward pass: enough to use all cores, few enough to stay in their cache

Ids: TypeAlias = Sequence[int]
Reader: TypeAlias = EncoderOnly | DecoderOnly
Read: TypeAlias = Callable[[Reader, Text], Tensor]


def read_scores(network: Reader, text: Text) -> Tensor:
    """What the head says: of each text, [B, labels], or of each token, [B, T, labels]."""
    return network(text)


def read_first_scores(network: Reader, text: Text) -> Tensor:
    """What a head for tokens says of the first one, [B, labels]."""
    return network.head(text.first(network.hidden(text)))


@torch.no_grad()
def run_batches(
    rows: Sequence[Ids], *, model: Model, read: Read = read_scores, kinds: Sequence[Ids] = ()
) -> list[Tensor]:
    """`read` of each row, in the order of the rows."""
    network = model.network
    if not isinstance(network, EncoderOnly | DecoderOnly):
        raise InputError(f"this model is the form {model.spec.form!r}; reading needs an encoder or a decoder")
    _check_ids(rows, model)
    reader, _ = choose_network(network)
    device = network.device
    found: list[Tensor | None] = [None] * len(rows)

    def read_batch(some: list[int]) -> Sequence[Tensor]:
        sides = [kinds[i] for i in some] if kinds and model.spec.embedding.kinds > 1 else ()
        text = batch_texts([rows[i] for i in some], segment_ids=sides, device=device)
        pause()
        values = read(reader, text)
        each = split_by_text(text, values) if values.dim() == 3 else list(values)
        check_values(values, each)
        return each

    batches = list(split_by_tokens([len(row) for row in rows], most=MAX_PASS_TOKENS))
    for some, each in zip(batches, map_batches(read_batch, batches), strict=True):
        for i, value in zip(some, each, strict=True):
            found[i] = value.to(device)  # what another process has computed comes without its device
    return [value for value in found if value is not None]


def check_values(values: Tensor, each: Sequence[Tensor]) -> None:
    """What was read of some texts, together and of each: finite, and of no text the same number everywhere."""
    lowest, highest = values.aminmax(dim=-1)
    check_finite(lowest, highest)
    if bool((lowest == highest).any()) and any(map(says_nothing, each)):
        raise InvalidScores(ALL_EQUAL)


def says_nothing(values: Tensor) -> bool:
    """All are the same number. Two labels may have the same score in 16 bits by chance, unless both are 0."""
    lowest, highest = values.aminmax()
    return bool(lowest == highest) and (values.numel() > 2 or (values.numel() == 2 and float(lowest) == 0.0))


def _check_ids(rows: Sequence[Ids], model: Model) -> None:
    largest = max((max(row, default=0) for row in rows), default=0)
    if largest >= model.spec.vocab:
        raise InputError(
            f"the tokenizer gives token {largest}, the model's vocabulary has {model.spec.vocab}; "
            "they do not belong together"
        )


# --- texts into windows ---------------------------------------------------------------------------------------------


def get_max_tokens(model: Model) -> int:
    """The most tokens that are read at once."""
    longest = model.pooling.longest if model.pooling is not None else None
    return min(model.spec.context, longest or model.spec.context)


def compute_overlap(length: int) -> int:
    """A quarter: a token near the edge of one window stands well inside the next."""
    return length // 4


class TextWindows(NamedTuple):
    """The ids of a text, of a long one those of its windows; how many tokens the vocabulary could not spell, and how
    many are in no window."""

    ids: list[Ids]
    unknown: int
    cut: int = 0


def split_into_windows(texts: Sequence[str], *, model: Model) -> list[TextWindows]:
    """The token ids of each text, cut into overlapping windows where it is too long."""
    tokenizer, length = model.require_tokenizer(), get_max_tokens(model)
    found = []
    for text, ids in zip(texts, encode_texts(texts, model=model), strict=True):
        # Offsets are needed only where a text must be cut, and cost as much as all the rest.
        cut: list[Ids] = [ids]
        if len(ids) > length:
            cut = [each.ids for each in split_encoding(tokenizer.encode(text), length=length)]
        found.append(TextWindows(cut, tokenizer.count_unknown(ids)))
    return found


def cut_texts(texts: Sequence[str], *, model: Model) -> list[TextWindows]:
    """One window of each text, its beginning: what a long text has beyond it is cut off."""
    tokenizer, length = model.require_tokenizer(), get_max_tokens(model)
    found = []
    for text, ids in zip(texts, encode_texts(texts, model=model), strict=True):
        kept: Ids = ids
        if len(ids) > length:
            kept = tokenizer.encode(text).split_windows(length=length, overlap=0)[0].ids
        found.append(TextWindows([kept], tokenizer.count_unknown(kept), len(ids) - len(kept)))
    return found


def encode_texts(texts: Sequence[str], *, model: Model) -> list[list[int]]:
    """The token ids of each text."""
    check_texts(texts)
    found = model.require_tokenizer().ids_many(texts)
    for text, ids in zip(texts, found, strict=True):
        if not ids:
            raise InputError(f"nothing of the text {text[:40]!r} is left in tokens")
    return found


def split_encoding(encoding: Encoding, *, length: int) -> list[Encoding]:
    return encoding.split_windows(length=length, overlap=compute_overlap(length))


def average_windows(texts: Sequence[TextWindows], *, model: Model, read: Read) -> Tensor:
    """[texts, …]: the mean over the windows of each text, in float32 at least."""
    values = map(at_least_float32, run_batches([ids for text in texts for ids in text.ids], model=model, read=read))
    return torch.stack([torch.stack(list(islice(values, len(text.ids)))).mean(0) for text in texts])


def check_texts(texts: Sequence[str]) -> None:
    """Refuses what is no text, and empty texts."""
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise InputError(f"text {number} is {type(text).__name__}; give strings")
        if not text.strip():
            raise InputError(f"text {number} is empty; give at least one word")


def find_own_tokens(encoding: Encoding) -> list[int]:
    """Places of the tokens that come from the last text."""
    last = max((part for part in encoding.parts if part is not None), default=None)
    return [at for at, part in enumerate(encoding.parts) if part is not None and part == last]
