"""SentencePiece models: parsed from their protobuf, built into a tokenizer of the tokenizers library.

The parser is our own: the sentencepiece package shows neither normalization nor piece types, its C++ code ends the
process on some damaged files, and parsing five fields takes forty lines that can only raise.
"""

import struct
from collections.abc import Iterator
from math import isfinite
from typing import NamedTuple

import msgspec
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from triform.text.panic_guard import TokenizerError, guard_library
from triform.text.tokenizer_limits import MAX_PIECE_BYTES, check_bytes

SPACE = "▁"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


class Piece(NamedTuple):
    """A piece of a SentencePiece vocabulary."""

    text: str
    score: float = 0.0
    kind: int = NORMAL


class PieceModel(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a SentencePiece file; pieces in the order of their ids."""

    pieces: tuple[Piece, ...]
    bpe: bool  # merges by score; else Unigram
    byte_fallback: bool = False  # unknown characters are encoded as bytes
    prefix: bool = True  # a space is added before a text
    squeeze: bool = True  # several spaces count as one, none at the ends
    charsmap: bytes = b""  # normalization as a compiled trie
    special: dict[str, str] = {}  # role: piece


# --- the file -----------------------------------------------------------------------------------------------------


def parse_pieces(data: bytes, *, what: str) -> PieceModel:
    """The model in a `.model` or `.spm` file."""
    try:
        return _parse_model(data)
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise TokenizerError(f"{what} is not a SentencePiece model: {error}") from error


def _parse_model(data: bytes) -> PieceModel:
    pieces: list[Piece] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for field, value in _parse_fields(data):
        if field == 1:
            pieces.append(_parse_piece(dict(_parse_fields(_require_bytes(value)))))
        elif field == 2:
            trainer.update(_parse_fields(_require_bytes(value)))
        elif field == 3:
            normalizer.update(_parse_fields(_require_bytes(value)))
    kind = trainer.get(3, 1)
    if kind not in (1, 2):
        raise ValueError(f"its type is {kind!r}; only Unigram (1) and BPE (2) are supported")
    names = {"unk": (45, b"<unk>"), "bos": (46, b"<s>"), "eos": (47, b"</s>"), "pad": (48, b"<pad>")}
    texts = {piece.text for piece in pieces}
    special = {role: _require_bytes(trainer.get(field, usual)).decode() for role, (field, usual) in names.items()}
    return PieceModel(
        pieces=tuple(pieces),
        bpe=kind == 2,
        byte_fallback=bool(trainer.get(35, 0)),
        prefix=bool(normalizer.get(3, 1)),
        squeeze=bool(normalizer.get(4, 1)),
        charsmap=_require_bytes(normalizer.get(2, b"")),
        special={role: text for role, text in special.items() if text in texts},
    )


def _parse_piece(fields: dict[int, int | bytes]) -> Piece:
    (score,) = struct.unpack("<f", _require_bytes(fields.get(2, bytes(4))))
    kind = fields.get(3, NORMAL)
    if not isfinite(score) or kind not in range(1, 7):
        raise ValueError(f"a piece has score {score} and type {kind!r}")
    return Piece(_require_bytes(fields.get(1, b"")).decode(), score, int(kind))


FIXED_BYTES = {1: 8, 5: 4}  # bytes per wire type without a length


def _parse_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Protobuf: a number that is field × 8 + wire type, then a number (0), 8 bytes (1), a string (2) or 4 bytes (5)."""
    at = 0
    while at < len(data):
        key, at = _parse_varint(data, at)
        wire = key & 7
        number, at = _parse_varint(data, at) if wire in (0, 2) else (FIXED_BYTES[wire], at)
        if wire == 0:
            yield key >> 3, number
            continue
        value, at = data[at : at + number], at + number
        if len(value) < number:
            raise ValueError("it ends in the middle of a field")
        yield key >> 3, value


def _parse_varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint: seven bits per byte, the lowest first; the eighth bit says that more follow."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError(f"a number without end at byte {at}")


def _require_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a string should be")
    return value


# --- the tokenizer ------------------------------------------------------------------------------------------------


def build_from_pieces(model: PieceModel, *, what: str) -> tokenizers.Tokenizer:
    """Gives the same ids as SentencePiece for any text that does not contain the text of a control piece."""
    ids = {piece.text: id for id, piece in enumerate(model.pieces)}
    unknown = [id for id, piece in enumerate(model.pieces) if piece.kind == UNKNOWN]
    if len(ids) != len(model.pieces) or len(unknown) != 1:
        raise TokenizerError(f"{what} is damaged: pieces must be distinct, and exactly one must be the unknown piece")
    check_bytes(ids, limit=MAX_PIECE_BYTES, what=f"the pieces of {what}")
    with guard_library(f"building the tokenizer of {what}"):
        if model.bpe:
            unk = model.pieces[unknown[0]].text
            inner: models.Model = models.BPE(
                ids, _find_merges(model.pieces), unk_token=unk, fuse_unk=True, byte_fallback=model.byte_fallback
            )
        else:
            scored = [(piece.text, piece.score) for piece in model.pieces]
            inner = models.Unigram(scored, unknown[0], model.byte_fallback)
        core = tokenizers.Tokenizer(inner)
        core.normalizer = _build_normalizer(model)
        if not any(SPACE in piece.text[1:] for piece in model.pieces):  # no piece crosses words: split into words first
            core.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="never")
        core.decoder = _build_decoder(model)
        core.add_tokens(_list_added(model.pieces, kind=USER_DEFINED))
        core.add_special_tokens(_list_added(model.pieces, kind=CONTROL))
    return core


