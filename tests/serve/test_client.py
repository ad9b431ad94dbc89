"""`triform … --url`: the same commands, the same answers, from a running service."""

import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
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
    ("run", "pair", TEXT),
    ("run", "classify", TEXT, "a mole", "--json"),
    ("run", "taught", TEXT),
    ("run", "cat", TEXT, "a mole"),
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


@pytest.fixture
def openings(tmp_path: Path) -> Path:
    """The third is longer than the model reads, the fourth is empty."""
    lines = tmp_path / "openings.txt"
    lines.write_text("\n".join([TEXT, "a mole digs", "cat " * 300, "", "lions"]) + "\n", encoding="utf-8")
    return lines


@pytest.mark.parametrize(
    ("verb", "model", "rest"),
    [("complete", "cat", ("--max-tokens", "6", "--temperature", "0")), ("run", "cat", ()), ("tag", "tag", ())],
)
def test_files_here_and_there(
    process: Process,
    folders: Path,
    openings: Path,
    capsys: pytest.CaptureFixture[str],
    verb: str,
    model: str,
    rest: Any,
) -> None:
    """Line n belongs to row n; what cannot be answered leaves its line empty, and the rest goes on."""
    for place, more in (("here", (str(folders / model),)), ("there", (model, "--url", process.url))):
        said(capsys, verb, *more, *rest, "--file", str(openings), "--out", str(openings.with_name(place)))
    here, there = (openings.with_name(place).read_text(encoding="utf-8") for place in ("here", "there"))
    assert there == here
    assert [bool(line) for line in here.splitlines()] == [True, True, verb == "tag", False, True]


def test_vectors_in_one_file(
    process: Process, folders: Path, openings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for place, more in (("here", (str(folders / "embed"),)), ("there", ("embed", "--url", process.url))):
        out = openings.with_name(f"{place}.safetensors")
        said(capsys, "embed", *more, "--file", str(openings), "--out", str(out))
        found.append(load_file(out)["vectors"])
    torch.testing.assert_close(*found, equal_nan=True)
    assert found[0].isnan().all(1).tolist() == [False, False, False, True, False]


@pytest.mark.parametrize("option", [("--n", "2"), ("--beams", "2"), ("--stats",)])
def test_one_answer_a_line(folders: Path, openings: Path, option: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["complete", str(folders / "cat"), "--file", str(openings), *option])
    assert stop.value.code == 2


def test_an_answer_that_breaks_off_is_said() -> None:
    """A service that ends in mid-answer, whole or streamed."""
    for head, ask in (
        (b"content-length: 100\r\n\r\n{", lambda client: client.post("/v1/tokenize", {})),
        (b'\r\ndata: {"choices": []}\n\n', lambda client: list(client.pieces("/v1/completions", {}))),
    ):
        with socket.create_server(("127.0.0.1", 0)) as server:

            def answer(server: socket.socket = server, head: bytes = head) -> None:
                asking, _ = server.accept()
                with asking:
                    while b"\r\n\r\n" not in asking.recv(65536):
                        pass
                    asking.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\n" + head)

            thread = threading.Thread(target=answer)
            thread.start()
            with pytest.raises(TriformError, match="broke off"):
                ask(Client(f"http://127.0.0.1:{server.getsockname()[1]}"))
            thread.join()


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
        ("there", "tag", "does not support complete"),
    ],
)
def test_what_goes_wrong_is_one_sentence(process: Process, url: str, model: str, says: str) -> None:
    with pytest.raises(TriformError, match=says):
        list(Client(process.url if url == "there" else url).pieces("/v1/completions", {"model": model, "prompt": "a"}))
