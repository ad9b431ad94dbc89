"""New tokenizers: the same texts give the same tokenizer, in any process; each kind spells what it should."""

import hashlib
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tokenizers import CORPUS

from triform.errors import InputError, UnknownName
from triform.files.errors import FileError
from triform.text.tokenizer import Tokenizer
from triform.text.train_tokenizer import DEFAULT_SPECIAL_TOKENS, train_tokenizer
from triform.text.train_unigram import Lattice, train_unigram

KINDS = {"bpe": 400, "unigram": 200, "wordpiece": 300, "characters": 80}


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizer]:
    return {kind: train_tokenizer(CORPUS, kind=kind, vocab=vocab) for kind, vocab in KINDS.items()}


def digest(tokenizer: Tokenizer, folder: Path) -> str:
    tokenizer.save(folder)
    return hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()


def test_another_process_trains_the_same(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    """The library's hash tables have another order in every process; ours must not show it."""
    code = (
        "import sys; from pathlib import Path; from triform.text.train_tokenizer import train_tokenizer\n"
        "texts = Path(sys.argv[1]).read_text().split('\\0')\n"
        f"for kind, vocab in {KINDS}.items():\n"
        "    train_tokenizer(texts, kind=kind, vocab=vocab).save(Path(sys.argv[1]).parent / kind)\n"
    )
    (tmp_path / "texts").write_text("\0".join(CORPUS))
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "texts")], check=True)
    for kind, tokenizer in trained.items():
        there = hashlib.sha256((tmp_path / kind / "tokenizer.json").read_bytes()).hexdigest()
        assert digest(tokenizer, tmp_path / f"{kind} here") == there, kind


def test_each_kind_spells_its_corpus(trained: dict[str, Tokenizer]) -> None:
    for kind, tokenizer in trained.items():
        assert tokenizer.vocab <= KINDS[kind]
        assert tokenizer.special == DEFAULT_SPECIAL_TOKENS[kind]
        assert tokenizer.pad == 0
        for text in CORPUS[:7]:
            ids = tokenizer.encode(text, special=False).ids
            assert tokenizer.count_unknown(ids) == 0
            assert kind == "wordpiece" or tokenizer.decode(ids) == text
            assert kind == "characters" or len(ids) < len(text)


def test_word_pieces_begin_and_go_on(trained: dict[str, Tokenizer]) -> None:
    wordpiece = trained["wordpiece"]
    tokens = [wordpiece.token_of(id) for id in wordpiece.encode("The moles").ids]
    assert tokens[:3] == ["[CLS]", "The", "mole"]
    assert tokens[-2:] == ["##s", "[SEP]"]
    assert wordpiece.encode("a", pair="b").segment_ids == (0, 0, 0, 1, 1)


def test_ends_and_frames(trained: dict[str, Tokenizer]) -> None:
    assert trained["unigram"].encode("a").ids[-1] != trained["unigram"].eos
    ended = train_tokenizer(CORPUS, kind="bpe", vocab=300, ends=True)
    assert ended.encode("a").ids[-1] == ended.eos
    assert ended.encode("a", special=False).ids == ended.encode("a").ids[:-1]
    names = {"pad": "P", "eos": "E", "cls": "C", "sep": "S", "mask": "M"}
    assert train_tokenizer(CORPUS, kind="bpe", vocab=300, special=names).encode("").ids == (2, 3)


