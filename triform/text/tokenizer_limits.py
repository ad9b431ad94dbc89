"""tokenizer.json: bounded before the library sees it, then parsed by the library.

Small hostile files can cost the library gigabytes or hours; each bound below names its cost, measured on tokenizers
0.23, and the largest value seen in released files.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from math import prod
from typing import Annotated, Any

import msgspec
import tokenizers
from msgspec import Meta

from triform.files.whole_files import MiB, parse_json
from triform.text.id_checks import ANY_ROWS, count_strings, refuse_many_words
from triform.text.panic_guard import TokenizerError, shield
from triform.text.pattern_checks import refuse_slow_patterns

FILE_LIMIT = 64 * MiB  # the largest released file known has 33 MB
PIECE_BYTES = 4 * MiB  # Unigram: 340 bytes of memory for each; 250,000 pieces of a many-language model have 2.8 MB
ADDED_BYTES = MiB // 2  # a matching automaton is built of them: seconds for each MB; released files have 100 kB
VALUES = 1024  # in the description of a pipeline, as copies of the text in a template; released files have 100
GROWTH = 64  # characters that replacements may make of one: ten in a row of ten characters each would make 10^10


class _Model(msgspec.Struct):
    vocab: msgspec.Raw
    # A word is tried in every prefix: the square of this. Released files have 100.
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


def load_core(data: bytes, *, what: str, rows: int = ANY_ROWS) -> tokenizers.Tokenizer:
    """The library's tokenizer, without the padding, cutting and dropout that some files bring along; refused before it
    is built where it has far more words than the model has `rows`."""
    file = parse_json(data, type=_File, what=what)
    if rows < ANY_ROWS:
        refuse_many_words(count_strings(bytes(file.model.vocab), rows=rows), rows=rows, what=what)
    _check(file, what=what)
    with shield(f"reading {what}"):
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
    refuse_slow_patterns(chain.from_iterable(map(_values, steps)), what=what)
    return core


def _check(file: _File, *, what: str) -> None:
    check_bytes((token.content for token in file.added_tokens), limit=ADDED_BYTES, what=f"the added tokens of {what}")
    if bytes(file.model.vocab)[:1] == b"[":  # Unigram: [piece, score] pairs, for a trie
        pieces = parse_json(bytes(file.model.vocab), type=list[tuple[str, float]], what=what)
        check_bytes((piece for piece, _ in pieces), limit=PIECE_BYTES, what=f"the vocabulary of {what}")
    for section in (file.normalizer, file.pre_tokenizer, file.post_processor, file.decoder):
        values = list(_values(section))
        if len(values) > VALUES or prod(_growth(part) for part in values if isinstance(part, dict)) > GROWTH:
            raise TokenizerError(f"{what} describes steps that could swell a text without end")


def _growth(part: dict[str, Any]) -> int:
    """How many characters a step may make of one."""
    comes = len(str(part.get("content", part.get("prepend", ""))))
    pattern = part.get("pattern")
    takes = isinstance(pattern, dict) and bool(pattern.get("String"))  # a regex may match where there is nothing
    return max(1, comes) if takes else 1 + comes


def check_bytes(tokens: Iterable[str], *, limit: int, what: str) -> None:
    """Refuses tokens that are too much for the library in sum."""
    size = sum(len(token.encode(errors="replace")) for token in tokens)
    if size > limit:
        raise TokenizerError(f"{what} have {size:,} bytes; at most {limit:,} are accepted")


def _values(value: Any) -> Iterator[Any]:
    """Every value in a piece of JSON, itself included."""
    todo = [value]
    while todo:
        value = todo.pop()
        yield value
        if isinstance(value, dict):
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)
