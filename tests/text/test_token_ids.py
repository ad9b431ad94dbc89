"""A folder's tokenizer is compared with its model when the folder is opened, not at the first request."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny_folders import edit

from triform.core.initial_weights import build_network
from triform.errors import TriformError
from triform.families import bert, gpt2
from triform.model import Model
from triform.text import tokenizer_limits
from triform.text.train_tokenizer import train_tokenizer
from triform.weights.model_folder import read, write

TEXTS = ["the fat ginger cat sat on a mat", "a mole digs a hole"]
SIZES: dict[str, Any] = {"width": 8, "layers": 1, "heads": 2, "context": 16}
FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("originals")
    for name, kind, family in (("decoder", "bpe", gpt2), ("encoder", "wordpiece", bert)):
        tokenizer = train_tokenizer(TEXTS, kind=kind, vocab=300)  # type: ignore[arg-type]
        spec = family(vocab=tokenizer.vocab, **SIZES)
        write(root / name, model=Model(spec, build_network(spec, seed=1), tokenizer))
        (root / name / "manifest.json").unlink()
    return root


@pytest.fixture
def folder(originals: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals / "decoder", tmp_path / "model"))


def rows_of(folder: Path) -> int:
    return int(json.loads((folder / "config.json").read_text())["vocab_size"])


@pytest.mark.parametrize("id", [0, 7, 2**31, 2**32 - 1])
def test_a_word_beyond_the_rows(folder: Path, id: int) -> None:
    id = max(id, rows_of(folder))
    edit(folder, lambda file: file["model"]["vocab"].update(zzzzq=id), name="tokenizer.json")
    with pytest.raises(TriformError, match=f"tokenizer.json: token 'zzzzq' has the id {id}, .* {rows_of(folder)} rows"):
        read(folder)


def test_far_too_many_words_are_refused_before_a_tokenizer_is_built(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {f'w{n}\\"': n + 300 for n in range(3000)}
    edit(folder, lambda file: file["model"]["vocab"].update(words), name="tokenizer.json")
    monkeypatch.setattr(tokenizer_limits, "tokenizers", None)
    with pytest.raises(
        TriformError, match=rf"tokenizer.json has [\d,]+ words or more, the model has {rows_of(folder)}"
    ):
        read(folder)


@pytest.mark.parametrize("id", [0, 10**9])
def test_a_post_processor_that_puts_a_strange_id_around_every_text(folder: Path, id: int) -> None:
    id = max(id, rows_of(folder))
    known = {"X": {"id": "X", "ids": [id], "tokens": ["X"]}}
    single = [{"SpecialToken": {"id": "X", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    frame = {"type": "TemplateProcessing", "pair": [], "special_tokens": known, "single": single}
    edit(folder, lambda file: file.update(post_processor=frame), name="tokenizer.json")
    with pytest.raises(TriformError, match=f"tokenizer.json: token .* has the id {id}"):
        read(folder)


def test_a_post_processor_that_breaks_on_every_text(folder: Path) -> None:
    frame = {"type": "TemplateProcessing", "pair": [], "special_tokens": {},
             "single": [{"SpecialToken": {"id": "X", "type_id": 0}}]}  # fmt: skip
    edit(folder, lambda file: file.update(post_processor=frame), name="tokenizer.json")
    with pytest.raises(TriformError, match=r"tokenizer.json: its post_processor fails on every text: encoding failed"):
        read(folder)


def test_an_added_token_beyond_the_rows_is_refused_only_where_a_text_holds_it(folder: Path) -> None:
    """Released folders have `<pad>` beyond the embedding; it is never put into the network."""
    rows = rows_of(folder)
    pad = {"id": rows, "content": "<extra>", "special": True, **FLAGS}
    edit(folder, lambda file: file["added_tokens"].append(pad), name="tokenizer.json")
    edit(folder, lambda file: file.update(pad_token="<extra>"), name="tokenizer_config.json")
    tokenizer = read(folder).require_tokenizer()
    assert tokenizer.encode("the <extra> cat").ids.count(rows) == 1


def test_a_mask_that_no_row_belongs_to(originals: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(originals / "encoder", tmp_path / "model"))
    edit(folder, lambda file: file.update(mask_token="<hidden>"), name="tokenizer_config.json")
    with pytest.raises(TriformError, match=r"tokenizer_config.json: the mask_token '<hidden>' has the id"):
        read(folder)