def _find_merges(pieces: tuple[Piece, ...]) -> list[tuple[str, str]]:
    """SentencePiece always merges into the piece with the highest score; every split of a piece into two is a merge."""
    normal = {piece.text for piece in pieces if piece.kind == NORMAL}
    return [
        (piece.text[:cut], piece.text[cut:])
        for piece in sorted(pieces, key=lambda piece: -piece.score)
        if piece.kind == NORMAL
        for cut in range(1, len(piece.text))
        if piece.text[:cut] in normal and piece.text[cut:] in normal
    ]


def _build_normalizer(model: PieceModel) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = []
    if model.charsmap:
        steps.append(normalizers.Precompiled(model.charsmap))
    if model.squeeze:
        steps += [
            normalizers.Replace(Regex(rf"\A +|[ {SPACE}]+\z"), ""),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    if model.prefix:
        steps.append(normalizers.Prepend(SPACE))
    return normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])


def _build_decoder(model: PieceModel) -> decoders.Decoder:
    steps: list[decoders.Decoder] = [decoders.Replace(SPACE, " ")]
    if model.byte_fallback:
        steps.append(decoders.ByteFallback())
    steps.append(decoders.Fuse())
    if model.prefix:
        steps.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(steps)


def _list_added(pieces: tuple[Piece, ...], *, kind: int) -> list[AddedToken]:
    return [AddedToken(piece.text, normalized=False) for piece in pieces if piece.kind == kind]


# --- llama2.c -----------------------------------------------------------------------------------------------------


def parse_llama2c(data: bytes, *, what: str) -> PieceModel:
    """llama2.c's tokenizer.bin: the largest length, then per piece its score, its length and its bytes.

    Piece 0 is unk, 1 bos, 2 eos, the next 256 are bytes: `<0x41>`, or in files from before August 2023 the character
    itself, A, which also has its own piece. Spaces are written as spaces.
    """
    pieces: list[Piece] = []
    at = 4
    try:
        while at < len(data):
            score, size = struct.unpack_from("<fI", data, at)
            pieces.append(_parse_llama2c_piece(len(pieces), data[at + 8 : at + 8 + size].decode(), score))
            at += 8 + size
    except (struct.error, UnicodeDecodeError) as error:
        raise TokenizerError(f"{what} is not a tokenizer of llama2.c: {error}") from error
    if at != len(data) or len(pieces) < 3 + 256:
        raise TokenizerError(f"{what} is not a tokenizer of llama2.c: it ends after {len(pieces)} pieces")
    special = {"unk": pieces[0].text, "bos": pieces[1].text, "eos": pieces[2].text}
    return PieceModel(pieces=tuple(pieces), bpe=True, byte_fallback=True, squeeze=False, special=special)


def _parse_llama2c_piece(id: int, text: str, score: float) -> Piece:
    if id < 3:
        return Piece(text.strip("\n"), score, CONTROL) if id else Piece(text, score, UNKNOWN)
    if id < 3 + 256:
        return Piece(f"<0x{id - 3:02X}>" if text == chr(id - 3) else text, score, BYTE)
    return Piece(text.replace(" ", SPACE), score, NORMAL)
