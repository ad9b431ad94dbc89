"""`triform train` and `triform lint` as a person meets them: what they print, what they refuse, their exit codes."""

import json
import os
import re
import sys
import types
from pathlib import Path

import pytest
import torch

from triform.cli import main
from triform.cli.train import format_seconds
from triform.train import prepare_network

SETTINGS = ("--set", "batch_tokens=128", "--set", "vocab=60", "--set", "eval_rows=10")


def run(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("TRIFORM_HOME", str(place))
    return place


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    lines = [f"the cat {number} was {word},{word}" for number in range(20) for word in ("good", "bad")]
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "\n".join(lines) + "\n")
    return path


def train(capsys: pytest.CaptureFixture[str], rows: Path, out: Path, *more: str | Path) -> tuple[int, str, str]:
    asked = () if "--resume" in more or "--from" in more else ("--size", "tiny")
    return run(capsys, "train", "classify", rows, "--out", out, *asked, *SETTINGS, *more)


def test_a_run_is_told_from_beginning_to_end(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    out = tmp_path / "model"
    code, said, shown = train(capsys, rows, out, "--steps", "6")
    assert (code, said.strip()) == (0, str(out))
    for told in (
        "new: bert, tiny",
        "38 training rows, 2 validation rows, held out",
        "memory",
        "s per step, ",
        ": 6 steps in about",
    ):
        assert told in shown, told
    assert re.search(r"cache +2 made, in", shown)
    for told in ("finished: 6 steps in", "accuracy", "sample", "time, peak memory"):
        assert told in shown, told
    code, said, shown = train(capsys, rows, out, "--resume")
    assert (code, said.strip()) == (0, str(out))
    assert "all steps are done already" in shown
    assert re.search(r"cache +2 reused, in", shown)


def test_a_new_model_is_cross_validated(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no score before the first step of a model with random weights."""
    monkeypatch.setenv("COLUMNS", "120")
    out = tmp_path / "model"
    code, _, shown = train(capsys, rows, out, "--folds", "2", "--steps", "4", "--set", "eval_every=2")
    assert code == 0, shown
    assert "cross-validated in 2 folds" in shown
    assert "by cross-validation: accuracy" in shown
    assert json.loads((out / "cross-validation.json").read_text())["curve"].keys() <= {"2", "4"}
    assert "2-fold cross-validation" in (out / "README.md").read_text()


BAD = {
    "unknown task 'clasify'; did you mean 'classify'?": ("train", "clasify", "rows.csv", "--out", "new"),
    "there is no file": ("train", "classify", "row.csv", "--out", "new"),
    "empty.csv has no rows": ("train", "classify", "empty.csv", "--out", "new"),
    "no labels": ("train", "classify", "texts.csv", "--out", "new"),
    "did you mean 'learning_rate'?": ("train", "classify", "rows.csv", "--out", "new", "--set", "learning_rat=1"),
    "'fast' has no value; write key=value": ("train", "classify", "rows.csv", "--out", "new", "--set", "fast"),
    "folds=2: there are validation rows already": (
        *("train", "classify", "rows.csv", "--out", "new", "--valid", "rows.csv", "--folds", "2"),
    ),
    "steps=0 is out of range": ("train", "classify", "rows.csv", "--out", "new", "--steps", "0"),
    "unknown family 'brt'; did you mean 'bert'?": ("train", "classify", "rows.csv", "--out", "new", "--family", "brt"),
    "unknown size 'huge'": ("train", "classify", "rows.csv", "--out", "new", "--size", "huge"),
    "t5 has the form 'encoder-decoder'; to classify, use": (
        *("train", "classify", "rows.csv", "--out", "new", "--family", "t5"),
    ),
    "brings its own family": ("train", "classify", "rows.csv", "--out", "new", "--from", "x", "--family", "bert"),
    "width=8, vocab=9: --from x brings its own": (
        *("train", "classify", "rows.csv", "--out", "new", "--from", "x", "--set", "width=8", "--set", "vocab=9"),
    ),
    "layers=1, tokenizer=bpe: --from x brings its own": (
        *("train", "classify", "rows.csv", "--out", "new", "--from", "x", "--config", "mine.toml"),
    ),
    "there is no folder 'x'": ("train", "classify", "rows.csv", "--out", "new", "--from", "x"),
    "cannot read": ("train", "classify", "rows.csv", "--out", "new", "--config", "nowhere.toml"),
    "the config is not valid TOML": ("train", "classify", "rows.csv", "--out", "new", "--config", "rows.csv"),
    "holds no run to resume": ("train", "classify", "rows.csv", "--out", "new", "--resume"),
    "already holds notes.txt": ("train", "classify", "rows.csv", "--out", "full"),
    "rows.csv is not a folder": ("train", "classify", "rows.csv", "--out", "rows.csv"),
    "the data is refused: 1 blank": ("train", "classify", "blank.csv", "--out", "new", "--strict"),
}


@pytest.mark.parametrize("says", BAD)
def test_bad_input_is_one_line_and_nothing_is_written(
    says: str, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.csv").write_text("")
    Path("texts.csv").write_text("text\na cat\n")
    Path("blank.csv").write_text(rows.read_text() + ",good\n")
    Path("mine.toml").write_text("layers = 1\ntokenizer = 'bpe'\n")
    Path("full").mkdir()
    Path("full", "notes.txt").write_text("mine")
    before = sorted(os.listdir())
    code, _, err = run(capsys, *BAD[says])
    assert code == 2
    assert says in err
    assert err.count("\n") == 1
    assert sorted(os.listdir()) == before
    assert os.listdir("full") == ["notes.txt"]


def test_what_differs_is_named_when_a_run_is_resumed(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    assert train(capsys, rows, out, "--steps", "4")[0] == 0
    code, _, err = train(capsys, rows, out, "--steps", "4")
    assert (code, "already holds a run; continue it with --resume" in err) == (2, True)
    code, _, err = train(capsys, rows, out, "--resume", "--steps", "8", "--set", "learning_rate=0.5")
    assert code == 2
    assert "steps was 4, is 8; learning_rate was 0.001, is 0.5" in err
    rows.write_text(rows.read_text().replace("cat", "dog"))
    code, _, err = train(capsys, rows, out, "--resume")
    assert (code, "the training data was" in err) == (2, True)
    code, _, err = run(capsys, "train", "tag", rows, "--out", out, "--resume")
    assert code == 2


def test_other_validation_rows_are_named_when_a_run_is_resumed(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, valid, other = tmp_path / "model", tmp_path / "valid.csv", tmp_path / "other.csv"
    valid.write_text("text,label\na dog was good,good\na dog was bad,bad\n")
    other.write_text(valid.read_text().replace("dog", "cow"))
    assert train(capsys, rows, out, "--steps", "4", "--valid", valid)[0] == 0
    before = (out / "metrics.jsonl").read_bytes()
    code, _, err = train(capsys, rows, out, "--resume", "--valid", other)
    assert (code, "resumed: the validation data was" in err, "training data" in err) == (2, True, False)
    code, _, err = train(capsys, rows, out, "--resume")
    assert (code, "the training data was" in err, "the validation data was" in err) == (2, True, True)
    assert (out / "metrics.jsonl").read_bytes() == before
    moved = valid.rename(tmp_path / "moved.csv")
    assert train(capsys, rows, out, "--resume", "--valid", moved)[0] == 0


CANNOT = {
    "precision=bfloat16: the cpu of this machine does not support it; use float32": ("precision=bfloat16",),
    "compile=true: torch cannot compile here (no compiler was found); leave it out": ("compile=true",),
}


@pytest.mark.parametrize("says", CANNOT)
def test_what_this_machine_cannot_do_is_said_before_anything_is_written(
    says: str, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile(function: object) -> None:
        raise RuntimeError("no compiler was found")

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            Path(folder).mkdir(parents=True)

    board = types.ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    monkeypatch.setattr(prepare_network, "has_bfloat16", lambda device: False)
    monkeypatch.setattr(torch, "compile", compile)
    out = tmp_path / "model"
    code, _, err = train(capsys, rows, out, "--steps", "2", *(part for key in CANNOT[says] for part in ("--set", key)))
    assert (code, err.strip().splitlines()[-1].endswith(says)) == (2, True), err
    assert not out.exists()


def test_lint_counts_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, valid = tmp_path / "rows.csv", tmp_path / "more.csv"
    path.write_text("text,label\na,x\nb,y\na,x\n,x\n")
    valid.write_text("text,label\na,x\nc,z\n")
    code, out, _ = run(capsys, "lint", path, "--task", "classify", "--valid", valid, "--json")
    assert code == 0
    counts = {problem["kind"]: problem["count"] for problem in json.loads(out)["problems"]}
    assert counts == {"duplicate": 1, "blank": 1, "leak": 1, "unknown label": 1, "class of one row": 1}
    code, _, err = run(capsys, "lint", path, "--task", "classify", "--strict")
    assert (code, "the data is refused" in err) == (2, True)
    path.write_text("text,label\na,x\nb,y\nc,x\nd,y\n")
    assert run(capsys, "lint", path, "--task", "classify", "--strict")[0] == 0


@pytest.mark.parametrize(("time", "said"), [(0.034, "0.034 s"), (1.26, "1.3 s"), (12.4, "12 s"), (1234.0, "1,234 s")])
def test_seconds_are_said_as_people_say_them(time: float, said: str) -> None:
    assert format_seconds(time) == said


# --- columns and formats --------------------------------------------------------------------------------------------


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    lines = [f"{number},the cat {number} was {word},{word}" for number in range(20) for word in ("good", "bad")]
    path = tmp_path / "tickets.csv"
    path.write_text("id,subject,queue\n" + "\n".join(lines) + "\n")
    return path


NAMED = ("--text-column", "subject", "--label-column", "queue")


def test_columns_are_named_remembered_and_refused_when_others(
    tickets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    code, _, err = train(capsys, tickets, out, "--steps", "2")
    assert (code, err.count("\n")) == (2, 1)
    assert "name them: --text-column subject --label-column queue" in err
    assert not out.exists()
    assert train(capsys, tickets, out, "--steps", "2", *NAMED)[0] == 0
    assert 'columns = {"text" = "subject", "labels" = "queue"}' in (out / "run.toml").read_text()
    assert train(capsys, tickets, out, "--resume")[0] == 0
    assert train(capsys, tickets, out, "--resume", "--label-column", "queue")[0] == 0
    code, _, err = train(capsys, tickets, out, "--resume", "--text-column", "id")
    assert (code, err.count("\n")) == (2, 1)
    assert "columns was {'text': 'subject', 'labels': 'queue'}, is {'text': 'id'" in err
    assert run(capsys, "eval", out, tickets)[0] == 2
    assert run(capsys, "eval", out, tickets, *NAMED, "--json")[0] == 0
    code, said, _ = run(capsys, "run", out, "--file", tickets, "--text-column", "subject")
    assert (code, len(said.splitlines())) == (0, 40)


def test_lint_ends_with_2_where_no_row_is_good(tickets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "lint", tickets, "--task", "classify", *NAMED)[0] == 0
    tickets.write_text("text,label\n,a\n,b\n")
    code, said, err = run(capsys, "lint", tickets, "--task", "classify", "--json")
    assert (code, json.loads(said)["rows"]) == (2, 0)
    assert "no row of" in err


def test_a_format_is_named_where_the_name_does_not_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train"
    path.write_text("text\tlabel\na\t1\nb\t2\n")
    code, _, err = run(capsys, "lint", path, "--task", "classify")
    assert code == 2
    assert "--format jsonl or json or csv or tsv" in err
    assert run(capsys, "lint", path, "--task", "classify", "--format", "tsv")[0] == 0
