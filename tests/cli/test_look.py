"""`triform look` as a person meets it: a file, a picture, JSON, and one clear line for what is wrong."""

import json
from pathlib import Path

import pytest

from triform.cli import main


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["look", *args])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_one_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, _ = run(capsys, "tiny-decoder", "3 14 15", "--out", str(page))
    assert code == 0
    assert "without network" in out
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "head.svg"
    asked = ("tiny-encoder-decoder", "3 14 15", "--target", "0 7", "--plot", "attention", "--layer", "1", "--head", "2")
    code, _, _ = run(capsys, *asked, "--kind", "cross", "--out", str(picture))
    assert code == 0
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    code, out, _ = run(capsys, *asked)
    assert (code, out[:4]) == (0, "<svg")


@pytest.mark.parametrize(
    ("name", "start"), [("head.png", b"\x89PNG"), ("head.svg.png", b"\x89PNG"), ("head.pdf", b"%PDF")]
)
def test_a_picture_is_what_its_name_says(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, start: bytes
) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / name
    assert run(capsys, "tiny-decoder", "3 14", "--plot", "attention", "--head", "0", "--out", str(out))[0] == 0
    assert out.read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["head", "head.jpg"])
def test_other_endings_of_a_picture_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    asked = ("tiny-decoder", "3 14", "--plot", "attention", "--head", "0", "--out", str(tmp_path / name))
    code, _, err = run(capsys, *asked)
    assert code == 2
    assert "does not end in .svg, .png, .pdf; choose one of these" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["page.png", "page.svg", "page.pdf", "page"])
def test_a_page_is_what_its_name_says(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    code, _, err = run(capsys, "tiny-decoder", "3 14", "--out", str(tmp_path / name))
    assert code == 2
    assert "does not end in .html" in err
    assert ("--plot attention" in err) == name.endswith(".svg")
    assert not list(tmp_path.iterdir())


def test_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "tiny-encoder", "3 14 15", "--json")
    assert (code, json.loads(out)["stacks"]["encoder"]["ids"]) == (0, [3, 14, 15])
    code, out, _ = run(capsys, "tiny-encoder", "3 14 15", "--json", "--head", "3")
    assert [round(sum(row), 5) for row in json.loads(out)["values"]] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("tiny-decoder", "3", "--plot", "attention", "--layer", "7", "--head", "0"), "its layers are 0 to 1"),
        (("tiny-decoder", "3", "--plot", "attention", "--head", "9"), "its heads are 0 to 3"),
        (("tiny-decoder", "3", "--plot", "attention"), "a picture shows one head; give --head 0 to 3"),
        (("tiny-decoder", "3", "--json", "--head", "0", "--kind", "cross"), "here use kind='self'"),
        (("tiny-decoder", "a cat", "--json"), "this model has no tokenizer"),
        (("tiny-decoder", "3 " * 200, "--json"), "the text has 200 tokens, the model's context is 128"),
        (("tiny-decoder", "3 9000", "--json"), "9000"),
        (("tiny-decoder", "3", "--target", "4", "--json"), "only encoder-decoders have a target"),
        (("tiny-decoder", "3", "--out", "/nowhere/page.html"), "/nowhere/page.html"),
        (("tiny-decoder", "3", "--json", "--out", "x.html"), "--json is printed, not written to x.html"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], says: str) -> None:
    code, _, err = run(capsys, *args)
    assert code == 2
    assert says in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1
