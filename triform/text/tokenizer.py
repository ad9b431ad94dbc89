"""`Tokenizer`: text to ids with offsets and segment ids, ids to text, complete or streamed.

A thin layer over the tokenizers library. Knows no models and tensors; padding and truncation are done where batches are
made.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import tokenizers

from triform.errors import InputError
from triform.files.atomic_file import write_file
from triform.text.build_tokenizer import mark_special
from triform.text.languages import Languages, find_languages
from triform.text.panic_guard import guard_library
from triform.text.stream_decoder import StreamDecoder

LARGEST_ID = 2**32 - 1  # the library counts in 32 bits
NOT_SAVED = {"chat_template", "auto_map", "added_tokens_decoder"}  # saved elsewhere, code, or in tokenizer.json
ROLES = ("pad", "eos", "bos", "unk", "mask", "cls", "sep")


class Encoding(msgspec.Struct, frozen=True):
    """The tokens of one text, or of a pair: entry i of each field is about token i."""

    ids: tuple[int, ...]
    segment_ids: tuple[int, ...]  # segment ids (token_type_ids): 1 for the second text in BERT
    offsets: tuple[tuple[int, int], ...]  # characters [start, end) in its text; (0, 0) for added tokens
    words: tuple[int | None, ...]  # index of the word in its text, as the tokenizer splits words
    parts: tuple[int | None, ...]  # 0: from the text, 1: from its pair, None: added by the tokenizer

    @property
    def special(self) -> tuple[bool, ...]:
        """Which tokens the tokenizer added, such as [CLS] and [SEP]."""
        return tuple(part is None for part in self.parts)

    def split_windows(self, *, length: int, overlap: int) -> "list[Encoding]":
        """Windows of at most `length` tokens: a part of the last text, with everything around that text.

        Neighbouring windows share `overlap` tokens; together they cover the whole text.
        """
        last = max((part for part in self.parts if part is not None), default=None)
        first, size = (0, 0) if last is None else (self.parts.index(last), self.parts.count(last))
        around = len(self.ids) - size
        space = length - around
        if size <= space:
            return [self]
        if space <= overlap:
            raise InputError(
                f"windows of {length} tokens, {around} of them special, are too short to overlap by {overlap}"
            )
        starts = range(first, first + size - overlap, space - overlap)
        return [
            self._select(slice(first), slice(at, min(at + space, first + size)), slice(first + size, None))
            for at in starts
        ]

    def _select(self, *parts: slice) -> "Encoding":
        rows = (getattr(self, name) for name in self.__struct_fields__)
        return Encoding(*(tuple(chain.from_iterable(row[part] for part in parts)) for row in rows))


class Tokenizer:
    """Encodes text to ids and decodes ids to text.

    `special` maps each role to its text ("eos": "</s>"); `pad`, `eos`, `bos`, `unk`, `mask`, `cls`, `sep` are ids, or
    None. `pad` is None also where a file names its eos as pad: an eos must stay one, and padding is known by lengths,
    never by an id.
    """

    def __init__(
        self, core: tokenizers.Tokenizer, *, special: Mapping[str, str], config: Mapping[str, Any] | None = None
    ) -> None:
        # Every role is special: recognized in texts as one token, left out when decoding.
        mark_special(core, tokens=[tokenizers.AddedToken(token, normalized=False) for token in special.values()])
        self._core = self._speller = core
        self._config = dict(config or {})
        self._exchanged: Mapping[int, int] = {}  # language tokens that are put around a text, and what stands for them
        self._target: Tokenizer | None = None
        self.special = dict(special)
        ids = {role: core.token_to_id(token) for role, token in special.items()}
        self.eos, self.bos, self.unk = ids.get("eos"), ids.get("bos"), ids.get("unk")
        self.mask, self.cls, self.sep = ids.get("mask"), ids.get("cls"), ids.get("sep")
        self.pad = ids.get("pad") if ids.get("pad") != self.eos else None
        self.special_ids = frozenset(id for id, token in core.get_added_tokens_decoder().items() if token.special)

    @staticmethod
    def read(folder: str | Path, *, rows: int | None = None) -> "Tokenizer":
        """The tokenizer of a model folder; `rows`: of the embedding that its ids must fit."""
        from triform.text.load_tokenizer import read_tokenizer  # it imports this module

        return read_tokenizer(Path(folder), rows=rows)

    # --- text to ids ----------------------------------------------------------------------------------------------

    def encode(self, text: str, *, special: bool = True, pair: str | None = None) -> Encoding:
        """Tokens of a text, or of a text and its pair; `special=False`: without the tokens that the tokenizer adds."""
        for part in (text,) if pair is None else (text, pair):
            check_text(part)
        with guard_library("encoding"):
            return self._to_encoding(self._speller.encode(text, pair, add_special_tokens=special))

    def encode_conversation(self, text: str) -> Encoding:
        """The output of a chat template: if it begins with a bos, the tokenizer adds no special tokens."""
        return self.encode(text, special=not self.has_bos(text))

    def has_bos(self, text: str) -> bool:
        return self.bos is not None and text.startswith(self.special["bos"])

    def encode_many(
        self, texts: Sequence[str], *, special: bool = True, pairs: Sequence[str] | None = None
    ) -> list[Encoding]:
        """`encode` of each text, on all cores."""
        if pairs is not None and len(pairs) != len(texts):
            raise InputError(f"{len(texts)} texts have {len(pairs)} pairs; give one pair per text")
        for text in (*texts, *(pairs or ())):
            check_text(text)
        rows = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        with guard_library("encoding"):
            return [self._to_encoding(raw) for raw in self._speller.encode_batch(rows, add_special_tokens=special)]

    def ids_many(self, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
        """Only the ids of each text: about twice as fast as `encode_many`."""
        for text in texts:
            check_text(text)
        with guard_library("encoding"):
            batch = self._speller.encode_batch_fast(list(texts), add_special_tokens=special)
            return [self._ids(raw) for raw in batch]

    def _to_encoding(self, raw: tokenizers.Encoding) -> Encoding:
        return Encoding(
            ids=tuple(self._ids(raw)),
            segment_ids=tuple(raw.type_ids),
            offsets=tuple(raw.offsets),
            words=tuple(raw.word_ids),
            parts=tuple(raw.sequence_ids),
        )

    def _ids(self, raw: tokenizers.Encoding) -> list[int]:
        return self._exchange(raw.ids, raw) if self._exchanged else raw.ids

    def _exchange(self, ids: list[int], raw: tokenizers.Encoding) -> list[int]:
        """Only what the tokenizer added: a code within the text stays what it is."""
        pairs = zip(ids, raw.sequence_ids, strict=True)
        return [self._exchanged.get(id, id) if part is None else id for id, part in pairs]

    # --- languages ------------------------------------------------------------------------------------------------

    @cached_property
    def languages(self) -> Languages:
        """Of a translation model with tokens for languages."""
        added = self._core.get_added_tokens_decoder().values()
        special = [token.content for token in added if token.special]
        return find_languages(special=special, vocabulary=self._core.get_vocab(with_added_tokens=True))

    @property
    def configured_languages(self) -> tuple[str | None, str | None]:
        """The codes of source and target that tokenizer_config.json names."""
        source, target = (self._config.get(name) for name in ("src_lang", "tgt_lang"))
        known = self.languages.tokens
        return source if source in known else None, target if target in known else None

    def translate_between(self, source: str, target: str) -> "Tokenizer":
        """For texts in the language `source`; its `target` is for their translations."""
        tokenizer = self._with_language(source)
        tokenizer._target = self._with_language(target)
        return tokenizer

    def _with_language(self, code: str) -> "Tokenizer":
        ids = {token: self.id_of(token) for token in self.languages.tokens.values()}
        around = self.surrounding_ids & {id for id in ids.values() if id is not None}
        own = ids[self.languages.tokens[code]]
        if own is None or not around:
            raise InputError("this tokenizer puts no language token around a text; fetch its tokenizer.json again")
        tokenizer = copy.copy(self)
        tokenizer._exchanged = dict.fromkeys(around, own)
        return tokenizer

    # --- ids to text ----------------------------------------------------------------------------------------------

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of the ids; an id without a token (a spare embedding row, a label to ignore) has no text."""
        with guard_library("decoding"):
            return self._core.decode([id for id in ids if 0 <= id <= LARGEST_ID], skip_special_tokens=skip_special)

    def stream(self, *, skip_special: bool = True) -> StreamDecoder:
        """Streaming decoding: `push(id)` returns the text that is certain so far, `finish()` the rest."""
        skip = self.special_ids if skip_special else frozenset()
        return StreamDecoder(self._core.decoder, name=self.token_of, skip=skip)

    # --- the vocabulary -------------------------------------------------------------------------------------------

    @cached_property
    def vocab(self) -> int:
        """One more than the largest id: the rows an embedding needs."""
        return 1 + max(self._core.get_vocab(with_added_tokens=True).values(), default=-1)

    def has_tokens_of(self, other: "Tokenizer") -> bool:
        """Whether both have the same tokens under the same ids."""
        ours, theirs = (each._core.get_vocab(with_added_tokens=True) for each in (self, other))
        return ours == theirs

    def find_words_beyond(self, rows: int) -> dict[str, int]:
        """Vocabulary with an id of `rows` or more; without added tokens, which only appear if a text contains them."""
        beyond = {token: id for token, id in self._core.get_vocab(with_added_tokens=False).items() if id >= rows}
        added = {token.content for token in self._core.get_added_tokens_decoder().values()} if beyond else set()
        return {token: id for token, id in beyond.items() if token not in added}

    @property
    def surrounding_ids(self) -> frozenset[int]:
        """The ids that are put around every text, and around every pair if there is a [CLS]."""
        pair = () if self.cls is None else self.encode("", pair="").ids
        return frozenset((*self.encode("").ids, *pair))

    @cached_property
    def max_token_characters(self) -> int:
        """Upper bound of the characters of one token; one more than the longest, since a tokenizer may drop a space."""
        return 1 + max(map(len, self._core.get_vocab(with_added_tokens=True)), default=0)

    def min_tokens(self, text: str) -> int:
        """Lower bound of the number of tokens, from the length of a text alone."""
        return -(-len(text) // self.max_token_characters)

    def refuse_long(self, text: str, *, most: int) -> None:
        """Raises, before encoding, if the length alone shows that a text has more than `most` tokens."""
        if (least := self.min_tokens(text)) > most:
            counted = f"the text has {len(text):,} characters, at least {least:,} tokens"
            raise InputError(f"{counted}; the model reads {most:,}: shorten it")

    def id_of(self, token: str) -> int | None:
        return self._core.token_to_id(token)

    def token_of(self, id: int) -> str | None:
        return self._core.id_to_token(id) if 0 <= id <= LARGEST_ID else None

    def count_unknown(self, ids: Sequence[int]) -> int:
        """How many of the ids are the unknown token."""
        if self.unk is None or self.unk in (
            self.eos,
            self.bos,
        ):  # GPT-2 has the same token as eos and unk, and never needs unk
            return 0
        return sum(id == self.unk for id in ids)

    @property
    def target(self) -> "Tokenizer":
        """The tokenizer for the target of an encoder-decoder: the same one, except for Marian and between languages."""
        return self if self._target is None else self._target

    # --- the folder -----------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """The Hugging Face layout: tokenizer.json and tokenizer_config.json (Marian: its own three files)."""
        config = {key: value for key, value in self._config.items() if key not in NOT_SAVED}
        config |= {f"{role}_token": self._describe(token) for role, token in self.special.items()}
        config.setdefault("tokenizer_class", "PreTrainedTokenizerFast")
        segments = ["token_type_ids"] if self.cls is not None and 1 in self.encode("", pair="").segment_ids else []
        config.setdefault("model_input_names", ["input_ids", *segments, "attention_mask"])
        files = self._files() | {"tokenizer_config.json": json.dumps(config, ensure_ascii=False, indent=2).encode()}
        for name, data in files.items():
            write_file(Path(folder) / name, data)

    def to_json(self) -> str:
        """tokenizer.json, as other libraries read it."""
        return self._core.to_str()

    def _files(self) -> dict[str, bytes]:
        return {"tokenizer.json": self.to_json().encode()}

    def _describe(self, token: str) -> str | dict[str, Any]:
        """The text of a token; with its flags if it has unusual ones (RoBERTa's mask includes the space before it)."""
        added = {known.content: known for known in self._core.get_added_tokens_decoder().values()}.get(token)
        if added is None or not (added.lstrip or added.rstrip or added.single_word):
            return token
        flags = ("content", "lstrip", "rstrip", "single_word", "normalized", "special")
        return {"__type": "AddedToken"} | {flag: getattr(added, flag) for flag in flags}


def check_text(text: str) -> None:
    """Raises unless the text is a string that can be encoded as UTF-8."""
    if not isinstance(text, str):
        raise InputError(f"a text must be a string, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"character {error.start} of the text is half of a surrogate pair, not a character") from None
