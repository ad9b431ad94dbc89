"""`Model.save` takes the place of nothing but the model's own folder, unless told to; the command has the same rule."""

from pathlib import Path

import pytest
from tiny_models import EVERY

import triform
from triform.cli import main
from triform.errors import TriformError


def test_another_model_is_not_replaced_in_silence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = triform.build(EVERY["gpt2"], seed=1), triform.build(EVERY["gpt2"], seed=2)
    first.save(tmp_path / "model")
    before = (tmp_path / "model" / "model.safetensors").read_bytes()
    with pytest.raises(TriformError, match=r"already holds something.*overwrite=True"):
        second.save(tmp_path / "model")
    with pytest.raises(SystemExit) as ended:
        main(["export", "tiny-decoder", "--out", str(tmp_path / "model")])
    assert ended.value.code == 2
    assert "already holds something" in capsys.readouterr().err
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before
    second.save(tmp_path / "model", overwrite=True)
    assert (tmp_path / "model" / "model.safetensors").read_bytes() != before


def test_a_model_may_be_saved_again_where_it_came_from(tmp_path: Path) -> None:
    model = triform.build(EVERY["gpt2"])
    model.save(tmp_path / "model")
    model.save(tmp_path / "model")
    loaded = triform.load(tmp_path / "model")
    loaded.save(tmp_path / "other" / ".." / "model")
    loaded.save(tmp_path / "copy")
    with pytest.raises(TriformError, match="already holds something"):
        model.save(tmp_path / "copy")


def test_an_empty_folder_is_free_and_a_file_is_not(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    triform.build(EVERY["gpt2"]).save(tmp_path / "empty")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(TriformError, match="already holds something"):
        triform.build(EVERY["gpt2"]).save(tmp_path / "file")
