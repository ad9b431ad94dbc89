"""Hostile and damaged tokenizer files: our error every time, never a crash, never memory without bound."""

import copy
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_tokenizers import put

from triform.errors import TriformError
from triform.files.atomic_file import write_file
from triform.files.errors import FileError
from triform.files.safe_folder import read_inside
from triform.text import pattern_checks
from triform.text.build_tokenizer import build_byte_level
from triform.text.panic_guard import TokenizerError, guard_library
from triform.text.sentencepiece import parse_pieces
from triform.text.tokenizer import Tokenizer
from triform.text.tokenizer_limits import load_tokenizer_json

BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
TEXT = "The fat ginger cat, café 中 🙂 <mask> ab\n"


def unigram(*rows: list[object], unk: int | None = 0) -> dict[str, Any]:
    return {"type": "Unigram", "unk_id": unk, "vocab": list(rows)}


def added(content: str, id: int) -> dict[str, object]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id, "content": content, "special": True, **flags}


def use(folder: Path) -> None:
    """Reads a folder and does with it all that can be done."""
    tokenizer = Tokenizer.read(folder)
    ids = [*tokenizer.encode(TEXT, pair="b").ids, *tokenizer.ids_many([TEXT, "ab"])[0], 0, 1, 2]
    tokenizer.decode(ids)
    stream = tokenizer.stream(skip_special=False)
    "".join([*(stream.push(id) for id in ids), stream.finish()])
    tokenizer.target.encode(TEXT)
    tokenizer.count_unknown(ids)
    assert tokenizer.vocab >= 0
    tokenizer.save(folder)


