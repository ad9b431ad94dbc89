"""Marian's tokenizer: two SentencePiece models, one for the source and one for the target, and one vocabulary.

Does not normalize punctuation as Marian's training data did: texts are used as they are.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models

from triform.text.build_tokenizer import add_ends, mark_special, require_id
from triform.text.panic_guard import TokenizerError, guard_library
from triform.text.sentencepiece import build_from_pieces, parse_pieces
from triform.text.tokenizer import Tokenizer

SOURCE, TARGET, VOCAB = "source.spm", "target.spm", "vocab.json"


def build_vocabulary(vocab: Mapping[str, int]) -> tokenizers.Tokenizer:
    """Tokens and their ids, and how ids are decoded; it does not split texts."""
    if not {"<unk>", "</s>"} <= vocab.keys():
        raise TokenizerError(f"{VOCAB} beside a SentencePiece model must hold '<unk>' and '</s>'")
    with guard_library("reading the vocabulary"):
        vocabulary = tokenizers.Tokenizer(models.WordLevel(dict(vocab), unk_token="<unk>"))
        vocabulary.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return vocabulary


class MarianTokenizer(Tokenizer):
    """Splits texts with the pieces of one side; ids come from the common vocabulary."""

    def __init__(
        self,
        vocabulary: tokenizers.Tokenizer,
        *,
        special: Mapping[str, str],
        config: Mapping[str, Any],
        files: Mapping[str, bytes],
        side: str = SOURCE,
    ) -> None:
        super().__init__(vocabulary, special=special, config={"tokenizer_class": "MarianTokenizer"} | dict(config))
        self._model_files, self._side = files, side
        self._speller = build_from_pieces(parse_pieces(files[side], what=side), what=side)
        mark_special(self._speller, tokens=[AddedToken(name, normalized=False) for name in special.values()])
        self._id_of_token = vocabulary.get_vocab()
        self._unknown = require_id(vocabulary, token="<unk>")
        # The target language, in models with many: `>>fra<< Good morning.`
        languages = [name for name in self._id_of_token if name.startswith(">>") and name.endswith("<<")]
        self._speller.add_tokens([AddedToken(name, normalized=False) for name in sorted(languages)])
        add_ends(self._speller, eos="</s>")

    def _ids(self, raw: tokenizers.Encoding) -> list[int]:
        # By their text: a token that one side does not know may have an id from the other side.
        ids = [self._id_of_token.get(token, self._unknown) for token in raw.tokens]
        return self._exchange(ids, raw) if self._exchanged else ids

    def ids_many(self, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
        return [
            list(encoding.ids) for encoding in self.encode_many(texts, special=special)
        ]  # encode_batch_fast has no texts

    @cached_property
    def target(self) -> Tokenizer:
        if self._side == TARGET:
            return self
        return MarianTokenizer(
            self._core, special=self.special, config=self._config, files=self._model_files, side=TARGET
        )

    def _files(self) -> dict[str, bytes]:
        return dict(self._model_files)
