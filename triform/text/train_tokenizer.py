"""Trains a new tokenizer from texts: the same texts always give the same tokenizer.

Knows the recipe of each kind; of files only lines of UTF-8.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from triform.errors import InputError, UnknownName
from triform.files.errors import FileError
from triform.text.build_tokenizer import add_cls_sep, add_ends, build_byte_level, build_word_piece
from triform.text.panic_guard import guard_library
from triform.text.sentencepiece import CONTROL, SPACE, UNKNOWN, Piece, PieceModel, build_from_pieces
from triform.text.tokenizer import ROLES, Tokenizer, check_text
from triform.text.train_unigram import train_unigram

TokenizerKind: TypeAlias = Literal["bpe", "unigram", "wordpiece", "characters"]
Names: TypeAlias = Mapping[str, str]

# pad has id 0. Byte-level BPE can encode everything and needs no unk.
DEFAULT_SPECIAL_TOKENS: dict[TokenizerKind, Names] = {
    "bpe": {"pad": "<|pad|>", "eos": "<|endoftext|>"},
    "unigram": {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"},
    "wordpiece": {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    "characters": {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"},
}


def train_tokenizer(
    texts: Iterable[str | Path], *, kind: TokenizerKind, vocab: int, special: Names | None = None, ends: bool = False
) -> Tokenizer:
    """A tokenizer of at most `vocab` tokens for texts, or for the lines of files.

    `special` maps each role to its text; with cls and sep they are put around every text, with `ends` it gets an eos
    (for encoder-decoders).
    """
    if kind not in DEFAULT_SPECIAL_TOKENS:
        raise UnknownName("kind of tokenizer", kind, DEFAULT_SPECIAL_TOKENS)
    names = dict(DEFAULT_SPECIAL_TOKENS[kind] if special is None else special)
    for role in names:
        if role not in ROLES:
            raise UnknownName("special token", role, ROLES)
    if kind != "bpe" and "unk" not in names:
        raise InputError(f"a {kind} tokenizer needs an 'unk' among its special tokens")
    if ends and "eos" not in names:
        raise InputError("texts cannot get an eos: there is none among the special tokens")
    core = TRAINERS[kind](_read_texts(texts), vocab, names)
    if "cls" in names and "sep" in names:
        add_cls_sep(core, cls=names["cls"], sep=names["sep"])
    elif ends:
        add_ends(core, eos=names["eos"])
    return Tokenizer(core, special=names)


def _read_texts(texts: Iterable[str | Path]) -> Iterator[str]:
    """Each text, and each line of each file, line end included."""
    empty = True
    for text in texts:
        for line in (text,) if isinstance(text, str) else _read_lines(text):
            check_text(line)
            empty = empty and not line
            yield line
    if empty:
        raise InputError("there is no text to train a tokenizer on")


def _read_lines(path: Path) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            yield from file
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"cannot read {path} as lines of UTF-8: {error}") from error


# --- the kinds ----------------------------------------------------------------------------------------------------


def _train_bpe(texts: Iterator[str], vocab: int, names: Names) -> tokenizers.Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    _check_vocab(vocab, needed=len(set(names.values())) + len(alphabet), what="special tokens and the 256 bytes")
    core = build_byte_level({}, merges=[])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        min_frequency=2,
        special_tokens=list(dict.fromkeys(names.values())),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    with guard_library("training BPE"):
        core.train_from_iterator(texts, trainer)
    return core


def _train_characters(texts: Iterator[str], vocab: int, names: Names) -> tokenizers.Tokenizer:
    tokens = list(dict.fromkeys(names.values()))
    _check_vocab(vocab, needed=len(tokens) + 1, what="special tokens and a character")
    seen: Counter[str] = Counter()
    for text in texts:
        seen.update(text)
    tokens += _most_common(seen, count=vocab - len(tokens))
    core = tokenizers.Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, [], unk_token=names["unk"]))
    core.decoder = decoders.Fuse()
    return core


def _train_unigram(texts: Iterator[str], vocab: int, names: Names) -> tokenizers.Tokenizer:
    special = list(dict.fromkeys(names.values()))
    _check_vocab(vocab, needed=len(special) + 2, what="special tokens and a character")
    words: Counter[str] = Counter()
    for text in texts:
        spaced = (SPACE + text).replace(" ", SPACE)
        words.update(re.findall(rf"{SPACE}[^{SPACE}\s]*|[^{SPACE}\s]+|\s", spaced))
    size = vocab - len(special)
    pieces = [Piece(token, kind=UNKNOWN if token == names["unk"] else CONTROL) for token in special]
    pieces += [Piece(*found) for found in train_unigram(_keep_common(words, characters=size // 2), size=size)]
    return build_from_pieces(PieceModel(pieces=tuple(pieces), bpe=False, squeeze=False), what="the trained tokenizer")


MAX_WORDS = 200_000  # held in memory; rarer ones would not change the pieces
# Planes 12 to 15 of Unicode are empty: characters inside a word are shifted there, to differ from those at its start.
SHIFT = 0xC0000


def _train_wordpiece(texts: Iterator[str], vocab: int, names: Names) -> tokenizers.Tokenizer:
    """Pieces by BPE, in an alphabet with separate letters for continuations.

    The library's own trainer numbers continuations in the order of a hash table, which changes from run to run.
    """
    special = list(dict.fromkeys(names.values()))
    core = build_word_piece({names["unk"]: 0}, unk=names["unk"], lower=False)
    _check_vocab(vocab, needed=len(special) + 4, what="special tokens and a character")
    words: Counter[str] = Counter()
    for text in texts:
        words.update(word for word, _ in core.pre_tokenizer.pre_tokenize_str(core.normalizer.normalize_str(text)))
    words = _keep_common(words, characters=(vocab - len(special)) // 4)
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=vocab - len(special), min_frequency=2, show_progress=False)
    with guard_library("training WordPiece"):
        trained.train_from_iterator((f"{_shift(word)} " * count for word, count in words.items()), trainer)
    tokens = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    every = [*special, *(_unshift(token) for token, _ in tokens)]
    core.model = models.WordPiece({token: id for id, token in enumerate(every)}, unk_token=names["unk"])
    return core


def _shift(word: str) -> str:
    return word[0] + "".join(chr(ord(character) + SHIFT) for character in word[1:])


def _unshift(token: str) -> str:
    plain = "".join(chr(ord(character) - SHIFT) if ord(character) >= SHIFT else character for character in token)
    return plain if token[0] == plain[0] else "##" + plain


TRAINERS: dict[TokenizerKind, Callable[[Iterator[str], int, Names], tokenizers.Tokenizer]] = {
    "bpe": _train_bpe,
    "unigram": _train_unigram,
    "wordpiece": _train_wordpiece,
    "characters": _train_characters,
}


def _check_vocab(vocab: int, *, needed: int, what: str) -> None:
    if vocab < needed:
        raise InputError(f"vocab={vocab} is too small: {what} alone take {needed}")


def _most_common(seen: Counter[str], *, count: int) -> list[str]:
    """The most frequent; ties in the order of code points."""
    return sorted(seen, key=lambda key: (-seen[key], key))[:count]


def _keep_common(words: Counter[str], *, characters: int) -> Counter[str]:
    """The words made of the most common characters, most common first: a rare script must not use up the vocabulary."""
    seen: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            if ord(character) < 0x40000:  # no characters above; and a shifted character must stay valid
                seen[character] += count
    kept = set(_most_common(seen, count=characters))
    spelled = Counter({word: count for word, count in words.items() if kept.issuperset(word)})
    if not spelled:
        raise InputError(f"no word of the texts has only the {characters} most common characters; use a larger vocab")
    return Counter({word: spelled[word] for word in _most_common(spelled, count=MAX_WORDS)})
