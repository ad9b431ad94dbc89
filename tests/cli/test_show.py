"""The small commands: show, rm, help, ps, completion, and what a chat can set."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from served_models import caller, encoder

from triform.cli import chat, main, triform
from triform.serve.running import list_running, note_running
from triform.weights import model_folder, model_store


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out + err


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path / "home"))
    model_folder.write(model_store.models_folder() / "sorter", model=encoder("classify"))
    return tmp_path / "home"


def test_show_tells_what_a_model_is(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model_store.models_folder() / "sorter"
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Sorter\nSorts films.\n")
    code, out = run(capsys, "show", "sorter", "--json")
    told = json.loads(out)
    assert (code, told["licence"], told["form"], told["labels"]) == (0, "apache-2.0", "encoder", ["good", "bad", "so"])
    assert told["card"].startswith("# Sorter")
    assert "classify" in told["tasks"]
    code, out = run(capsys, "show", "sorter")
    assert code == 0
    assert "Sorts films." in out
    assert run(capsys, "show", "bert-base", "--json")[0] == 0
    code, out = run(capsys, "show", "sortre")
    assert code == 2
    assert "sorter" in out


def test_rm_removes_only_what_is_stored(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own"
    shutil.copytree(model_store.models_folder() / "sorter", own)
    code, out = run(capsys, "rm", str(own), "--yes")
    assert code == 2
    assert "a folder of your own" in out
    assert own.is_dir()
    code, out = run(capsys, "rm", "nothing", "--yes")
    assert code == 2
    code, out = run(capsys, "rm", "sorter", "--yes")
    assert code == 0
    assert list(model_store.models_folder().iterdir()) == []


def test_help_is_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "help", "train")[1] == run(capsys, "train", "--help")[1]
    assert run(capsys, "help")[1] == run(capsys, "--help")[1]
    assert run(capsys, "help", "trian")[0] == 2


def test_ps_knows_the_living(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = home / "running"
    assert "no service runs here" in run(capsys, "ps")[1]
    with note_running(folder, address="http://127.0.0.1:8000", models=["a", "b"]):
        (told,) = json.loads(run(capsys, "ps", "--json")[1])
        assert (told["pid"], told["models"]) == (os.getpid(), ["a", "b"])
        (folder / "1.json").write_text(
            (folder / f"{os.getpid()}.json").read_text().replace(str(os.getpid()), "999999999")
        )
        (folder / "2.json").write_text("oops")
        assert len(list_running(folder)) == 1
        assert not (folder / "1.json").exists()
    assert list_running(folder) == []


def test_the_shell_completes_models_tasks_and_files(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    completes = ShellComplete(triform, {}, "triform", "_TRIFORM_COMPLETE")
    assert [item.value for item in completes.get_completions(["classify"], "sor")] == ["sorter"]
    assert [item.value for item in completes.get_completions(["train"], "tran")] == ["translate"]
    assert [item.value for item in completes.get_completions(["train", "classify"], "x")] == ["x"]
    assert "rm" in [item.value for item in completes.get_completions([], "")]
    for shell in ("bash", "zsh", "fish"):
        assert "_TRIFORM_COMPLETE" in run(capsys, "completion", shell)[1]


def test_a_chat_sets_options_and_takes_several_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = chat.Conversation(caller(), name="caller", system=None, chosen={"max_tokens": 3})
    talk.hear("/set temperature 0.5")
    assert talk.settings.temperature == 0.5
    assert talk.settings.max_tokens == 3
    talk.hear("/set temperature")
    assert talk.settings.temperature == 0
    talk.hear("/set")
    assert "max_tokens=3" in capsys.readouterr().out
    for wrong, said in [("/set tmperature 1", "temperature"), ("/set max_tokens x", "whole number")]:
        with pytest.raises(Exception, match=said):
            talk.hear(wrong)
    typed: list[Any] = ['"""one', "two", 'three"""', "a \\", "b", "plain"]
    monkeypatch.setattr("builtins.input", lambda prompt: typed.pop(0))
    assert [chat.read_message() for _ in range(3)] == ["one\ntwo\nthree", "a\nb", "plain"]


def test_history_is_kept_only_after_it_was_turned_on(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    talk = chat.Conversation(caller(), name="caller", system=None, chosen={"max_tokens": 3})
    talk.hear("hi")
    assert not (home / "history.db").exists()
    code, out = run(capsys, "logs")
    assert code == 2
    assert "triform logs --on" in out
    assert run(capsys, "logs", "--on")[0] == 0
    assert (home / "history.db").stat().st_mode & 0o077 == 0
    talk.hear("what 100%?")
    talk.hear("where?")
    said = talk.messages[-1]["content"]
    capsys.readouterr()
    entries = [json.loads(line) for line in run(capsys, "logs", "--json")[1].splitlines()]
    assert [entry["prompt"] for entry in entries] == ["what 100%?", "where?"]
    assert entries[1]["answer"] == said
    found = run(capsys, "logs", "--json", "--find", "100%")[1].splitlines()
    assert len(found) == 1
    (home / "history.db").write_bytes(b"oops" * 100)
    code, out = run(capsys, "logs")
    assert code == 2
    assert "--off deletes it" in out
    assert run(capsys, "logs", "--off")[0] == 0
    assert not (home / "history.db").exists()
