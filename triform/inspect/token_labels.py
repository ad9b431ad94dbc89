"""Text or ids as the tokens a model reads, and one label per token."""

from collections.abc import Sequence
from operator import index
from typing import NamedTuple, TypeAlias

from torch import Tensor

from triform.errors import InputError
from triform.text.tokenizer import Tokenizer

TextOrIds: TypeAlias = str | Sequence[int] | Tensor


class LabelledTokens(NamedTuple):
    """The tokens of one text, with segment ids and labels."""

    ids: tuple[int, ...]
    segment_ids: tuple[int, ...]
    labels: tuple[str, ...]


def tokenize_text(text: TextOrIds, tokenizer: Tokenizer | None) -> LabelledTokens:
    """A text or token ids as ids with labels."""
    if isinstance(text, str):
        if tokenizer is None:
            raise InputError("this model has no tokenizer, so it cannot read text; give token ids")
        encoding = tokenizer.encode(text)
        return _tokens(encoding.ids, encoding.segment_ids, tokenizer)
    try:
        ids = [index(id) for id in (text.squeeze(0).tolist() if isinstance(text, Tensor) else text)]
    except TypeError:
        raise InputError("view one text at a time: give a string, or one list of token ids") from None
    return _tokens(ids, [0] * len(ids), tokenizer)


def tokenize_target(target: TextOrIds | None, tokenizer: Tokenizer | None, *, start: int | None) -> LabelledTokens:
    """Ids as they are; a text as in training: `start` first, no end token, which the last position predicts."""
    if target is not None and not isinstance(target, str):
        return tokenize_text(target, tokenizer)
    if start is None:
        raise InputError("an encoder-decoder needs a target: give its ids, or start=, the id of its first token")
    ids = () if target is None else tokenize_text(target, tokenizer).ids
    ended = tokenizer is not None and ids[-1:] == (tokenizer.eos,)
    return tokenize_text((start, *(ids[:-1] if ended else ids)), tokenizer)


def token_text(id: int | None, tokenizer: Tokenizer | None) -> str:
    """The token's text, with U+FFFD for part of a character; its name if it has no text; its id without a tokenizer."""
    if id is None or tokenizer is None:
        return str(id)
    return tokenizer.decode([id], skip_special=False) or tokenizer.token_of(id) or str(id)


def token_label(id: int, tokenizer: Tokenizer | None, *, strip: bool = False) -> str:
    """The token's text if that is whole characters, else its name; `strip`: without spaces around it."""
    text = token_text(id, tokenizer)
    text = text.strip() if strip else text
    return text if tokenizer is None or (text and "\ufffd" not in text) else tokenizer.token_of(id) or str(id)


def _tokens(ids: Sequence[int], kinds: Sequence[int], tokenizer: Tokenizer | None) -> LabelledTokens:
    return LabelledTokens(tuple(ids), tuple(kinds), tuple(token_label(id, tokenizer) for id in ids))