# Each of these panics, or fails, inside the library: some while reading, some only in use.
BREAKERS: dict[str, dict[str, Any]] = {
    "cut into nothing": {"decoder": {"type": "Strip", "content": "a", "start": 1, "stop": 1}},
    "prefix longer than tokens": {"model": BPE | {"continuing_subword_prefix": "éééé"}},
    "unknown without a token": {"model": BPE | {"unk_token": "<u>"}},
    "word pieces without unk": {"model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {"a": 0},
                                          "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}},
    "unk out of range": {"model": unigram(["a", 0.0], unk=7)},
    "no unk": {"model": unigram(["a", 0.0], unk=None)},
    "empty": {"model": unigram()},
    "charsmap too short": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    "charsmap of nonsense": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "BAAAAP////8AAAA="}},
    "regex without end": {"normalizer": {"type": "Replace", "pattern": {"Regex": "(a|aa)+$"}, "content": "x"}},
    "regex too deep": {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(" * 9999 + ")" * 9999},
                                         "behavior": "Isolated", "invert": False}},
    "frame of a missing token": {"post_processor": {"type": "TemplateProcessing", "pair": [], "special_tokens": {},
                                                    "single": [{"SpecialToken": {"id": "X", "type_id": 0}}]}},
    "length zero": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "merge out of nowhere": {"model": BPE | {"merges": ["x y"]}},
    "unknown kind": {"model": {"type": "Trie", "vocab": {}}},
    "id of an added token": {"added_tokens": [added("<x>", 99)]},
    "too many values": {"post_processor": {"type": "TemplateProcessing", "special_tokens": {}, "pair": [],
                                           "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 2000}},
    "growth": {"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}] * 9}},
    "growth by prefix": {"normalizer": {"type": "Prepend", "prepend": "a" * 10_000}},
    "pieces by the megabyte": {"model": unigram(*([f"{n:05}" * 200, 0.0] for n in range(5000)))},
    "added by the megabyte": {"added_tokens": [added(f"<{n:05}>" * 100, n + 3) for n in range(1000)]},
    "words without end": {"model": {"type": "WordPiece", "unk_token": "a", "vocab": {"a": 0},
                                    "continuing_subword_prefix": "##", "max_input_chars_per_word": 10**9}},
}  # fmt: skip


def try_all(folder: Path, text: str) -> None:
    tokenizer = Tokenizer.read(folder)
    tokenizer.decode([0])
    tokenizer.encode(text)


@pytest.mark.parametrize("name", BREAKERS)
def test_what_breaks_the_library_is_our_error(name: str, tmp_path: Path) -> None:
    text = "a" * 60 + "zb" if name.startswith("regex") else "zab"
    put(tmp_path, tokenizer__json={"version": "1.0", "model": BPE} | BREAKERS[name])
    with pytest.raises(TriformError) as found:
        try_all(tmp_path, text)
    assert "\n" not in str(found.value)


def test_the_plain_file_is_fine(tmp_path: Path) -> None:
    """The negative control of the table above."""
    swaps = [{"type": "Replace", "pattern": {"String": sign}, "content": "b"} for sign in "bcdefghijklmnopqrstuvw"]
    normalizer = {"type": "Sequence", "normalizers": swaps}
    put(tmp_path, tokenizer__json={"version": "1.0", "model": BPE, "normalizer": normalizer})
    tokenizer = Tokenizer.read(tmp_path)
    assert tokenizer.decode(tokenizer.encode("aw").ids) == "ab"


def test_a_panic_derives_from_base_exception_and_is_caught_all_the_same() -> None:
    from tokenizers import decoders

    with pytest.raises(BaseException) as raw:  # noqa: PT011
        decoders.Strip("a", 1, 1).decode(["a"])
    assert not isinstance(raw.value, Exception)
    with pytest.raises(TokenizerError, match="decoding failed"), guard_library("decoding"):
        decoders.Strip("a", 1, 1).decode(["a"])


def test_interrupts_are_not_caught() -> None:
    with pytest.raises(KeyboardInterrupt), guard_library("encoding"):
        raise KeyboardInterrupt


NO_JSON = [b"", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"a":' * 50_000]


@pytest.mark.parametrize("data", [*NO_JSON, b"{}", b'{"model": 3}', b'{"model": {"vocab": 3}}'])
def test_what_is_no_tokenizer_json(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(TriformError):
        Tokenizer.read(put(tmp_path, tokenizer__json=data))


@pytest.mark.parametrize("data", [*NO_JSON, b'{"eos_token": [3]}', b'{"added_tokens_decoder": {"x": {}}}'])
def test_what_is_no_config(data: bytes, tmp_path: Path) -> None:
    for name in ("tokenizer_config__json", "special_tokens_map__json", "added_tokens__json"):
        with pytest.raises(TriformError):
            Tokenizer.read(put(tmp_path / name, tokenizer__json={"model": BPE}, **{name: data}))


# --- mutation -----------------------------------------------------------------------------------------------------

VALUES = [
    None,
    "",
    "a",
    -1,
    0,
    3,
    2**31,
    2**32,
    2**64,
    1e308,
    True,
    [],
    {},
    [[]],
    ["a", 1],
    {"type": "BPE"},
    "(" * 50,
    "\\p{L}+",
    "é" * 300,
]


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a piece of JSON, the vocabulary thinned out."""
    if isinstance(value, dict):
        keys = list(value)[:12]
    elif isinstance(value, list):
        keys = list(range(len(value)))[:6]
    else:
        keys = []
    return [path, *(deeper for key in keys for deeper in paths(value[key], (*path, key)))]


def mutate_json(document: Any, data: st.DataObject) -> bytes:
    document = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 3))):
        places = [path for path in paths(document) if path]
        if not places:
            break
        *way, last = data.draw(st.sampled_from(places))
        place = document
        for key in way:
            place = place[key]
        if data.draw(st.booleans()):
            place[last] = copy.deepcopy(data.draw(st.sampled_from(VALUES)))
        else:
            del place[last]
    return json.dumps(document).encode()


def mutate_bytes(content: bytes, data: st.DataObject) -> bytes:
    broken = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(broken)))
        kind = data.draw(st.sampled_from(["flip", "cut", "insert", "drop"]))
        if kind == "flip" and at < len(broken):
            broken[at] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "cut":
            del broken[max(at, 1) :]
        elif kind == "insert":
            broken[at:at] = data.draw(st.binary(max_size=6))
        else:
            del broken[at : at + data.draw(st.integers(1, 40))]
    return bytes(broken)


FEW = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
SIZES = [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.slow)]


@pytest.mark.parametrize("size", SIZES)
def test_damaged_folders(size: settings, folders: dict[str, Path], tiny: dict[str, Tokenizer], tmp_path: Path) -> None:
    whole = {name: {path.name: path.read_bytes() for path in folder.iterdir()} for name, folder in folders.items()}
    for name, tokenizer in tiny.items():
        tokenizer.save(tmp_path / name)
        whole[f"{name}, saved"] = {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
    outcomes = {"read": 0, "refused": 0}
    place = tmp_path / "damaged"
    place.mkdir()

    @size
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        files = whole[data.draw(st.sampled_from(sorted(whole)))]
        chosen = data.draw(st.sampled_from(sorted(files)))
        structured = chosen.endswith(".json") and data.draw(st.booleans())
        broken = mutate_json(json.loads(files[chosen]), data) if structured else mutate_bytes(files[chosen], data)
        for path in place.iterdir():
            path.unlink()
        for name, content in (files | {chosen: broken}).items():
            (place / name).write_bytes(content)
        try:
            use(place)
            outcomes["read"] += 1
        except TriformError:
            outcomes["refused"] += 1

    check()
    assert min(outcomes.values()) > 0  # some damage is harmless, some is not


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_sentencepiece_model_or_an_error(data: bytes) -> None:
    with suppress(TokenizerError):
        parse_pieces(data, what="x.model")


# --- files --------------------------------------------------------------------------------------------------------


def test_links_that_lead_out_are_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "model", tmp_path / "secret.json"
    put(inside, real__json="{}")
    outside.write_text("{}")
    (inside / "tokenizer.json").symlink_to(outside)
    with pytest.raises(TriformError, match="leads out of"):
        Tokenizer.read(inside)
    (inside / "tokenizer.json").unlink()
    (inside / "tokenizer.json").symlink_to("real.json")
    assert read_inside(inside, name="tokenizer.json", limit=10) == b"{}"
    with pytest.raises(TriformError, match="leads out"):
        read_inside(inside, name="../secret.json", limit=10)
    (inside / "dangling.json").symlink_to("nowhere")
    with pytest.raises(FileError, match="cannot read"):
        read_inside(inside, name="dangling.json", limit=10)


def test_only_regular_files_within_their_limit(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "long").write_bytes(b"12345")
    for name in ("pipe", "folder"):
        with pytest.raises(FileError, match="not a regular file"):
            read_inside(tmp_path, name=name, limit=10)
    with pytest.raises(FileError, match="larger than the 4 bytes"):
        read_inside(tmp_path, name="long", limit=4)
    assert read_inside(tmp_path, name="long", limit=5) == b"12345"
    assert read_inside(tmp_path, name="absent", limit=5) is None


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "a.json"
    write_file(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match=r"cannot write .* No space left"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


def test_checks_hold_without_asserts(tmp_path: Path) -> None:
    """`python -O` removes asserts; nothing here may depend on one."""
    names = ["growth", "unk out of range", "id of an added token", "pieces by the megabyte", "cut into nothing"]
    for name in names:
        put(tmp_path / name, tokenizer__json={"version": "1.0", "model": BPE} | BREAKERS[name])
    code = """if 1:
        import sys
        from triform.errors import TriformError
        from triform.text.tokenizer import Tokenizer
        assert False, "not run with -O"
        for folder in sys.argv[1:]:
            try:
                Tokenizer.read(folder).decode([0])
            except TriformError:
                print("refused")
    """
    command = [sys.executable, "-O", "-c", code, *(str(tmp_path / name) for name in names)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["refused"] * len(names)


def test_the_file_limit_is_far_below_memory() -> None:
    with pytest.raises(TriformError):
        load_tokenizer_json(b'{"model":{"vocab":' + b"[" * 1_000_000, what="tokenizer.json")


# --- patterns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["(a+)+$", "(x|xx)+y", r"(\w+\s?)+!", "(q*)*z"])
def test_a_pattern_that_backtracks_without_end_is_refused(tmp_path: Path, pattern: str) -> None:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    steps = {"type": "Sequence", "pretokenizers": [split, {"type": "Digits", "individual_digits": True}]}
    with pytest.raises(TokenizerError, match=r"tokenizer.json: the pattern .* takes more than"):
        Tokenizer.read(put(tmp_path, tokenizer__json={"model": BPE, "pre_tokenizer": steps}))


@pytest.mark.parametrize("pattern", [r" ?[^(\s|[.,!?…。，、।۔،])]+", r"[0-9][0-9][0-9]", r"\p{N}{1,3}|[一-龥]+"])
def test_patterns_of_released_files_are_taken(tmp_path: Path, pattern: str) -> None:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    assert Tokenizer.read(put(tmp_path, tokenizer__json={"model": BPE, "pre_tokenizer": split})).encode("ab").ids


def test_a_known_pattern_needs_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_checks, "is_fast", lambda pattern: pytest.fail(f"{pattern} is tried"))
    for split in ("llama3", "qwen2"):
        core = build_byte_level({"a": 0}, merges=[], split=split)  # type: ignore[arg-type]
        load_tokenizer_json(core.to_str().encode(), what="tokenizer.json")


def test_a_value_that_nobody_asked_for_is_not_utf_8(tiny: dict[str, Tokenizer], tmp_path: Path) -> None:
    """The parser skips it; the search for keys given twice does not, and must not fail."""
    tiny["bert"].save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_bytes(b'{"strange": "\x80"}')
    with pytest.raises(TriformError, match=r"tokenizer_config\.json is damaged"):
        Tokenizer.read(tmp_path)
