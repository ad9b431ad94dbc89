"""M2M-100's tokenizer: the ids of the reference for every language, and the folder that it is saved to."""

import json
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from tiny_tokenizers import hard_texts, marian_vocab, put, spelled_alike, spm

from triform.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pieces = spm(model_type="bpe", vocab_size=150)
    vocab = marian_vocab(pieces, pieces)
    config = {"tokenizer_class": "M2M100Tokenizer", "src_lang": None}
    root = tmp_path_factory.mktemp("m2m")
    return put(root / "m2m", sentencepiece__bpe__model=pieces, vocab__json=vocab, tokenizer_config__json=config)


def test_ids_are_the_references(folder: Path, reference: ModuleType) -> None:
    ours, theirs = Tokenizer.read(folder), reference.M2M100Tokenizer.from_pretrained(folder)
    pair = ours.translate_between("fr", "de")
    assert len(ours.languages.tokens) == 100

    @settings(max_examples=100, deadline=None)
    @given(text=hard_texts())
    def check(text: str) -> None:
        if not spelled_alike(text):
            return
        theirs.src_lang = "en"
        assert list(ours.encode(text).ids) == theirs(text)["input_ids"]
        theirs.src_lang, theirs.tgt_lang = "fr", "de"
        assert list(pair.encode(text).ids) == theirs(text)["input_ids"] == pair.ids_many([text])[0]
        assert list(pair.target.encode(text).ids) == theirs(text_target=text)["input_ids"]

    check()
    assert ours.id_of("__zu__") == theirs.get_lang_id("zu")


def test_it_is_saved_as_it_was_read(folder: Path, tmp_path: Path) -> None:
    ours = Tokenizer.read(folder)
    ours.save(tmp_path)
    again = Tokenizer.read(tmp_path)
    assert again.encode("the cat sat").ids == ours.encode("the cat sat").ids
    assert again.special == ours.special
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["tokenizer_class"] == "M2M100Tokenizer"
    assert ours.decode(ours.encode("the cat").ids) == "the cat"
