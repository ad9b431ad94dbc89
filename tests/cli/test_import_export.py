"""`triform import` of what it cannot take: one line with the way out, and nothing is written."""

import zipfile
from pathlib import Path

import pytest

from triform.cli import main


def refusal(capsys: pytest.CaptureFixture[str], source: Path, out: Path) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["import", str(source), "--out", str(out)])
    assert ended.value.code == 2
    assert not out.exists()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_a_folder_is_said_to_need_no_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    assert "neither a config.json nor" in refusal(capsys, folder, tmp_path / "out")
    (folder / "model.gguf").write_bytes(b"GGUF")
    assert "give one of its files: model.gguf" in refusal(capsys, folder, tmp_path / "out")
    (folder / "config.json").write_text("{}")
    assert f"use it as it is, `triform check {folder}`" in refusal(capsys, folder, tmp_path / "out")


def test_files_of_other_kinds_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        archive.writestr("model.gguf", b"GGUF")
    files = {
        "model.zip": "is a zip archive",
        "model.gz": "is packed with gzip",
        "page.gguf": "is a web page",
        "pointer.gguf": "is a Git LFS pointer",
        "model.safetensors": "holds weights alone",
    }
    (tmp_path / "model.gz").write_bytes(b"\x1f\x8b\x08")
    (tmp_path / "page.gguf").write_text("<!DOCTYPE html><p>404")
    (tmp_path / "pointer.gguf").write_text("version https://git-lfs.github.com/spec/v1")
    (tmp_path / "model.safetensors").write_bytes(bytes(8))
    for name, trouble in files.items():
        assert f"{name} {trouble}" in refusal(capsys, tmp_path / name, tmp_path / "out")
