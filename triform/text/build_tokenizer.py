"""Builds tokenizers of the tokenizers library: byte-level BPE, WordPiece, and the special tokens around a text.

Knows the recipes of the families, not their files.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from triform.text.panic_guard import TokenizerError, guard_library

Split: TypeAlias = Literal["gpt2", "llama3", "qwen2", "smollm"]

# Contractions; letters with at most one symbol before them; digits; symbols with line ends after them; white space.
_WORD_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORD_PATTERNS = (_WORD_PATTERN.format(digits="{1,3}"), _WORD_PATTERN.format(digits=""))  # of Llama 3, of Qwen 2


def build_byte_level(
    vocab: Mapping[str, int],
    *,
    merges: Sequence[tuple[str, str]],
    split: Split = "gpt2",
    prefix_space: bool = False,
) -> tokenizers.Tokenizer:
    """BPE over bytes: any text can be encoded, and decoding returns it exactly."""
    with guard_library("building a byte-level tokenizer"):
        # Llama 3 uses a word that is a token directly, even where no merges lead to it.
        core = tokenizers.Tokenizer(models.BPE(dict(vocab), list(merges), ignore_merges=split == "llama3"))
        core.pre_tokenizer = _split_bytes(split, prefix_space=prefix_space)
        core.decoder = decoders.ByteLevel()
        core.post_processor = processors.ByteLevel(trim_offsets=False)
        if split == "qwen2":
            core.normalizer = normalizers.NFC()
    return core


def _split_bytes(split: Split, *, prefix_space: bool) -> pre_tokenizers.PreTokenizer:
    plain = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    if split == "gpt2":
        return plain
    if split == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), plain])
    words = Regex(WORD_PATTERNS[0 if split == "llama3" else 1])
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(words, "isolated"), to_bytes])


def build_word_piece(
    vocab: Mapping[str, int],
    *,
    unk: str = "[UNK]",
    lower: bool = True,
    strip_accents: bool | None = None,
    chinese: bool = True,
) -> tokenizers.Tokenizer:
    """BERT's words, each the longest known prefix and `##` continuations; `strip_accents` None: as `lower`."""
    with guard_library("building a WordPiece tokenizer"):
        core = tokenizers.Tokenizer(models.WordPiece(dict(vocab), unk_token=unk))
        core.normalizer = normalizers.BertNormalizer(
            lowercase=lower, strip_accents=strip_accents, handle_chinese_chars=chinese
        )
        core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        core.decoder = decoders.WordPiece()
    return core


def mark_special(core: tokenizers.Tokenizer, *, tokens: Sequence[AddedToken]) -> None:
    """Make tokens special (recognized in texts, left out when decoding); unknown ones are added to the vocabulary."""
    known = {token.content for token in core.get_added_tokens_decoder().values() if token.special}
    with guard_library("adding special tokens"):
        core.add_special_tokens([token for token in tokens if token.content not in known])


def add_ends(core: tokenizers.Tokenizer, *, bos: str | None = None, eos: str | None = None) -> None:
    """Put a bos before each text, an eos after it, both or neither."""
    before, after = ([token] if token else [] for token in (bos, eos))
    single = [(piece, 0) for piece in (*before, "$A", *after)]
    _set_template(core, single=single, pair=[*single, *((piece, 0) for piece in (*before, "$B", *after))])


def add_cls_sep(core: tokenizers.Tokenizer, *, cls: str, sep: str) -> None:
    """BERT: [CLS] text [SEP] pair [SEP]; the pair and its [SEP] have segment id 1."""
    single = [(cls, 0), ("$A", 0), (sep, 0)]
    _set_template(core, single=single, pair=[*single, ("$B", 1), (sep, 1)])


def _set_template(core: tokenizers.Tokenizer, *, single: list[tuple[str, int]], pair: list[tuple[str, int]]) -> None:
    names = sorted({piece for piece, _ in (*single, *pair)} - {"$A", "$B"})
    ids = [(name, require_id(core, token=name)) for name in names]
    with guard_library("adding special tokens around texts"):
        core.post_processor = processors.TemplateProcessing(
            single=[f"{piece}:{segment}" for piece, segment in single],
            pair=[f"{piece}:{segment}" for piece, segment in pair],
            special_tokens=ids,
        )


def require_id(core: tokenizers.Tokenizer, *, token: str) -> int:
    """The id of a token that must be in the vocabulary."""
    id = core.token_to_id(token)
    if id is None:
        raise TokenizerError(f"the vocabulary has no {token!r}")
    return id
