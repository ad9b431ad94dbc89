"""Streamed pieces join to the whole decoding, for every decoder and any ids, and no piece breaks a character."""

import json
from pathlib import Path

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiny_tokenizers import hard_texts
from tokenizers import decoders, models

from triform.text.stream_decoder import BYTE_OF, ByteLevelText, ByteRuns, HoldAll, StripStart, build_steps
from triform.text.tokenizer import Tokenizer

FEW, MANY = settings(max_examples=200, deadline=None), settings(max_examples=4000, deadline=None)
SIZES = [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.slow)]


def pieces(tokenizer: Tokenizer, ids: list[int], *, skip_special: bool = True) -> list[str]:
    stream = tokenizer.stream(skip_special=skip_special)
    return [*(stream.push(id) for id in ids), stream.finish()]


@pytest.mark.parametrize("size", SIZES)
def test_pieces_join_to_the_whole(size: settings, tiny: dict[str, Tokenizer]) -> None:
    @size
    @given(draws=st.lists(st.floats(0, 1, exclude_max=True) | st.integers(-3, 300), max_size=20), skip=st.booleans())
    def check(draws: list[float], skip: bool) -> None:
        for name, tokenizer in tiny.items():
            ids = [draw if isinstance(draw, int) else int(draw * (tokenizer.vocab + 3)) for draw in draws]
            got = "".join(pieces(tokenizer, ids, skip_special=skip))
            assert got == tokenizer.decode(ids, skip_special=skip), name

    check()


@pytest.mark.parametrize("size", SIZES)
def test_no_piece_breaks_a_character(size: settings, tiny: dict[str, Tokenizer]) -> None:
    @size
    @given(text=hard_texts().map(lambda text: text.replace("\ufffd", "")))
    @example(text="👩‍👩‍👧 中文 é")
    def check(text: str) -> None:
        for name, tokenizer in tiny.items():
            ids = list(tokenizer.encode(text).ids)
            found = pieces(tokenizer, ids)
            assert not any("\ufffd" in piece for piece in found), name
            assert "".join(found) == tokenizer.decode(ids), name

    check()


def test_a_character_comes_when_its_last_byte_does(tiny: dict[str, Tokenizer]) -> None:
    name_of = {byte: character for character, byte in BYTE_OF.items()}
    ids = [tiny["gpt2"].id_of(name_of[byte]) for byte in "a€b".encode()]
    assert pieces(tiny["gpt2"], ids) == ["a", "", "", "€", "b", ""]


def test_invalid_bytes_are_replaced_as_the_library_does(tiny: dict[str, Tokenizer]) -> None:
    gpt2, llama = tiny["gpt2"], tiny["llama"]
    name_of = {byte: character for character, byte in BYTE_OF.items()}

    @given(data=st.binary(max_size=8))
    @example(data=b"\xf0\x9f\x99")
    @example(data=b"\xe2\x82\xac\xff")
    @example(data=b"\xed\xa0\x80\xe2\x82")
    def check(data: bytes) -> None:
        for tokenizer, name in ((gpt2, lambda byte: name_of[byte]), (llama, lambda byte: f"<0x{byte:02X}>")):
            ids = [tokenizer.id_of(name(byte)) for byte in data]
            assert "".join(pieces(tokenizer, [*ids, ids[0]] if ids else ids)) == tokenizer.decode([*ids, *ids[:1]])
            assert "".join(pieces(tokenizer, ids)) == tokenizer.decode(ids)

    check()


WORDS = [
    "▁the",
    "▁",
    "a",
    "##b",
    " c",
    ".",
    "n't",
    "<0xE2>",
    "<0x82>",
    "<0xAC>",
    "<0xZZ>",
    "<0x+1>",
    "</w>",
    "d</w>",
    "",
]
DECODERS = {
    "none": None,
    "fuse": decoders.Fuse(),
    "metaspace": decoders.Metaspace(),
    "metaspace, never": decoders.Metaspace(prepend_scheme="never"),
    "wordpiece": decoders.WordPiece(),
    "wordpiece, plain": decoders.WordPiece(cleanup=False),
    "bytes": decoders.ByteFallback(),
    "byte level": decoders.ByteLevel(),
    "llama": decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    ),
    "nested": decoders.Sequence([decoders.Sequence([decoders.Replace("a", "b")]), decoders.ByteFallback()]),
    "regex": decoders.Sequence([decoders.Replace(tokenizers.Regex("[ab]"), "x"), decoders.Fuse()]),
    "two leading": decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 2, 0)]),
    # These must be held whole.
    "bpe": decoders.BPEDecoder(),
    "ctc": decoders.CTC(pad_token="a", word_delimiter_token="▁"),
    "late replace": decoders.Sequence([decoders.Fuse(), decoders.Replace("ab", "x")]),
    "trailing": decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 1)]),
    "strip each": decoders.Sequence([decoders.ByteFallback(), decoders.Strip(" ", 1, 0)]),
}


@given(ids=st.lists(st.integers(0, len(WORDS) - 1), max_size=10))
def test_every_decoder(ids: list[int]) -> None:
    for name, decoder in DECODERS.items():
        core = tokenizers.Tokenizer(models.WordLevel({word: id for id, word in enumerate(WORDS)}, unk_token=""))
        if decoder is not None:
            core.decoder = decoder
        tokenizer = Tokenizer(core, special={})
        if name == "trailing" and not "".join(WORDS[id] for id in ids):
            continue  # the library itself panics
        assert "".join(pieces(tokenizer, ids)) == tokenizer.decode(ids), name


def test_known_shapes_stream_and_unknown_ones_wait() -> None:
    kinds = {name: [type(step) for step in build_steps(decoder)] for name, decoder in DECODERS.items()}
    assert kinds["llama"][1:] == [ByteRuns, StripStart]
    assert kinds["byte level"] == [ByteLevelText]
    assert {name for name, kind in kinds.items() if HoldAll in kind} == {
        "bpe",
        "ctc",
        "late replace",
        "trailing",
        "strip each",
    }


def test_the_byte_alphabet_is_the_library_s() -> None:
    assert set(BYTE_OF) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    for character, byte in BYTE_OF.items():
        if byte < 128:
            assert decoders.ByteLevel().decode([character]) == chr(byte)


def test_gpt2_streams_real_text(shared: Path) -> None:
    gpt2 = Tokenizer.read(shared / "fixture-tokenizers/gpt2")
    text = json.dumps("Grüße 中文🙂 👩‍👩‍👧 naïve \ufffd " * 20, ensure_ascii=False)
    assert "".join(pieces(gpt2, list(gpt2.encode(text).ids))) == text
