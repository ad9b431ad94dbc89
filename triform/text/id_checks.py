"""A tokenizer beside a model: each id that it gives to a text must be a row of the model's embedding.

Added tokens may lie beyond the rows, as `<pad>` in folders of Llama: a text holds them only where it writes them out,
and such a text is refused by name. Knows numbers of rows, refuses to know models.
"""

import re
from itertools import islice

from triform.text.panic_guard import TokenizerError
from triform.text.tokenizer import Tokenizer

ANY_ROWS = 2**32  # of no particular model: as many as there can be ids
EXTRA_WORDS = 1024  # that a vocabulary may have beyond the rows until its ids are looked at one by one
JSON_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')


def refuse_many_words(count: int, *, rows: int, what: str) -> None:
    """Before a tokenizer is built of them, which takes seconds and a gigabyte for millions."""
    if count > rows + EXTRA_WORDS:
        raise TokenizerError(
            f"{what} has {count:,} words or more, the model has {rows:,} rows; bring the tokenizer of this model"
        )


def count_strings(data: bytes, *, rows: int) -> int:
    """Strings in JSON, none of which is looked at once it is certain that they are too many."""
    return sum(1 for _ in islice(JSON_STRING.finditer(data), rows + EXTRA_WORDS + 1))


def check_ids(tokenizer: Tokenizer, *, rows: int, what: str) -> None:
    """Of every word, and of what stands around every text: below the number of rows."""
    try:
        around = tokenizer.surrounding_ids
    except TokenizerError as error:
        raise TokenizerError(f"{what}: its post_processor fails on every text: {error}") from error
    beyond = tokenizer.words_beyond(rows)
    beyond |= {tokenizer.token_of(id) or "a special token": id for id in around if id >= rows}
    if beyond:
        token, id = max(beyond.items(), key=lambda item: item[1])
        more = f" (and {len(beyond) - 1:,} more)" if len(beyond) > 1 else ""
        raise TokenizerError(
            f"{what}: token {token[:80]!r} has the id {id}{more}, but the model has {rows:,} rows (0 to {rows - 1}); "
            "bring the tokenizer of this model"
        )
