"""Limits of tokenizer files: tokenizer.json is checked before the library parses it, ids against the model's embedding.

Small hostile files can cost the library gigabytes or hours; each limit below names its cost, measured with tokenizers
0.23, and the largest value seen in released files.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from math import prod
from typing import Annotated, Any

import msgspec
import tokenizers
from msgspec import Meta

from triform.files.safe_folder import MiB
from triform.files.strict_json import parse_json
from triform.text.panic_guard import TokenizerError, guard_library
from triform.text.pattern_checks import refuse_slow_patterns
from triform.text.tokenizer import Tokenizer

MAX_FILE_BYTES = 64 * MiB  # the largest released file known has 33 MB
MAX_PIECE_BYTES = 4 * MiB  # Unigram: 340 bytes of memory per byte; 250,000 pieces of a multilingual model have 2.8 MB
MAX_ADDED_BYTES = MiB // 2  # an automaton is built from them: seconds per MB; released files have 100 kB
MAX_VALUES = 1024  # JSON values that describe one step of the pipeline; released files have 100
MAX_GROWTH = 64  # characters that replacements may make from one: ten replacements of ten characters would make 10^10
ANY_ROWS = 2**32  # without a model: no limit
MAX_EXTRA_WORDS = 1024  # that a vocabulary may have beyond the rows before it is refused unread
JSON_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')


class _Model(msgspec.Struct):
    vocab: msgspec.Raw
    # Every prefix of a word is tried: quadratic. Released files have 100.
    max_input_chars_per_word: Annotated[int, Meta(ge=0, le=1024)] = 100


class _Token(msgspec.Struct):
    id: int
    content: str


class _File(msgspec.Struct):
    model: _Model
    added_tokens: list[_Token] = []
    normalizer: Any = None
    pre_tokenizer: Any = None
    post_processor: Any = None
    decoder: Any = None


def load_tokenizer_json(data: bytes, *, what: str, rows: int = ANY_ROWS) -> tokenizers.Tokenizer:
    """The library's tokenizer, without the padding, truncation and dropout of some files; refused before it is built
    if it has far more words than the model has `rows`."""
    file = parse_json(data, type=_File, what=what)
    if rows < ANY_ROWS:
        refuse_many_words(count_strings(bytes(file.model.vocab), rows=rows), rows=rows, what=what)
    _check(file, what=what)
    with guard_library(f"reading {what}"):
        core = tokenizers.Tokenizer.from_buffer(data)
        core.no_padding()
        core.no_truncation()
        if getattr(core.model, "dropout", None):
            core.model.dropout = None
    for token in file.added_tokens:
        if core.token_to_id(token.content) != token.id:
            got = core.token_to_id(token.content)
            raise TokenizerError(f"{what}: added token {token.content!r} should have id {token.id} but would get {got}")
    steps = (file.normalizer, file.pre_tokenizer, file.decoder)
    refuse_slow_patterns(chain.from_iterable(map(_list_values, steps)), what=what)
    return core


def _check(file: _File, *, what: str) -> None:
    check_bytes(
        (token.content for token in file.added_tokens), limit=MAX_ADDED_BYTES, what=f"the added tokens of {what}"
    )
    if bytes(file.model.vocab)[:1] == b"[":  # Unigram: [piece, score] pairs, for a trie
        pieces = parse_json(bytes(file.model.vocab), type=list[tuple[str, float]], what=what)
        check_bytes((piece for piece, _ in pieces), limit=MAX_PIECE_BYTES, what=f"the vocabulary of {what}")
    for section in (file.normalizer, file.pre_tokenizer, file.post_processor, file.decoder):
        values = list(_list_values(section))
        if (
            len(values) > MAX_VALUES
            or prod(_estimate_growth(part) for part in values if isinstance(part, dict)) > MAX_GROWTH
        ):
            raise TokenizerError(f"{what} describes steps that could make a text grow without limit")


def _estimate_growth(part: dict[str, Any]) -> int:
    """How many characters a step may make from one."""
    added = len(str(part.get("content", part.get("prepend", ""))))
    pattern = part.get("pattern")
    replaces = isinstance(pattern, dict) and bool(pattern.get("String"))  # a regex may match the empty string
    return max(1, added) if replaces else 1 + added


def check_bytes(tokens: Iterable[str], *, limit: int, what: str) -> None:
    """Raises if the tokens together are too many bytes for the library."""
    size = sum(len(token.encode(errors="replace")) for token in tokens)
    if size > limit:
        raise TokenizerError(f"{what} have {size:,} bytes; at most {limit:,} are accepted")


def _list_values(value: Any) -> Iterator[Any]:
    """Every value in a JSON value, itself included."""
    todo = [value]
    while todo:
        value = todo.pop()
        yield value
        if isinstance(value, dict):
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)


# --- ids and the rows of an embedding -------------------------------------------------------------------------------


def refuse_many_words(count: int, *, rows: int, what: str) -> None:
    """Raises before a tokenizer is built, which takes seconds and a gigabyte for millions of words."""
    if count > rows + MAX_EXTRA_WORDS:
        raise TokenizerError(
            f"{what} has {count:,} words or more, the model has {rows:,} rows; use the tokenizer of this model"
        )


def count_strings(data: bytes, *, rows: int) -> int:
    """Number of strings in JSON; counting stops once there are too many."""
    return sum(1 for _ in islice(JSON_STRING.finditer(data), rows + MAX_EXTRA_WORDS + 1))


def check_ids(tokenizer: Tokenizer, *, rows: int, what: str) -> None:
    """Raises unless the ids of all words, and of the tokens around every text, are rows of the embedding.

    Added tokens may be beyond the rows, as `<pad>` in folders of Llama: they appear only in texts that contain them.
    """
    try:
        around = tokenizer.surrounding_ids
    except TokenizerError as error:
        raise TokenizerError(f"{what}: its post_processor fails on every text: {error}") from error
    beyond = tokenizer.find_words_beyond(rows)
    beyond |= {tokenizer.token_of(id) or "a special token": id for id in around if id >= rows}
    if beyond:
        token, id = max(beyond.items(), key=lambda item: item[1])
        more = f" (and {len(beyond) - 1:,} more)" if len(beyond) > 1 else ""
        raise TokenizerError(
            f"{what}: token {token[:80]!r} has the id {id}{more}, but the model has {rows:,} rows (0 to {rows - 1}); "
            "use the tokenizer of this model"
        )
