"""From a person's text or ids to the tokens a model reads, and a label for every token."""

from collections.abc import Sequence
from operator import index
from typing import NamedTuple, TypeAlias

from torch import Tensor

from triform.errors import InputError
from triform.text.tokenizer import Tokenizer

Given: TypeAlias = str | Sequence[int] | Tensor


class Tokens(NamedTuple):
    """A text as a model read it."""

    ids: tuple[int, ...]
    kinds: tuple[int, ...]
    labels: tuple[str, ...]


def tokens_of(given: Given, tokenizer: Tokenizer | None) -> Tokens:
    if isinstance(given, str):
        if tokenizer is None:
            raise InputError("this model has no tokenizer, so it cannot read text; give token ids")
        encoding = tokenizer.encode(given)
        return _tokens(encoding.ids, encoding.kinds, tokenizer)
    try:
        ids = [index(id) for id in (given.squeeze(0).tolist() if isinstance(given, Tensor) else given)]
    except TypeError:
        raise InputError("a look is at one text: give a string, or one row of whole numbers") from None
    return _tokens(ids, [0] * len(ids), tokenizer)


def target_of(given: Given | None, tokenizer: Tokenizer | None, *, start: int | None) -> Tokens:
    """Ids as they are; a text as in training: after `start`, without its end, which is what the last token awaits."""
    if given is not None and not isinstance(given, str):
        return tokens_of(given, tokenizer)
    if start is None:
        raise InputError("an encoder-decoder reads a target too: give its ids, or start=, the token it begins with")
    ids = () if given is None else tokens_of(given, tokenizer).ids
    ended = tokenizer is not None and ids[-1:] == (tokenizer.eos,)
    return tokens_of((start, *(ids[:-1] if ended else ids)), tokenizer)


def label(id: int, tokenizer: Tokenizer | None) -> str:
    """The token's text; its name where it is only a part of a character, its id where there is no tokenizer."""
    if tokenizer is None:
        return str(id)
    text = tokenizer.decode([id], skip_special=False)
    return text if text and "\ufffd" not in text else tokenizer.token_of(id) or str(id)


def _tokens(ids: Sequence[int], kinds: Sequence[int], tokenizer: Tokenizer | None) -> Tokens:
    return Tokens(tuple(ids), tuple(kinds), tuple(label(id, tokenizer) for id in ids))
