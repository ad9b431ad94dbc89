"""Indexes in the plan: their size is counted, a wrong folder and another model's index are refused by `--check`."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from triform.cli import main
from triform.files import manifest
from triform.files.safe_folder import SafeFolder
from triform.serve.worker.served_indexes import describe_index
from triform.tasks.index_folder import NOTE, count_scan_bytes, read_note


def checked(*given: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["serve", *given, "--check", "--json"])
    return int(stop.value.code or 0)


def test_an_index_is_a_row_of_the_plan(
    folders: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    model, given = str(folders / "embed"), ("--index", f"texts={folders / 'index'}")
    assert checked(model) == 0
    without = json.loads(capsys.readouterr().out)
    assert checked(model, *given) == 0
    plan = json.loads(capsys.readouterr().out)
    (held,) = plan["indexes"]
    assert held["index"] == "texts"
    names = [path for path in (folders / "index").iterdir() if path.name != manifest.NAME]
    assert held["files"] == sum(path.stat().st_size for path in names)
    assert held["scan"] == count_scan_bytes(read_note(SafeFolder(folders / "index")).width)
    assert plan["total"] - without["total"] == held["files"] + held["scan"]
    with pytest.raises(SystemExit):
        main(["serve", model, *given, "--check"])
    assert "index texts" in capsys.readouterr().out


def test_a_folder_that_is_no_index(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(str(folders / "embed"), "--index", f"texts={folders / 'cat'}") == 2
    assert "has no index" in capsys.readouterr().err


def test_an_index_that_lacks_a_file(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(folders / "index", tmp_path / "index")
    with (tmp_path / "index" / "000001.safetensors").open("ab") as vectors:
        vectors.write(b"0")
    assert checked(str(folders / "embed"), "--index", f"texts={tmp_path / 'index'}") == 2
    assert "damaged: 000001.safetensors" in capsys.readouterr().err


@pytest.mark.parametrize("other", ["cat", "classify"])
def test_an_index_of_another_model(folders: Path, other: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One that cannot search, and none that could."""
    assert checked(str(folders / other), "--index", f"texts={folders / 'index'}") == 2
    assert "which is not served" in capsys.readouterr().err


def test_an_index_of_other_numbers(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same shape, the same name, another model."""
    shutil.copytree(folders / "index", tmp_path / "index")
    note = tmp_path / "index" / NOTE
    told = json.loads(note.read_bytes()) | {"numbers": "0" * 64}
    note.write_bytes(msgspec.json.encode(told))
    manifest.write(tmp_path / "index")
    assert describe_index("texts", tmp_path / "index").note.numbers == "0" * 64
    assert checked(str(folders / "embed"), "--index", f"texts={tmp_path / 'index'}") == 2
    assert "which is not served" in capsys.readouterr().err
