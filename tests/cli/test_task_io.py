"""Every task is asked in the same way: one text, many, a file, standard input; what is bad is skipped and counted."""

import io
import json
import sys
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from triform.cli import main, progress, task_io
from triform.cli.task_io import FIRST_CHUNK, MAX_CHUNK_ROWS, CommandInput, answer_input
from triform.data import chunks, line_reader
from triform.data.columns import Layout
from triform.data.rows import AnsweredQuestionRow, TextRow
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


def ask(run: task_io.Run = shout, **asked: object) -> None:
    answer_input(CommandInput(**asked), run, about={"model": "shouts"})  # type: ignore[arg-type]


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
    assert "unknown tokens: 1" in err
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
    ask(file=str(tmp_path / name), layout=Layout({} if column is None else {"text": column}))
    assert capsys.readouterr().out.splitlines() == ["ONE", "", "TWO"]


def test_a_long_file_goes_through_in_chunks(tmp_path: Path) -> None:
    path, sizes = tmp_path / "long.txt", list[int]()
    path.write_text("".join(f"line {n}\n" for n in range(3 * MAX_CHUNK_ROWS + 5)))

    def run(texts: Sequence[str]) -> Iterator[Shouted]:
        sizes.append(len(texts))
        return shout(texts)

    ask(run, file=str(path), out=str(tmp_path / "out.txt"))
    assert sizes == [
        8,
        16,
        32,
        64,
        128,
        MAX_CHUNK_ROWS,
        MAX_CHUNK_ROWS,
        13,
    ]  # few at first, so that progress is seen soon
    assert (tmp_path / "out.txt").read_text().splitlines() == [f"LINE {n}" for n in range(3 * MAX_CHUNK_ROWS + 5)]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["long.txt", "out.txt"]


# --- going on -------------------------------------------------------------------------------------------------------


def stopped_after(count: int) -> task_io.Run:
    left = [count]

    def run(texts: Sequence[str]) -> Iterator[Shouted]:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return shout(texts)

    return run


def test_a_stopped_run_goes_on_after_its_last_whole_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "in.txt", tmp_path / "out.txt"
    path.write_text("".join(f"line {n}\n" for n in range(2 * MAX_CHUNK_ROWS)))
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
    assert seen[0] == f"line {FIRST_CHUNK - 1}"
    assert out.read_text().splitlines() == [f"LINE {n}" for n in range(2 * MAX_CHUNK_ROWS)]
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


# --- memory, screens and repeated asking ----------------------------------------------------------------------------


class Held:
    """A question that can be counted while it lives."""

    def __init__(self, text: str) -> None:
        self.text = text


class Kept(Reply, frozen=True, weakref=True):
    text: str

    def __str__(self) -> str:
        return self.text


def test_a_file_of_any_length_holds_a_few_chunks_of_rows_and_answers(tmp_path: Path) -> None:
    path, most = tmp_path / "long.txt", 0
    path.write_text("".join(f"line {n}\n" for n in range(40 * MAX_CHUNK_ROWS)))
    alive: weakref.WeakSet[Held | Kept] = weakref.WeakSet()

    def of_row(row: TextRow) -> Held:
        held = Held(row.text)
        alive.add(held)
        return held

    def run(asked: Sequence[Held]) -> Iterator[Kept]:
        nonlocal most
        most = max(most, len(alive))
        for one in asked:
            kept = Kept(text=one.text)
            alive.add(kept)
            yield kept

    answer_input(CommandInput(file=str(path), out=str(tmp_path / "out.txt")), run, about={}, of_row=of_row)
    assert MAX_CHUNK_ROWS <= most <= 4 * MAX_CHUNK_ROWS
    assert (tmp_path / "out.txt").read_bytes() == path.read_bytes()


