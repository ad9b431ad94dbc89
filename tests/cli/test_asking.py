"""Every task is asked in the same way: one text, many, a file, standard input; what is bad is skipped and counted."""

import io
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from triform.cli import asking
from triform.cli.asking import CHUNK, Ask, answer
from triform.errors import InputError, TriformError
from triform.tasks.task import Reply


class Shouted(Reply, frozen=True):
    text: str

    def __str__(self) -> str:
        return self.text


def shout(texts: Sequence[str]) -> Iterator[Shouted]:
    for text in texts:
        if text == "refused":
            raise InputError("this text is refused")
        yield Shouted(text=text.upper(), cut=len(text) // 10, unknown=text.count("?"))


def ask(run: asking.Run = shout, **asked: object) -> None:
    answer(Ask(**asked), run, about={"model": "shouts"})  # type: ignore[arg-type]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_bytes(b"one\ntwo\n\n\xff\nrefused\nsix?\na text that is too long\n")
    return path


ANSWERS = ["ONE", "TWO", "", "", "", "SIX?", "A TEXT THAT IS TOO LONG"]


def test_one_text_and_many(capsys: pytest.CaptureFixture[str]) -> None:
    ask(texts=("a\nb",))
    ask(texts=("one", "two\nlines"))
    assert capsys.readouterr().out == "A\nB\nONE\nTWO LINES\n"
    ask(texts=("one",), as_json=True)
    assert json.loads(capsys.readouterr().out) == {"text": "ONE"}


def test_a_file_answers_line_for_line_and_counts_what_it_skipped(
    lines: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(file=str(lines))
    out, err = capsys.readouterr()
    assert out.splitlines() == ANSWERS
    assert "skipped 3 of 7: 1 blank, 1 invalid UTF-8, 1 not answered; the first: " in err
    assert "in.txt:3: blank" in err
    assert "1 of 4 texts were too long for the model: 2 tokens were cut off" in err
    assert "1 tokens are unknown" in err
    ask(file=str(lines), as_json=True)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one.get("text", "") for one in found] == ANSWERS
    assert found[4] == {"skipped": "this text is refused"}


def test_standard_input_and_a_whole_text(
    lines: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.read_bytes())))
    ask()
    assert capsys.readouterr().out.splitlines() == ANSWERS
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    ask(whole=True)
    assert capsys.readouterr().out == "ONE TWO\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(TriformError, match="standard input is empty"):
        ask()


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("in.jsonl", '{"text": "one"}\n{"x": 1}\n{"text": "two"}\n', None),
        ("in.csv", "source,target\none,eins\nbroken\ntwo,zwei\n", "source"),
        ("in.en", "one\n\ntwo\n", None),
        ("noending", "one\n\ntwo", None),
    ],
)
def test_every_format(
    name: str, text: str, column: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    ask(file=str(tmp_path / name), column=column)
    assert capsys.readouterr().out.splitlines() == ["ONE", "", "TWO"]


def test_a_long_file_goes_through_in_chunks(tmp_path: Path) -> None:
    path, sizes = tmp_path / "long.txt", list[int]()
    path.write_text("".join(f"line {n}\n" for n in range(3 * CHUNK + 5)))

    def run(texts: Sequence[str]) -> Iterator[Shouted]:
        sizes.append(len(texts))
        return shout(texts)

    ask(run, file=str(path), out=str(tmp_path / "out.txt"))
    assert sizes == [CHUNK] * 3 + [5]
    assert (tmp_path / "out.txt").read_text().splitlines() == [f"LINE {n}" for n in range(3 * CHUNK + 5)]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["long.txt", "out.txt"]


# --- going on -------------------------------------------------------------------------------------------------------


def stopped_after(count: int) -> asking.Run:
    left = [count]

    def run(texts: Sequence[str]) -> Iterator[Shouted]:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return shout(texts)

    return run


def test_a_stopped_run_goes_on_after_its_last_whole_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "in.txt", tmp_path / "out.txt"
    path.write_text("".join(f"line {n}\n" for n in range(2 * CHUNK)))
    asked = {"file": str(path), "out": str(out)}
    with pytest.raises(KeyboardInterrupt):
        ask(stopped_after(1), **asked)
    assert not out.exists()
    part = tmp_path / "out.txt.part"
    part.write_bytes(part.read_bytes()[:-3])  # as if it had been killed while writing
    with pytest.raises(TriformError, match="go on with --resume"):
        ask(**asked)
    with pytest.raises(TriformError, match="json was False, is True"):
        ask(**asked, resume=True, as_json=True)
    seen = list[str]()

    def run(texts: Sequence[str]) -> Iterator[Shouted]:
        seen.extend(texts)
        return shout(texts)

    ask(run, **asked, resume=True)
    assert seen[0] == f"line {CHUNK - 1}"
    assert out.read_text().splitlines() == [f"LINE {n}" for n in range(2 * CHUNK)]
    ask(**asked, resume=True)
    assert "is whole" in capsys.readouterr().err
    with pytest.raises(TriformError, match="already there"):
        ask(**asked)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"texts": ("",)}, "the text is empty"),
        ({"texts": ("a",), "file": "b.txt"}, "give one or the other"),
        ({"resume": True, "texts": ("a",)}, "name it with --out"),
        ({"file": "nowhere.txt"}, "there is no file nowhere.txt"),
        ({"texts": ("refused",)}, "this text is refused"),
        ({"texts": ("a",), "out": "/nowhere/at/all.txt"}, "cannot write /nowhere/at/all.txt"),
    ],
)
def test_bad_wishes_are_one_clear_line(asked: dict[str, object], says: str) -> None:
    with pytest.raises(TriformError, match=says):
        ask(**asked)
