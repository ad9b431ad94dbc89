"""Marian's tokenizer: two SentencePiece models, one for what is read and one for what is written, and one list of ids.

Knows nothing of the punctuation clean-up that its training data went through: texts are taken as they are.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models

from triform.text.build_tokenizer import id_of, mark_special, put_ends
from triform.text.panic_guard import TokenizerError, shield
from triform.text.sentencepiece import core_of, parse_pieces
from triform.text.tokenizer import Tokenizer

SOURCE, TARGET, VOCAB = "source.spm", "target.spm", "vocab.json"


def book_of(vocab: Mapping[str, int]) -> tokenizers.Tokenizer:
    """Names and ids, and the text of a list of them; it never spells."""
    if not {"<unk>", "</s>"} <= vocab.keys():
        raise TokenizerError(f"{VOCAB} of a Marian folder must hold '<unk>' and '</s>'")
    with shield("reading the vocabulary"):
        book = tokenizers.Tokenizer(models.WordLevel(dict(vocab), unk_token="<unk>"))
        book.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return book


class Marian(Tokenizer):
    """Spells with the pieces of one side, numbers them by the common list, reads back by that list."""

    def __init__(
        self,
        book: tokenizers.Tokenizer,
        *,
        special: Mapping[str, str],
        config: Mapping[str, Any],
        files: Mapping[str, bytes],
        side: str = SOURCE,
    ) -> None:
        super().__init__(book, special=special, config={"tokenizer_class": "MarianTokenizer"} | dict(config))
        self._kept, self._side = files, side
        self._speller = core_of(parse_pieces(files[side], what=side), what=side)
        mark_special(self._speller, tokens=[AddedToken(name, normalized=False) for name in special.values()])
        self._numbers = book.get_vocab()
        self._unknown = id_of(book, token="<unk>")
        # Which language to write, in models that know many: `>>fra<< Good morning.`
        languages = [name for name in self._numbers if name.startswith(">>") and name.endswith("<<")]
        self._speller.add_tokens([AddedToken(name, normalized=False) for name in sorted(languages)])
        put_ends(self._speller, eos="</s>")

    def _ids(self, raw: tokenizers.Encoding) -> list[int]:
        # By their text: what one side cannot spell comes out as it is, and the other side may have brought it a number.
        return [self._numbers.get(token, self._unknown) for token in raw.tokens]

    def ids_many(self, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
        return [list(found.ids) for found in self.encode_many(texts, special=special)]  # the fast road has no texts

    @cached_property
    def target(self) -> Tokenizer:
        if self._side == TARGET:
            return self
        return Marian(self._core, special=self.special, config=self._config, files=self._kept, side=TARGET)

    def _files(self) -> dict[str, bytes]:
        return dict(self._kept)