def test_few_are_asked_again_where_one_cannot_be_answered(tmp_path: Path) -> None:
    path, asked = tmp_path / "in.txt", 0
    path.write_text("".join("refused\n" if n == 100 else f"line {n}\n" for n in range(MAX_CHUNK_ROWS)))

    def run(texts: Sequence[str]) -> Iterator[Shouted]:
        nonlocal asked
        asked += len(texts)
        return shout(texts)

    ask(run, file=str(path), out=str(tmp_path / "out.txt"))
    assert asked <= 3 * MAX_CHUNK_ROWS
    found = (tmp_path / "out.txt").read_text().splitlines()
    assert [n for n, line in enumerate(found) if not line] == [100]


def test_the_bar_on_a_screen_leaves_the_answers_where_they_belong(
    lines: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(file=screen, force_terminal=True))
    ask(file=str(lines))
    assert capsys.readouterr().out.splitlines() == ANSWERS
    assert "ONE" not in screen.getvalue()
    assert "7/7" in screen.getvalue()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    screen.truncate(0)
    ask(file=str(lines))
    assert "7/7" not in screen.getvalue()


def test_what_answers_nothing_at_all_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"refused\n\n")))
    with pytest.raises(TriformError, match="none of the 2 texts could be answered; the first: this text is refused"):
        ask()


def test_a_line_without_end_on_standard_input_is_not_held(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(line_reader, "MAX_LINE_BYTES", 64)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfone\n" + b"x" * 1000 + b"\ntwo\n")))
    ask()
    out, err = capsys.readouterr()
    assert out.splitlines() == ["ONE", "", "TWO"]
    assert "1 too long" in err


def test_columns_by_number_and_files_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bare.csv").write_text("1,one\n2,two\n")
    ask(file=str(tmp_path / "bare.csv"), layout=Layout({"text": 1}))
    assert capsys.readouterr().out.splitlines() == ["ONE", "TWO"]
    (tmp_path / "in.csv").write_text("a,b\n1,2\n")
    with pytest.raises(TriformError, match="has no column 'c'; it has 'a', 'b'"):
        ask(file=str(tmp_path / "in.csv"), layout=Layout({"text": "c"}))
    with pytest.raises(TriformError, match="is a folder; name a file in it"):
        ask(file=str(tmp_path))
    (tmp_path / "q.txt").write_text("Who?\n")
    with pytest.raises(TriformError, match="is not one for answered question rows"):
        answer_input(CommandInput(file=str(tmp_path / "q.txt")), shout, about={}, kind=AnsweredQuestionRow)


def test_a_file_of_which_nothing_was_answered_does_not_appear(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("refused\nrefused\n")
    with pytest.raises(TriformError, match="none of the 2 texts could be answered"):
        ask(file=str(tmp_path / "in.txt"), out=str(tmp_path / "out.txt"))
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
    (tmp_path / "in.txt").write_text("refused\n")
    with pytest.raises(TriformError, match=r"^this text is refused$"):
        ask(file=str(tmp_path / "in.txt"), out=str(tmp_path / "out.txt"))


def wrong(texts: Sequence[str]) -> Iterator[Shouted]:
    raise TriformError("this model was not made to shout")


def test_what_cannot_begin_leaves_nothing_in_the_way(lines: Path, tmp_path: Path) -> None:
    """A wrong model, then the right one into the same file."""
    out = tmp_path / "out.txt"
    with pytest.raises(TriformError, match="not made to shout"):
        ask(wrong, file=str(lines), out=str(out))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt"]
    ask(file=str(lines), out=str(out))
    assert out.read_text().splitlines() == ANSWERS


def test_long_texts_go_through_in_small_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 200)  # the text as it was asked, and as the question it is
    (tmp_path / "long.txt").write_text(("x" * 60 + "\n") * 6)
    sizes: list[int] = []

    def counted(texts: Sequence[str]) -> Iterator[Shouted]:
        sizes.append(len(texts))
        return shout(texts)

    ask(counted, file=str(tmp_path / "long.txt"))
    assert sizes == [2, 2, 2]


@pytest.mark.parametrize("option", ["--adapter", "--weights"])
def test_what_a_service_has_chosen_is_refused_with_its_address(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["triform", "complete", "stories", "Once", "--url", "http://127.0.0.1:9", option, "q8"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        main(command[1:])
    assert ended.value.code == 2
    assert f"{option} is for models that are loaded here" in capsys.readouterr().err