def test_files_are_read_by_lines_with_their_ends(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("cat\r\nmät\n".encode())
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe")
    tokenizer = train_tokenizer([tmp_path / "a.txt", "more"], kind="characters", vocab=50)
    assert {tokenizer.id_of(character) is None for character in "\r\ncatmäore"} == {False}
    for name in ("bad.txt", "missing.txt"):
        with pytest.raises(FileError, match=name):
            train_tokenizer([tmp_path / name], kind="characters", vocab=50)


def test_only_the_commonest_characters_are_kept() -> None:
    tokenizer = train_tokenizer(["d cc bbb aaaa"], kind="characters", vocab=6)
    assert [tokenizer.token_of(id) for id in range(6)] == ["<pad>", "</s>", "<unk>", "a", " ", "b"]
    assert tokenizer.count_unknown(tokenizer.encode("abcd").ids) == 2
    crowded = train_tokenizer(["the cat " * 50 + "".join(map(chr, range(0x4E00, 0x5000)))], kind="unigram", vocab=60)
    assert crowded.vocab <= 60
    assert crowded.decode(crowded.encode("the cat").ids) == "the cat"


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_trained(kind: str) -> None:
    with pytest.raises(InputError, match="no text"):
        train_tokenizer(["", ""], kind=kind, vocab=500)
    with pytest.raises(InputError, match="vocab=3 is too small"):
        train_tokenizer(CORPUS, kind=kind, vocab=3)
    with pytest.raises(InputError, match="surrogate"):
        train_tokenizer(["a", "\ud800"], kind=kind, vocab=500)
    with pytest.raises(UnknownName, match="'end'"):
        train_tokenizer(CORPUS, kind=kind, vocab=500, special={"end": "x"})
    with pytest.raises(InputError, match=r"unk|eos"):
        train_tokenizer(CORPUS, kind=kind, vocab=500, special={"pad": "x"}, ends=True)


def test_a_vocabulary_too_small_for_any_word() -> None:
    with pytest.raises(InputError, match="use a larger vocab"):
        train_tokenizer(["abcdefgh"], kind="unigram", vocab=6)


def test_an_unknown_kind() -> None:
    with pytest.raises(UnknownName, match="unigram"):
        train_tokenizer(CORPUS, kind="unigrams", vocab=500)  # type: ignore[arg-type]


def test_rare_signs_do_not_break_training() -> None:
    odd = "tag tag\U000e0041 private\U00100000 flag🏴 \x00 ▁ ##x"
    for kind, vocab in KINDS.items():
        tokenizer = train_tokenizer([odd] * 3, kind=kind, vocab=vocab)
        assert tokenizer.count_unknown(tokenizer.encode("tag").ids) == 0
        assert tokenizer.encode(odd).ids


# --- the lattice --------------------------------------------------------------------------------------------------


def spellings(word: str, pieces: dict[str, float]) -> list[list[str]]:
    if not word:
        return [[]]
    starts = [piece for piece in pieces if word.startswith(piece)]
    return [[piece, *rest] for piece in starts for rest in spellings(word[len(piece) :], pieces)]


@settings(max_examples=50, deadline=None)
@given(words=st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=4, unique=True), data=st.data())
def test_expected_uses_and_best_spellings_by_brute_force(words: list[str], data: st.DataObject) -> None:
    import numpy as np

    pieces = ["a", "b", "ab", "ba", "aab", "bb"]
    scores = np.array(data.draw(st.lists(st.floats(-5, -0.1), min_size=len(pieces), max_size=len(pieces))))
    table = dict(zip(pieces, scores, strict=True))
    counts = np.arange(1.0, len(words) + 1)
    want = dict.fromkeys(pieces, 0.0)
    best = []
    for word, count in zip(words, counts, strict=True):
        ways = spellings(word, table)
        weights = np.array([np.exp(sum(table[piece] for piece in way)) for way in ways])
        best.append(np.log(weights.max()))
        for way, weight in zip(ways, weights / weights.sum(), strict=True):
            for piece in way:
                want[piece] += count * weight
    lattice = Lattice(words, pieces=pieces)
    np.testing.assert_allclose(lattice.expected_counts(scores, counts=counts), list(want.values()), rtol=1e-9)
    np.testing.assert_allclose(lattice.best_scores(scores), best, rtol=1e-9)


def test_likelihood_grows_with_the_vocabulary() -> None:
    import numpy as np

    words = {word: CORPUS.count(word) + 1 for line in CORPUS for word in line.split()}
    found = []
    for size in (80, 120, 200):
        pieces = train_unigram(words, size=size)
        assert len(pieces) <= size
        assert {piece for piece, _ in pieces} >= set("".join(words))
        scores = np.array([score for _, score in pieces])
        found.append(Lattice(list(words), pieces=[piece for piece, _ in pieces]).best_scores(scores).sum())
    assert all(less < more for less, more in pairwise(found))
