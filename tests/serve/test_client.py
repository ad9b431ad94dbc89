"""`triform … --url`: the same commands, the same answers, from a running service."""

from pathlib import Path

import pytest
from served_process import Process

from triform.cli import main
from triform.errors import TriformError
from triform.serve.client import Client


def said(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    out, err = capsys.readouterr()
    assert stop.value.code in (0, None), err
    return out


TEXT = "the fat cat sat"
COMMANDS = [
    ("translate", "pair", TEXT, "--max-tokens", "6"),
    ("translate", "pair", TEXT, "--max-tokens", "6", "--beams", "2", "--json"),
    ("summarize", "pair", TEXT, "--max-tokens", "6"),
    ("classify", "classify", TEXT, "--top", "2"),
    ("tag", "tag", TEXT, "a mole", "--json"),
    ("fill", "fill", "the [MASK] sat", "-k", "2", "--json"),
    ("complete", "cat", TEXT, "--max-tokens", "6", "--no-stream"),
    ("complete", "cat", TEXT, "--max-tokens", "6", "--n", "2", "--seed", "3", "--temperature", "1"),
    ("chat", "cat", TEXT, "--max-tokens", "6"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:1] + command[3:]))
def test_here_and_there_say_the_same(
    process: Process, folders: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    verb, model, *rest = command
    here = said(capsys, verb, str(folders / model), *rest)
    there = said(capsys, verb, model, *rest, "--url", process.url)
    assert here.strip()
    assert there == here


def test_answers_and_passages(
    process: Process, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "context").write_text("the fat ginger cat sat on a mat")
    asked = ("who sat?", "--context", str(tmp_path / "context"))
    here = said(capsys, "answer", str(folders / "answer"), *asked)
    assert said(capsys, "answer", "answer", *asked, "--url", process.url) == here
    here = said(capsys, "search", str(folders / "index"), "mole", "-k", "2", "--model", str(folders / "embed"))
    assert said(capsys, "search", "texts", "mole", "-k", "2", "--model", "embed", "--url", process.url) == here


def test_many_texts_are_asked_in_several_requests(process: Process) -> None:
    texts = [f"cat {number}" for number in range(150)]
    assert len(list(Client(process.url).run("tag", texts, model="tag"))) == 150
    assert len(list(Client(process.url + "/v1/").run("embed", texts[:3], model="embed"))) == 3


@pytest.mark.parametrize(
    ("url", "model", "says"),
    [
        ("http://127.0.0.1:9", "cat", "does not answer"),
        ("localhost:8000", "cat", "no address of a service"),
        ("there", "gpt-5", "is not served here"),
        ("there", "tag", "cannot complete"),
    ],
)
def test_what_goes_wrong_is_one_sentence(process: Process, url: str, model: str, says: str) -> None:
    with pytest.raises(TriformError, match=says):
        list(Client(process.url if url == "there" else url).pieces("/v1/completions", {"model": model, "prompt": "a"}))
