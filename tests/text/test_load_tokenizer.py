"""Every road to a tokenizer gives what the reference gives, for any text."""

import json
import math
import struct
import unicodedata
import warnings
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import assume, example, given, settings
from tiny_tokenizers import hard_texts, put, spelled_alike, spm

from triform.files.errors import FileError
from triform.text.build_tokenizer import build_byte_level
from triform.text.panic_guard import TokenizerError
from triform.text.sentencepiece import PieceModel, build_from_pieces, parse_llama2c, parse_pieces
from triform.text.tokenizer import Tokenizer

CLASSES = {
    "gpt2": "GPT2Tokenizer",
    "qwen2": "Qwen2Tokenizer",
    "roberta": "RobertaTokenizer",
    "bert": "BertTokenizer",
    "cased": "BertTokenizer",
}
FEW, MANY = settings(max_examples=200, deadline=None), settings(max_examples=4000, deadline=None)
SIZES = [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.slow)]


def load(make: object, folder: Path) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice to install more packages
        return make.from_pretrained(folder)  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", SIZES)
def test_built_as_the_reference_builds(
    size: settings, tiny: dict[str, Tokenizer], folders: dict[str, Path], reference: ModuleType
) -> None:
    both = {name: (tiny[name], load(getattr(reference, kind), folders[name])) for name, kind in CLASSES.items()}
    for name, (ours, theirs) in both.items():
        assert len(theirs) == ours.vocab
        for role in ("pad", "eos", "bos", "unk", "mask", "cls", "sep"):
            assert ours.special.get(role) == getattr(theirs, f"{role}_token"), (name, role)

    @size
    @given(text=hard_texts(), pair=hard_texts())
    def check(text: str, pair: str) -> None:
        assume(pair and "<mask>" not in text + pair)  # the reference takes no empty pair; masks are the next test
        for name, (ours, theirs) in both.items():
            want, got = theirs(text, pair, return_offsets_mapping=True), ours.encode(text, pair=pair)
            assert list(got.ids) == want["input_ids"], name
            assert list(got.offsets) == want["offset_mapping"], name
            assert name != "bert" or list(got.segment_ids) == want["token_type_ids"]
            assert list(ours.encode(text).ids) == theirs(text)["input_ids"], name
            for skip in (True, False):
                want = theirs.decode(got.ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
                assert ours.decode(got.ids, skip_special=skip) == want, name

    check()


def test_how_numbers_are_split(folders: dict[str, Path]) -> None:
    vocab = json.loads((folders["gpt2"] / "vocab.json").read_text())
    every = vocab | {"123": 900, "45": 901, "12345": 902, "12": 903}
    merges = [("1", "2"), ("12", "3"), ("4", "5"), ("123", "45")]
    spelled = {
        split: build_byte_level(every, merges=merges, split=split).encode("a12345").tokens
        for split in ("gpt2", "llama3", "qwen2", "smollm")
    }
    assert spelled == {
        "gpt2": ["a", "12345"],
        "llama3": ["a", "123", "45"],
        "qwen2": ["a", "1", "2", "3", "4", "5"],
        "smollm": ["a", "1", "2", "3", "4", "5"],
    }
    # Llama 3 takes a whole word that has a token, even without merges that lead to it.
    assert build_byte_level(every | {"xyz": 904}, merges=[], split="llama3").encode("xyz").tokens == ["xyz"]


def test_roberta_masks_take_the_space_before_them(tiny: dict[str, Tokenizer]) -> None:
    """As in the released tokenizer.json; the reference forgets it when it builds from vocab.json and merges.txt."""
    roberta = tiny["roberta"]
    assert [roberta.token_of(id) for id in roberta.encode("a <mask> a", special=False).ids] == ["a", "<mask>", "Ġa"]


def test_the_reference_loads_what_we_save(tiny: dict[str, Tokenizer], reference: ModuleType, tmp_path: Path) -> None:
    both = {}
    for name, ours in tiny.items():
        ours.save(tmp_path / name)
        theirs = load(reference.AutoTokenizer, tmp_path / name)
        assert len(theirs) == ours.vocab
        assert {f"{role}_token": token for role, token in ours.special.items()} == theirs.special_tokens_map
        both[name] = (ours, theirs)

    @settings(max_examples=100, deadline=None)
    @given(text=hard_texts())
    def check(text: str) -> None:
        for name, (ours, theirs) in both.items():
            if name != "marian" or spelled_alike(text):
                got = ours.encode(text).ids
                assert list(got) == theirs(text)["input_ids"], name
                assert ours.decode(got).strip() == theirs.decode(got, skip_special_tokens=True).strip(), name

    check()


# --- SentencePiece ------------------------------------------------------------------------------------------------

MODELS = {
    "llama": {"model_type": "bpe", "vocab_size": 500, "byte_fallback": True, "normalization_rule_name": "identity",
              "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True, "split_digits": True},
    "t5": {"model_type": "unigram", "vocab_size": 250, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "plain bpe": {"model_type": "bpe", "vocab_size": 300},
    "unigram with bytes": {"model_type": "unigram", "vocab_size": 500, "byte_fallback": True,
                           "normalization_rule_name": "nfkc_cf", "remove_extra_whitespaces": False},
    "no prefix, own symbols": {"model_type": "unigram", "vocab_size": 250, "add_dummy_prefix": False,
                               "user_defined_symbols": ["<sep>", "@@"]},
    "words crossed": {"model_type": "unigram", "vocab_size": 250, "split_by_whitespace": False},
}  # fmt: skip


def loses_extensions(text: str, model: PieceModel) -> bool:
    """The library normalises clusters of characters as a whole: of a letter that changes ("A" to "a"), what extends it
    (a variation selector, a tag) is dropped; SentencePiece keeps it. The reference has the same library."""
    return bool(model.charsmap) and any(unicodedata.category(char) in ("Mn", "Me", "Mc", "Cf") for char in text)


@pytest.mark.parametrize("size", SIZES)
def test_pieces_are_those_of_sentencepiece(size: settings) -> None:
    import sentencepiece

    each = {}
    for name, options in MODELS.items():
        data = spm(**options)
        model, theirs = parse_pieces(data, what=name), sentencepiece.SentencePieceProcessor(model_proto=data)
        ids = range(len(theirs))
        assert [piece.text for piece in model.pieces] == [theirs.id_to_piece(id) for id in ids]
        assert [piece.score for piece in model.pieces] == [theirs.get_score(id) for id in ids]
        roles = {"unk": theirs.unk_id(), "bos": theirs.bos_id(), "eos": theirs.eos_id(), "pad": theirs.pad_id()}
        assert model.special == {role: theirs.id_to_piece(id) for role, id in roles.items() if id >= 0}
        each[name] = (build_from_pieces(model, what=name), theirs, model)

    @size
    @given(text=hard_texts().filter(lambda text: "<" not in text))
    @example(text=" a  ▁b \u2581 ")
    def check(text: str) -> None:
        for name, (ours, theirs, model) in each.items():
            if loses_extensions(text, model):
                continue
            got, want = ours.encode(text).ids, theirs.encode(text)
            if got != want:  # a tie: the library adds in float64, SentencePiece in float32
                assert not model.bpe, name
                assert not spelled_alike(text), name
                scores = [sum(model.pieces[id].score for id in ids) for ids in (got, want)]
                assert math.isclose(*scores, rel_tol=1e-6), name
            elif theirs.unk_id() not in want:  # which SentencePiece writes as ⁇
                assert ours.decode(got) == theirs.decode(want), name

    check()


def test_marian_spells_with_one_side_and_numbers_by_the_common_list(
    tiny: dict[str, Tokenizer], folders: dict[str, Path], reference: ModuleType
) -> None:
    ours, theirs = tiny["marian"], load(reference.MarianTokenizer, folders["marian"])
    apart = []

    @settings(max_examples=200, deadline=None)
    @given(text=hard_texts())
    @example(text="know¡hola!")  # two sides with other pieces
    def check(text: str) -> None:
        assume(spelled_alike(text))
        got = ours.encode(text)
        assert list(got.ids) == theirs(text)["input_ids"]
        target = ours.target.encode(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert list(target.ids) == theirs(text_target=text)["input_ids"]
        apart.append(got.ids != target.ids)
        assert ours.target.decode(target.ids).strip() == theirs.decode(target.ids, skip_special_tokens=True)

    check()
    assert any(apart)  # or the two sides were not told apart
    assert ours.encode(">>deu<< cat").ids[0] == ours.id_of(">>deu<<")
    assert ours.target.target is ours.target


def test_llama_begins_and_t5_ends(tiny: dict[str, Tokenizer], folders: dict[str, Path], tmp_path: Path) -> None:
    assert tiny["llama"].encode("").ids == (tiny["llama"].bos,)
    assert tiny["t5"].encode("").ids == (tiny["t5"].eos,)
    config = {"add_bos_token": False, "add_eos_token": True}
    other = put(
        tmp_path, tokenizer__model=(folders["llama"] / "tokenizer.model").read_bytes(), tokenizer_config__json=config
    )
    assert Tokenizer.read(other).encode("").ids == (tiny["llama"].eos,)


def test_the_tokenizer_of_llama2c(shared: Path) -> None:
    data = (shared / "fixture-stories260K/tok512.bin").read_bytes()
    model = parse_llama2c(data, what="tok512.bin")
    core = build_from_pieces(model, what="tok512.bin")
    assert len(model.pieces) == 512
    assert model.special == {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}
    assert core.encode("Once upon a time").ids == [403, 407, 261, 378]
    assert core.decode(core.encode("Lily saw 🙂 and a\nbird.").ids) == "Lily saw 🙂 and a\nbird."
    for size in (0, 3, 100, len(data) - 1):
        with pytest.raises(TokenizerError, match=r"not a tokenizer of llama2\.c"):
            parse_llama2c(data[:size], what="tok512.bin")


def write_llama2c(pieces: list[str]) -> bytes:
    data = [struct.pack("<fI", -float(at), len(piece.encode())) + piece.encode() for at, piece in enumerate(pieces)]
    return struct.pack("<I", 8) + b"".join(data)


def test_an_older_tokenizer_of_llama2c_has_bytes_as_characters() -> None:
    """Then a letter stands twice, as a byte and as a piece; the piece is what a text is cut into."""
    letters = [" ", *"Lilysaw", "ä", "é", "sa", "saw", " saw"]
    heads = ["<unk>", "\n<s>\n", "\n</s>\n"]
    new = [*heads, *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    old = [*heads, *map(chr, range(256)), *letters]
    models = [parse_llama2c(write_llama2c(pieces), what="t.bin") for pieces in (new, old)]
    assert models[0] == models[1]
    assert sum(old.count(piece) - 1 for piece in set(old)) == 10  # pieces that stand twice in the file
    core = build_from_pieces(models[1], what="t.bin")
    ids = core.encode("saw é🙂").ids
    assert [core.id_to_token(at) for at in ids][:2] == ["▁saw", "▁"]
    assert ids[2:] == [3 + 256 + letters.index("é"), *(3 + byte for byte in "🙂".encode())]
    for text in ("Lily saw 🙂 and\nä", "A", "\x80ÿ"):
        assert core.decode(core.encode(text).ids) == text


# --- real vocabularies, old files ---------------------------------------------------------------------------------


def test_gpt2_as_released(shared: Path) -> None:
    gpt2 = Tokenizer.read(shared / "fixture-tokenizers/gpt2")
    assert gpt2.vocab == 50_257
    assert gpt2.eos == 50_256
    assert gpt2.encode("Hello world, it's 2024!").ids == (15496, 995, 11, 340, 338, 48609, 0)
    assert gpt2.encode("naïve 中文🙂<|endoftext|>").ids == (2616, 38776, 220, 40792, 23877, 229, 8582, 25081, 50256)


def test_special_tokens_in_both_generations_of_files(tiny: dict[str, Tokenizer], tmp_path: Path) -> None:
    tiny["gpt2"].save(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    new = tiny["gpt2"].vocab
    old = put(
        tmp_path,
        special_tokens_map__json={
            "eos_token": {"content": "<end>", "lstrip": False},
            "bos_token": "<|endoftext|>",
            "additional_special_tokens": ["<z>"],
        },
        added_tokens__json={"<end>": new, "<x>": new + 1, "<z>": new + 2},
    )
    read = Tokenizer.read(old)
    assert (read.eos, read.bos, read.unk, read.vocab) == (new, 0, None, new + 3)
    assert read.special_ids == {0, new, new + 2}
    recent = put(
        tmp_path,
        tokenizer_config__json={
            "eos_token": {"__type": "AddedToken", "content": "<end>"},
            "bos_token": None,
            "additional_special_tokens": ["<y>"],
            "added_tokens_decoder": {str(new): {"content": "<end>", "special": True}},
        },
    )
    read = Tokenizer.read(recent)
    assert (read.eos, read.bos) == (new, None)  # the config is asked first, and null is an answer
    assert read.id_of("<y>") == new + 3
    assert read.decode(read.encode("a<y><end><x>").ids) == "a<x>"


def test_an_added_token_must_get_its_id(tiny: dict[str, Tokenizer], tmp_path: Path) -> None:
    tiny["gpt2"].save(tmp_path)
    put(tmp_path, added_tokens__json={"<x>": tiny["gpt2"].vocab + 5})
    with pytest.raises(TokenizerError, match="'<x>' should have id 425, but the vocabulary gives it 420"):
        Tokenizer.read(tmp_path)


def test_config_says_which_ends_to_add(tiny: dict[str, Tokenizer], tmp_path: Path) -> None:
    tiny["llama"].save(tmp_path)
    config = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": False, "add_eos_token": True}
    assert Tokenizer.read(put(tmp_path, tokenizer_config__json=config)).encode("").ids == (tiny["llama"].eos,)


# --- refusals -----------------------------------------------------------------------------------------------------


def test_a_folder_without_a_tokenizer_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"the folder has no tokenizer: looked for tokenizer.json, .* vocab.txt"):
        Tokenizer.read(tmp_path)
    with pytest.raises(FileError, match="is not a folder"):
        Tokenizer.read(tmp_path / "nowhere")


def test_an_unknown_class_is_not_guessed(folders: dict[str, Path], tmp_path: Path) -> None:
    files = {path.name.replace(".", "__"): path.read_bytes() for path in folders["gpt2"].iterdir()}
    put(tmp_path, **files, tokenizer_config__json={"tokenizer_class": "CLIPTokenizer"})
    with pytest.raises(TokenizerError, match=r"reading vocab\.json \+ merges\.txt as a CLIPTokenizer is not supported"):
        Tokenizer.read(tmp_path)


def test_separate_vocabularies_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    files = {path.name.replace(".", "__"): path.read_bytes() for path in folders["marian"].iterdir()}
    with pytest.raises(TokenizerError, match="separate_vocabs"):
        Tokenizer.read(put(tmp_path, **files, tokenizer_config__json={"separate_vocabs": True}))
