"""A log says now and then how far a command is: by an injected clock, never on standard output, not with --quiet."""

import io
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import pytest

from triform.cli import main, progress, task_io
from triform.cli.answer_formats import InputItem, PlainLines
from triform.cli.progress import CountedProgress, Heartbeat, counting, show_line, status
from triform.data.rows import BadRow
from triform.errors import InputError
from triform.tasks.task import Reply


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def waits(time: Time, *, times: int) -> Callable[[float], bool]:
    """Waits as a thread does, in no time; after so many the work is over."""
    left = [times]

    def wait(seconds: float) -> bool:
        time.now += seconds
        left[0] -= 1
        return left[0] < 0

    return wait


# --- lines ----------------------------------------------------------------------------------------------------------


def test_a_line_every_half_minute_of_work(time: Time) -> None:
    lines: list[str] = []
    beats = Heartbeat(lines.append, now=time)
    beats.works.append(lambda: f"at {time.now:g} s")
    beats.keep_on(waits(time, times=3))
    assert lines == ["[0:30] at 30 s", "[1:00] at 60 s", "[1:30] at 90 s"]


def test_short_work_says_nothing_and_short_works_together_do(time: Time) -> None:
    lines: list[str] = []
    beats = Heartbeat(lines.append, now=time)
    for name in ("one", "two", "three"):
        beats.works = [lambda name=name: name]  # type: ignore[misc]
        beats.beat()
        time.now += 15
    assert lines == ["[0:30] three"]
    beats.works, time.now = [], 100.0
    beats.beat()  # between two pieces of work there is nothing to say
    assert lines == ["[0:30] three"]


def test_the_innermost_work_is_told(time: Time) -> None:
    lines: list[str] = []
    beats = Heartbeat(lines.append, now=time)
    with beats.during(lambda: "judging"):
        with beats.during(lambda: "opening a model"):
            time.now = 30
            beats.beat()
        time.now = 60
        beats.beat()
    assert lines == ["[0:30] opening a model", "[1:00] judging"]
    assert beats.works == []


def test_the_thread_beats_while_work_goes_on_and_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    told = threading.Event()
    with Heartbeat(lambda line: told.set()).during(lambda: "working"):
        assert told.wait(60)


# --- what is counted ------------------------------------------------------------------------------------------------


def test_counts_and_the_time_that_is_left(time: Time) -> None:
    counted = CountedProgress("rows", now=time)
    assert str(counted) == "0 rows"
    counted.total = 5000
    counted.begin_at(1000)
    assert str(counted) == "1,000 of 5,000 rows"
    time.now = 60
    counted.advance(1000)
    assert str(counted) == "2,000 of 5,000 rows, about 3:00 left"
    counted.update(5000, total=5000, note=", all")
    assert str(counted) == "5,000 of 5,000 rows, all"


class Said(Reply, frozen=True):
    text: str


def test_answers_are_counted_when_they_come(tmp_path: Path) -> None:
    counts: list[int] = []

    def run(texts: Sequence[str]) -> Iterator[Said]:
        for text in texts:
            counts.append(counted.done)
            if text == "refused":
                raise InputError("refused")
            yield Said(text=text)

    counted = CountedProgress("rows")
    rows = [InputItem(n, "", each) for n, each in enumerate(["a", "b", BadRow("f", 3, "blank", ""), "refused", "c"])]
    task_io.write_answers(io.StringIO(), rows, run, PlainLines(str), task_io.Tally(), counted.advance)
    assert counts[:3] == [1, 2, 3]  # the bad row, then each answer
    assert counted.done == 5  # what is asked again is not counted twice


