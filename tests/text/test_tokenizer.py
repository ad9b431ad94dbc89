"""The face of a tokenizer: what an encoding says, what roles mean, what is refused, what a folder keeps."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiny_tokenizers import CORPUS, hard_texts, put

from triform.errors import InputError
from triform.text.tokenizer import Tokenizer


def test_an_encoding_says_where_each_token_comes_from(tiny: dict[str, Tokenizer]) -> None:
    found = tiny["bert"].encode("The fat cat", pair="a lion")
    assert [tiny["bert"].token_of(id) for id in found.ids] == [
        "[CLS]",
        "the",
        "fat",
        "cat",
        "[SEP]",
        "a",
        "lion",
        "[SEP]",
    ]
    assert found.segment_ids == (0, 0, 0, 0, 0, 1, 1, 1)
    assert found.parts == (None, 0, 0, 0, None, 1, 1, None)
    assert found.special == (True, False, False, False, True, False, False, True)
    assert found.offsets == ((0, 0), (0, 3), (4, 7), (8, 11), (0, 0), (0, 1), (2, 6), (0, 0))
    assert found.words == (None, 0, 1, 2, None, 0, 1, None)
    assert tiny["bert"].encode("The fat cat", special=False).ids == found.ids[1:4]


def test_roberta_has_parts_where_it_has_no_kinds(tiny: dict[str, Tokenizer]) -> None:
    found = tiny["roberta"].encode("a", pair="b")
    assert set(found.segment_ids) == {0}
    assert found.parts == (None, 0, None, None, 1, None)


@given(text=hard_texts())
def test_offsets_cut_the_text_into_its_tokens(tiny: dict[str, Tokenizer], text: str) -> None:
    """Byte-level tokens cover the text without a gap; a character of several tokens belongs to each of them."""
    offsets = tiny["gpt2"].encode(text).offsets
    covered = 0
    for start, end in offsets:
        assert start <= covered <= end
        covered = max(covered, end)
    assert covered == len(text)
    cased = tiny["cased"].encode(text, special=False)
    for id, (start, end) in zip(cased.ids, cased.offsets, strict=True):
        token = (tiny["cased"].token_of(id) or "").removeprefix("##")
        # Signs without width may go lost inside a word, so only the ends are compared.
        assert token == "[UNK]" or (token[0], token[-1]) == (text[start], text[end - 1])


@given(text=hard_texts(), pair=st.none() | st.just("a cat"), length=st.integers(0, 24), overlap=st.integers(0, 6))
@example(text="", pair=None, length=1, overlap=0)
def test_windows_cover_the_text(
    tiny: dict[str, Tokenizer], text: str, pair: str | None, length: int, overlap: int
) -> None:
    for whole in (tiny["bert"].encode(text, pair=pair), tiny["bert"].encode("q", pair=text)):
        last = 1 if 1 in whole.parts else 0
        size = whole.parts.count(last)
        if len(whole.ids) > length and length - (len(whole.ids) - size) <= overlap:
            with pytest.raises(InputError, match="too short to overlap"):
                whole.split_windows(length=length, overlap=overlap)
            continue
        windows = whole.split_windows(length=length, overlap=overlap)
        inside = [
            [offset for offset, part in zip(each.offsets, each.parts, strict=True) if part == last] for each in windows
        ]
        for each in windows:
            assert len(each.ids) <= max(length, len(whole.ids) - size)
            assert [id for id, part in zip(each.ids, each.parts, strict=True) if part != last] == [
                id for id, part in zip(whole.ids, whole.parts, strict=True) if part != last
            ]
        joined = inside[0] + [offset for stretch in inside[1:] for offset in stretch[overlap:]]
        assert joined == [offset for offset, part in zip(whole.offsets, whole.parts, strict=True) if part == last]
        for before, after in pairwise(inside):
            assert before[len(before) - overlap :] == after[:overlap]


@settings(max_examples=50)
@given(texts=st.lists(hard_texts(), max_size=3))
def test_many_is_each(tiny: dict[str, Tokenizer], texts: list[str]) -> None:
    for tokenizer in tiny.values():
        each = [tokenizer.encode(text) for text in texts]
        assert tokenizer.encode_many(texts) == each
        assert tokenizer.ids_many(texts) == [list(one.ids) for one in each]
        backwards = texts[::-1]
        pairs = [tokenizer.encode(text, pair=pair) for text, pair in zip(texts, backwards, strict=True)]
        assert tokenizer.encode_many(texts, pairs=backwards) == pairs


@given(text=st.text())
def test_byte_level_gives_every_text_back(tiny: dict[str, Tokenizer], text: str) -> None:
    assert tiny["gpt2"].decode(tiny["gpt2"].encode(text).ids, skip_special=False) == text
    plain = text.replace("<", "").replace("\u2581", "")  # SentencePiece writes spaces as ▁, and cannot tell them apart
    assert tiny["llama"].decode(tiny["llama"].encode(plain).ids) == plain


def test_roles(tiny: dict[str, Tokenizer]) -> None:
    bert, gpt2, t5 = tiny["bert"], tiny["gpt2"], tiny["t5"]
    assert (bert.pad, bert.unk, bert.cls, bert.sep, bert.mask, bert.eos, bert.bos) == (0, 1, 2, 3, 4, None, None)
    assert (gpt2.eos, gpt2.bos, gpt2.pad) == (0, 0, None)
    assert (t5.pad, t5.eos, t5.unk, t5.bos) == (0, 1, 2, None)
    assert t5.id_of("<extra_id_0>") == t5.vocab - 1
    assert t5.token_of(t5.vocab) is None
    assert t5.token_of(-1) is None
    assert t5.id_of("no such token") is None
    assert t5.target is t5


def test_a_pad_that_is_the_end_is_no_pad(tiny: dict[str, Tokenizer], folders: dict[str, Path], tmp_path: Path) -> None:
    files = {path.name.replace(".", "__"): path.read_bytes() for path in folders["gpt2"].iterdir()}
    config = {
        "pad_token": "<|endoftext|>",
        "model_max_length": 9,
        "chat_template": "x",
        "auto_map": {"AutoTokenizer": "x.py"},
    }
    same = Tokenizer.read(put(tmp_path, **files, tokenizer_config__json=config))
    assert same.pad is None
    assert same.eos == tiny["gpt2"].eos
    same.save(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved/tokenizer_config.json").read_text())
    assert saved["pad_token"] == "<|endoftext|>"
    assert saved["model_max_length"] == 9
    assert not saved.keys() & {"chat_template", "auto_map"}  # one has its own file, the other names code to run


def test_unknown_tokens_are_counted_where_there_can_be_any(tiny: dict[str, Tokenizer]) -> None:
    assert tiny["bert"].count_unknown(tiny["bert"].encode("中 the 文").ids) == 2
    assert tiny["t5"].count_unknown(tiny["t5"].encode("中 the 文").ids) == 2
    assert tiny["gpt2"].count_unknown(tiny["gpt2"].encode("中<|endoftext|>").ids) == 0


def test_ids_without_a_token_have_no_text(tiny: dict[str, Tokenizer]) -> None:
    ids = tiny["gpt2"].encode("cat").ids
    assert tiny["gpt2"].decode([-100, *ids, 10**6, 2**40]) == "cat"


def test_special_tokens_in_a_text_are_found_and_left_out(tiny: dict[str, Tokenizer]) -> None:
    ids = tiny["qwen2"].encode("<|im_start|>cat<|im_end|>").ids
    assert ids[0] == tiny["qwen2"].id_of("<|im_start|>")
    assert ids[-1] == tiny["qwen2"].eos
    assert tiny["qwen2"].decode(ids) == "cat"
    assert tiny["qwen2"].decode(ids, skip_special=False) == "<|im_start|>cat<|im_end|>"


def test_what_is_not_text_is_refused(tiny: dict[str, Tokenizer]) -> None:
    with pytest.raises(InputError, match=r"character 1 .* surrogate"):
        tiny["gpt2"].encode("a\ud800")
    with pytest.raises(InputError, match="must be a string, not int"):
        tiny["gpt2"].encode_many(["a", 1])  # type: ignore[list-item]
    with pytest.raises(InputError, match="2 texts have 1 pairs"):
        tiny["gpt2"].encode_many(["a", "b"], pairs=["c"])


def test_padding_cutting_and_dropout_of_a_file_are_left_behind(
    folders: dict[str, Path], tiny: dict[str, Tokenizer], tmp_path: Path
) -> None:
    tiny["gpt2"].save(tmp_path)
    core = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    core.enable_padding(length=50)
    core.enable_truncation(3)
    core.model.dropout = 0.9
    core.save(str(tmp_path / "tokenizer.json"))
    text = "The fat ginger cat sat on a mat"
    assert core.encode(text).ids != list(tiny["gpt2"].encode(text).ids)
    assert Tokenizer.read(tmp_path).encode(text) == tiny["gpt2"].encode(text)


def test_there_and_back(tiny: dict[str, Tokenizer], tmp_path: Path) -> None:
    for name, ours in tiny.items():
        ours.save(tmp_path / name)
        back = Tokenizer.read(tmp_path / name)
        assert (back.special, back.vocab, back.special_ids) == (ours.special, ours.vocab, ours.special_ids)
        assert [path.name for path in (tmp_path / name).iterdir() if path.name.startswith(".")] == []
        for text in ["", "a", *CORPUS[:7]]:
            assert back.encode(text, pair=text) == ours.encode(text, pair=text)
            assert back.target.encode(text) == ours.target.encode(text)


def test_the_room_has_a_window(folders: dict[str, Path], tmp_path: Path) -> None:
    def look(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "triform.text", *arguments], capture_output=True, text=True)

    seen = look(str(folders["bert"]), "The cat 中").stdout
    assert seen.split()[:2] == ["2", "'[CLS]'"]
    assert seen.splitlines()[-1] == "5 tokens, 1 unknown, vocabulary 198"
    assert "the folder has no tokenizer" in look(str(tmp_path), "x").stderr
    assert "FOLDER TEXT" in look().stderr


def test_a_conversation_that_brings_its_bos_gets_no_second_one() -> None:
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "a": 1, "?": 2}, unk_token="?"))
    core.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = Tokenizer(core, special={"bos": "<s>", "unk": "?"})
    assert tokenizer.encode("<s>a").ids == (0, 0, 1)  # as the reference has it, for a text that a person wrote
    assert tokenizer.encode_conversation("<s>a").ids == (0, 1)
    assert tokenizer.encode_conversation("a").ids == (0, 1)
