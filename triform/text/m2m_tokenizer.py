"""M2M-100's tokenizer: one SentencePiece model, a vocabulary with other ids, and a hundred languages behind it."""

from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken, processors

from triform.text.build_tokenizer import mark_special, require_id
from triform.text.marian_tokenizer import MarianTokenizer, build_vocabulary
from triform.text.tokenizer import Tokenizer

PIECES = "sentencepiece.bpe.model"

# In the order of their ids, behind the vocabulary; no file of a folder has them as ids.
CODES = (
    "af", "am", "ar", "ast", "az", "ba", "be", "bg", "bn", "br", "bs", "ca", "ceb", "cs", "cy", "da", "de", "el",
    "en", "es", "et", "fa", "ff", "fi", "fr", "fy", "ga", "gd", "gl", "gu", "ha", "he", "hi", "hr", "ht", "hu", "hy",
    "id", "ig", "ilo", "is", "it", "ja", "jv", "ka", "kk", "km", "kn", "ko", "lb", "lg", "ln", "lo", "lt", "lv", "mg",
    "mk", "ml", "mn", "mr", "ms", "my", "ne", "nl", "no", "ns", "oc", "or", "pa", "pl", "ps", "pt", "ro", "ru", "sd",
    "si", "sk", "sl", "so", "sq", "sr", "ss", "su", "sv", "sw", "ta", "th", "tl", "tn", "tr", "uk", "ur", "uz", "vi",
    "wo", "xh", "yi", "yo", "zh", "zu",
)  # fmt: skip
LANGUAGES = tuple(f"__{code}__" for code in CODES)
USUAL = "__en__"  # stands before a text until another language is chosen


def build_m2m_vocabulary(vocab: Mapping[str, int]) -> tokenizers.Tokenizer:
    """The vocabulary and the languages; it does not split texts."""
    numbered = {language: len(vocab) + at for at, language in enumerate(LANGUAGES)}
    core = build_vocabulary(dict(vocab) | numbered)
    mark_special(core, tokens=[AddedToken(language, normalized=False) for language in LANGUAGES])
    return core


class M2M100Tokenizer(MarianTokenizer):
    """Source and target are split alike; a language stands before each text."""

    def __init__(
        self,
        vocabulary: tokenizers.Tokenizer,
        *,
        special: Mapping[str, str],
        config: Mapping[str, Any],
        files: Mapping[str, bytes],
    ) -> None:
        config = {"tokenizer_class": "M2M100Tokenizer"} | dict(config)
        super().__init__(vocabulary, special=special, config=config, files=files, side=PIECES)
        mark_special(self._speller, tokens=[AddedToken(language, normalized=False) for language in LANGUAGES])
        ends = [(token, require_id(self._speller, token=token)) for token in (USUAL, "</s>")]
        self._speller.post_processor = processors.TemplateProcessing(
            single=[USUAL, "$A", "</s>"], pair=[USUAL, "$A", "$B", "</s>"], special_tokens=ends
        )

    @property
    def target(self) -> Tokenizer:
        return self if self._target is None else self._target