@pytest.mark.parametrize(
    ("name", "content", "count"),
    [
        ("a.csv", "text,label\none,1\ntwo,2\n", 2),  # a header is no row
        ("a.csv", 'text\n"one\nmore"\ntwo\n', 2),  # a row of two lines
        ("a.tsv", "text\tlabel\none\t1\nbroken\n", 2),  # bad ones are answered too: with nothing
        ("a.txt", "one\ntwo", 2),
        ("a.json", '[{"text": "one"}, {"text": "two"}]', 2),
        ("a.jsonl", '{"text": "one"}\n\n{"text": "two"}\n', 3),
        ("noending", "one\ntwo\n", 2),
    ],
)
def test_rows_are_counted_as_they_are_read(name: str, content: str, count: int, tmp_path: Path) -> None:
    from triform.cli.input_rows import count_rows
    from triform.data.columns import Layout
    from triform.data.rows import TextRow

    (tmp_path / name).write_text(content)
    assert count_rows(tmp_path / name, kind=TextRow, layout=Layout()) == count
    assert count_rows(tmp_path / "nowhere.txt", kind=TextRow, layout=Layout()) is None


# --- commands -------------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every piece of work has its line at once, from no thread."""
    lines: list[str] = []
    monkeypatch.setattr(progress, "write_line", lines.append)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(progress, "Thread", Now)
    return lines


class Now:
    """A thread that beats once, when it is started."""

    def __init__(self, *, target: Callable[..., None], args: tuple[object, ...], daemon: bool) -> None:
        self.target = target

    def start(self) -> None:
        self.target(lambda seconds: True)


def run(*args: str | Path) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    return int(stop.value.code or 0)


def test_commands_say_what_they_do_and_not_where_a_program_reads(
    impatient: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path / "home"))
    (tmp_path / "a.csv").write_text("text,label\n" + "a,1\nb,2\n" * 5)
    assert run("lint", tmp_path / "a.csv", "--task", "classify") == 0
    assert impatient == [f"[0:00] reading {tmp_path}/a.csv"]
    impatient.clear()
    assert run("lint", tmp_path / "a.csv", "--task", "classify", "--json") == 0
    assert run("lint", tmp_path / "a.csv", "--task", "classify", "--quiet") == 0
    assert impatient == []
    capsys.readouterr()
    assert run("check", "tiny-encoder", "--json") == 0
    assert json.loads(capsys.readouterr().out)["holds"]
    assert impatient == []


def test_loading_judging_running_and_indexing_say_it(
    impatient: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIFORM_HOME", str(tmp_path / "home"))
    rows, model = tmp_path / "a.csv", tmp_path / "model"
    rows.write_text("text,label\n" + "the cat,1\na dog,2\n" * 5)
    small = ("--size", "tiny", "--steps", "2", "--set", "batch_tokens=64", "--set", "vocab=60")
    assert run("train", "classify", rows, "--out", model, *small) == 0
    assert any("before the first step" in line for line in impatient)
    pairs, embeds = tmp_path / "pairs.csv", tmp_path / "embeds"
    pairs.write_text("first,second,score\n" + "the cat,a dog,3\na dog,a cat,2\n" * 5)
    assert run("train", "embed", pairs, "--out", embeds, *small) == 0
    out = ("run", model, "--file", rows, "--out", tmp_path / "out.txt")
    for args, says in (
        (out, "0 of 10 rows"),
        (("eval", model, rows), "0 rows"),  # how many there are is known when they have been read
        (("index", rows, "--model", embeds, "--out", tmp_path / "index"), "0 files"),
    ):
        impatient.clear()
        assert run(*args) == 0, capsys.readouterr().err
        assert "] opening " in impatient[0]
        assert any(says in line for line in impatient), impatient


def test_a_terminal_has_a_spinner_and_no_lines(impatient: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    with status("reading [x]") as shown, show_line(lambda: "inside"):
        shown.update("still reading [x]")
    with counting("rows", total=lambda: 3) as counted:
        counted.advance(3)
    assert impatient == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_that_is_gone_does_not_end_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*args: object, **given: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(click, "echo", gone)
    progress.write_line("a line")
