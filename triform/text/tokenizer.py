"""`Tokenizer`: text to ids with offsets and segment kinds, ids to text, whole or streamed.

A thin face over the tokenizers library. Refuses to know files beyond its own folder, models, tensors, padding to a
length and cutting to a length: those belong to whoever makes a batch.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import tokenizers

from triform.errors import InputError
from triform.files.whole_files import write_whole
from triform.text.build_tokenizer import mark_special
from triform.text.panic_guard import shield
from triform.text.stream_decoder import Stream

LARGEST_ID = 2**32 - 1  # the library counts in 32 bits
NOT_KEPT = {"chat_template", "auto_map", "added_tokens_decoder"}  # kept elsewhere, code, or said by tokenizer.json
ROLES = ("pad", "eos", "bos", "unk", "mask", "cls", "sep")


class Encoding(msgspec.Struct, frozen=True):
    """One text, or a pair, as tokens: entry i of each field speaks of token i."""

    ids: tuple[int, ...]
    kinds: tuple[int, ...]  # segment kinds as the model was trained with them: 1 marks the second text in BERT
    offsets: tuple[tuple[int, int], ...]  # characters [start, end) of the token's own text; (0, 0) for added tokens
    words: tuple[int | None, ...]  # which word of its text, by the tokenizer's own idea of words
    parts: tuple[int | None, ...]  # 0: from the text, 1: from its pair, None: added by the tokenizer

    @property
    def special(self) -> tuple[bool, ...]:
        """Which tokens the tokenizer added, as [CLS] and [SEP]."""
        return tuple(part is None for part in self.parts)

    def windows(self, *, length: int, overlap: int) -> "list[Encoding]":
        """At most `length` tokens each: a stretch of the last text with all that stands around that text.

        Stretches next to each other share `overlap` tokens; together they are the whole text.
        """
        last = max((part for part in self.parts if part is not None), default=None)
        first, size = (0, 0) if last is None else (self.parts.index(last), self.parts.count(last))
        around = len(self.ids) - size
        room = length - around
        if size <= room:
            return [self]
        if room <= overlap:
            raise InputError(
                f"windows of {length} tokens, {around} of them fixed, are too short to overlap by {overlap}"
            )
        starts = range(first, first + size - overlap, room - overlap)
        return [
            self._only(slice(first), slice(at, min(at + room, first + size)), slice(first + size, None))
            for at in starts
        ]

    def _only(self, *stretches: slice) -> "Encoding":
        rows = (getattr(self, name) for name in self.__struct_fields__)
        return Encoding(*(tuple(chain.from_iterable(row[stretch] for stretch in stretches)) for row in rows))


class Tokenizer:
    """Text and ids, both ways.

    `special` names the text of each role ("eos": "</s>"); `pad`, `eos`, `bos`, `unk`, `mask`, `cls`, `sep` are ids, or
    None. `pad` is None also where a file names its eos as pad: an end must stay an end, and a batch is told apart
    from its filling by lengths, never by an id.
    """

    def __init__(
        self, core: tokenizers.Tokenizer, *, special: Mapping[str, str], config: Mapping[str, Any] | None = None
    ) -> None:
        # Every role is special: found in texts as one token, left out of decodings.
        mark_special(core, tokens=[tokenizers.AddedToken(token, normalized=False) for token in special.values()])
        self._core = self._speller = core
        self._config = dict(config or {})
        self.special = dict(special)
        ids = {role: core.token_to_id(token) for role, token in special.items()}
        self.eos, self.bos, self.unk = ids.get("eos"), ids.get("bos"), ids.get("unk")
        self.mask, self.cls, self.sep = ids.get("mask"), ids.get("cls"), ids.get("sep")
        self.pad = ids.get("pad") if ids.get("pad") != self.eos else None
        self.special_ids = frozenset(id for id, token in core.get_added_tokens_decoder().items() if token.special)

    @staticmethod
    def read(folder: str | Path, *, rows: int | None = None) -> "Tokenizer":
        """The tokenizer of a model folder, from whichever files it has; `rows`: of the model it must fit."""
        from triform.text.load_tokenizer import read_tokenizer  # reading makes tokenizers: it must know this file first

        return read_tokenizer(Path(folder), rows=rows)

    # --- text to ids ----------------------------------------------------------------------------------------------

    def encode(self, text: str, *, special: bool = True, pair: str | None = None) -> Encoding:
        """Tokens of a text, or of a text and its pair; `special=False` leaves out what the tokenizer would add."""
        for given in (text,) if pair is None else (text, pair):
            check_text(given)
        with shield("encoding"):
            return self._value(self._speller.encode(text, pair, add_special_tokens=special))

    def encode_conversation(self, text: str) -> Encoding:
        """What a chat template wrote: where that begins with a bos of its own, the tokenizer adds nothing."""
        return self.encode(text, special=not self.is_begun(text))

    def is_begun(self, text: str) -> bool:
        return self.bos is not None and text.startswith(self.special["bos"])

    def encode_many(
        self, texts: Sequence[str], *, special: bool = True, pairs: Sequence[str] | None = None
    ) -> list[Encoding]:
        """`encode` of each, on all cores."""
        if pairs is not None and len(pairs) != len(texts):
            raise InputError(f"{len(texts)} texts have {len(pairs)} pairs; give one for each")
        for text in (*texts, *(pairs or ())):
            check_text(text)
        rows = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        with shield("encoding"):
            return [self._value(raw) for raw in self._speller.encode_batch(rows, add_special_tokens=special)]

    def ids_many(self, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
        """The ids alone of each text: about twice as fast as `encode_many`."""
        for text in texts:
            check_text(text)
        with shield("encoding"):
            batch = self._speller.encode_batch_fast(list(texts), add_special_tokens=special)
            return [self._ids(raw) for raw in batch]

    def _value(self, raw: tokenizers.Encoding) -> Encoding:
        return Encoding(
            ids=tuple(self._ids(raw)),
            kinds=tuple(raw.type_ids),
            offsets=tuple(raw.offsets),
            words=tuple(raw.word_ids),
            parts=tuple(raw.sequence_ids),
        )

    def _ids(self, raw: tokenizers.Encoding) -> list[int]:
        return raw.ids

    # --- ids to text ----------------------------------------------------------------------------------------------

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of the ids; an id that no token has (a spare embedding row, a label to ignore) has no text."""
        with shield("decoding"):
            return self._core.decode([id for id in ids if 0 <= id <= LARGEST_ID], skip_special_tokens=skip_special)

    def stream(self, *, skip_special: bool = True) -> Stream:
        """Decoding as ids come: `push(id)` gives the text that is certain by now, `finish()` the rest."""
        skip = self.special_ids if skip_special else frozenset()
        return Stream(self._core.decoder, name=self.token_of, skip=skip)

    # --- the vocabulary -------------------------------------------------------------------------------------------

    @cached_property
    def vocab(self) -> int:
        """One more than the largest id: the rows an embedding needs."""
        return 1 + max(self._core.get_vocab(with_added_tokens=True).values(), default=-1)

    def words_beyond(self, rows: int) -> dict[str, int]:
        """Words with an id of `rows` or more; not added tokens, which a text holds only where it writes them out."""
        beyond = {token: id for token, id in self._core.get_vocab(with_added_tokens=False).items() if id >= rows}
        added = {token.content for token in self._core.get_added_tokens_decoder().values()} if beyond else set()
        return {token: id for token, id in beyond.items() if token not in added}

    @property
    def surrounding_ids(self) -> frozenset[int]:
        """What is put around every text, and around every pair where texts have ends as BERT's."""
        pair = () if self.cls is None else self.encode("", pair="").ids
        return frozenset((*self.encode("").ids, *pair))

    @cached_property
    def longest_token(self) -> int:
        """Characters that one token may stand for at most; a tokenizer may drop some, so this errs on the long side."""
        return 1 + max(map(len, self._core.get_vocab(with_added_tokens=True)), default=0)

    def least_tokens(self, text: str) -> int:
        """How many tokens a text has at least, by its length alone: cheap for a text of any length."""
        return -(-len(text) // self.longest_token)

    def refuse_long(self, text: str, *, most: int) -> None:
        """Before it is cut into tokens, where its characters alone say that it has more than `most`."""
        if (least := self.least_tokens(text)) > most:
            counted = f"the text has {len(text):,} characters, at least {least:,} tokens"
            raise InputError(f"{counted}; the model reads {most:,}: shorten it")

    def id_of(self, token: str) -> int | None:
        return self._core.token_to_id(token)

    def token_of(self, id: int) -> str | None:
        return self._core.id_to_token(id) if 0 <= id <= LARGEST_ID else None

    def count_unknown(self, ids: Sequence[int]) -> int:
        """How many of the ids stand for something the vocabulary cannot spell."""
        if self.unk is None or self.unk in (self.eos, self.bos):  # GPT-2 names its end as unk too, and never needs one
            return 0
        return sum(id == self.unk for id in ids)

    @property
    def target(self) -> "Tokenizer":
        """The tokenizer of what an encoder–decoder writes: the same one, but for Marian."""
        return self

    # --- the folder -----------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """The Hugging Face layout: tokenizer.json and tokenizer_config.json (Marian: its own three files)."""
        config = {key: value for key, value in self._config.items() if key not in NOT_KEPT}
        config |= {f"{role}_token": self._described(token) for role, token in self.special.items()}
        config.setdefault("tokenizer_class", "PreTrainedTokenizerFast")
        kinds = ["token_type_ids"] if self.cls is not None and 1 in self.encode("", pair="").kinds else []
        config.setdefault("model_input_names", ["input_ids", *kinds, "attention_mask"])
        files = self._files() | {"tokenizer_config.json": json.dumps(config, ensure_ascii=False, indent=2).encode()}
        for name, data in files.items():
            write_whole(Path(folder) / name, data=data)

    def to_json(self) -> str:
        """tokenizer.json, as other libraries read it."""
        return self._core.to_str()

    def _files(self) -> dict[str, bytes]:
        return {"tokenizer.json": self.to_json().encode()}

    def _described(self, token: str) -> str | dict[str, Any]:
        """A token with unusual manners (RoBERTa's mask swallows the space before it) needs them beside its name."""
        added = {known.content: known for known in self._core.get_added_tokens_decoder().values()}.get(token)
        if added is None or not (added.lstrip or added.rstrip or added.single_word):
            return token
        flags = ("content", "lstrip", "rstrip", "single_word", "normalized", "special")
        return {"__type": "AddedToken"} | {flag: getattr(added, flag) for flag in flags}


def check_text(text: str) -> None:
    """Only what can be written as UTF-8 is text."""
    if not isinstance(text, str):
        raise InputError(f"a text must be a string, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"character {error.start} of the text is half of a surrogate pair, no character") from None
