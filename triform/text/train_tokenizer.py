"""Training a new tokenizer from texts: the same texts always give the same tokenizer.

Owns the recipe of each kind. Knows no corpora, no models, no file formats beyond lines of UTF-8.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from triform.errors import InputError, UnknownName
from triform.files.whole_files import FileError
from triform.text.build_tokenizer import byte_level, put_cls_sep, put_ends, word_piece
from triform.text.panic_guard import shield
from triform.text.sentencepiece import CONTROL, SPACE, UNKNOWN, Piece, PieceModel, core_of
from triform.text.tokenizer import ROLES, Tokenizer, check_text
from triform.text.train_unigram import train_unigram

Kind: TypeAlias = Literal["bpe", "unigram", "wordpiece", "characters"]
Names: TypeAlias = Mapping[str, str]

# Filling has id 0. Byte-level BPE spells everything and needs no unk.
SPECIAL: dict[Kind, Names] = {
    "bpe": {"pad": "<|pad|>", "eos": "<|endoftext|>"},
    "unigram": {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"},
    "wordpiece": {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    "characters": {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"},
}


def train_tokenizer(
    texts: Iterable[str | Path], *, kind: Kind, vocab: int, special: Names | None = None, ends: bool = False
) -> Tokenizer:
    """A tokenizer of at most `vocab` tokens for texts, or for the lines of files.

    `special` gives the text of each role; with cls and sep every text is framed by them, with `ends` it gets an eos
    (as encoder–decoders read and write).
    """
    if kind not in SPECIAL:
        raise UnknownName("kind of tokenizer", kind, SPECIAL)
    names = dict(SPECIAL[kind] if special is None else special)
    for role in names:
        if role not in ROLES:
            raise UnknownName("special token", role, ROLES)
    if kind != "bpe" and "unk" not in names:
        raise InputError(f"a tokenizer of {kind} needs an 'unk' among its special tokens")
    if ends and "eos" not in names:
        raise InputError("texts cannot get an eos: there is none among the special tokens")
    core = RECIPES[kind](_lines(texts), vocab, names)
    if "cls" in names and "sep" in names:
        put_cls_sep(core, cls=names["cls"], sep=names["sep"])
    elif ends:
        put_ends(core, eos=names["eos"])
    return Tokenizer(core, special=names)


def _lines(texts: Iterable[str | Path]) -> Iterator[str]:
    """Each text, and each line of each file with its end: that belongs to the text."""
    empty = True
    for text in texts:
        for line in (text,) if isinstance(text, str) else _file_lines(text):
            check_text(line)
            empty = empty and not line
            yield line
    if empty:
        raise InputError("there is no text to train a tokenizer on")


def _file_lines(path: Path) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            yield from file
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"cannot read {path} as lines of UTF-8: {error}") from error


# --- the kinds ----------------------------------------------------------------------------------------------------


def _bpe(texts: Iterator[str], vocab: int, names: Names) -> tokenizers.Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    _enough(vocab, needed=len(set(names.values())) + len(alphabet), what="special tokens and the 256 bytes")
    core = byte_level({}, merges=[])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        min_frequency=2,
        special_tokens=list(dict.fromkeys(names.values())),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    with shield("training BPE"):
        core.train_from_iterator(texts, trainer)
    return core


def _characters(texts: Iterator[str], vocab: int, names: Names) -> tokenizers.Tokenizer:
    tokens = list(dict.fromkeys(names.values()))
    _enough(vocab, needed=len(tokens) + 1, what="special tokens and a character")
    seen: Counter[str] = Counter()
    for text in texts:
        seen.update(text)
    tokens += _commonest(seen, count=vocab - len(tokens))
    core = tokenizers.Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, [], unk_token=names["unk"]))
    core.decoder = decoders.Fuse()
    return core


def _unigram(texts: Iterator[str], vocab: int, names: Names) -> tokenizers.Tokenizer:
    special = list(dict.fromkeys(names.values()))
    _enough(vocab, needed=len(special) + 2, what="special tokens and a character")
    words: Counter[str] = Counter()
    for text in texts:
        spaced = (SPACE + text).replace(" ", SPACE)
        words.update(re.findall(rf"{SPACE}[^{SPACE}\s]*|[^{SPACE}\s]+|\s", spaced))
    size = vocab - len(special)
    pieces = [Piece(token, kind=UNKNOWN if token == names["unk"] else CONTROL) for token in special]
    pieces += [Piece(*found) for found in train_unigram(_spellable(words, characters=size // 2), size=size)]
    return core_of(PieceModel(pieces=tuple(pieces), bpe=False, squeeze=False), what="the trained tokenizer")


DISTINCT = 200_000  # words held in memory; rarer ones would not change the pieces
# Planes 12 to 15 of Unicode are empty: there a character inside a word is told from the same one at its beginning.
SHIFT = 0xC0000


def _wordpiece(texts: Iterator[str], vocab: int, names: Names) -> tokenizers.Tokenizer:
    """Pieces by BPE, in an alphabet where continuations have their own letters.

    The library's own trainer numbers continuations in the order of a hash table, which changes from run to run.
    """
    special = list(dict.fromkeys(names.values()))
    core = word_piece({names["unk"]: 0}, unk=names["unk"], lower=False)
    _enough(vocab, needed=len(special) + 4, what="special tokens and a character")
    words: Counter[str] = Counter()
    for text in texts:
        words.update(word for word, _ in core.pre_tokenizer.pre_tokenize_str(core.normalizer.normalize_str(text)))
    words = _spellable(words, characters=(vocab - len(special)) // 4)
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=vocab - len(special), min_frequency=2, show_progress=False)
    with shield("training WordPiece"):
        trained.train_from_iterator((f"{_shifted(word)} " * count for word, count in words.items()), trainer)
    tokens = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    every = [*special, *(_unshifted(token) for token, _ in tokens)]
    core.model = models.WordPiece({token: id for id, token in enumerate(every)}, unk_token=names["unk"])
    return core


def _shifted(word: str) -> str:
    return word[0] + "".join(chr(ord(character) + SHIFT) for character in word[1:])


def _unshifted(token: str) -> str:
    plain = "".join(chr(ord(character) - SHIFT) if ord(character) >= SHIFT else character for character in token)
    return plain if token[0] == plain[0] else "##" + plain


RECIPES: dict[Kind, Callable[[Iterator[str], int, Names], tokenizers.Tokenizer]] = {
    "bpe": _bpe,
    "unigram": _unigram,
    "wordpiece": _wordpiece,
    "characters": _characters,
}


def _enough(vocab: int, *, needed: int, what: str) -> None:
    if vocab < needed:
        raise InputError(f"vocab={vocab} is too small: {what} alone take {needed}")


def _commonest(seen: Counter[str], *, count: int) -> list[str]:
    """The most frequent, ties in the order of their code points."""
    return sorted(seen, key=lambda key: (-seen[key], key))[:count]


def _spellable(words: Counter[str], *, characters: int) -> Counter[str]:
    """The words that the commonest characters can spell, commonest first: a rare script must not eat the vocabulary."""
    seen: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            if ord(character) < 0x40000:  # above, nothing is written; and a shifted character must stay a character
                seen[character] += count
    kept = set(_commonest(seen, count=characters))
    spelled = Counter({word: count for word, count in words.items() if kept.issuperset(word)})
    if not spelled:
        raise InputError(f"no word of the texts can be spelled with {characters} characters; use a larger vocab")
    return Counter({word: spelled[word] for word in _commonest(spelled, count=DISTINCT)})
