"""`triform.evaluate` and `triform.lint` say what the commands say, of rows of any kind."""

import json
from pathlib import Path

import pytest
from tiny_tasks import LABELLED, begun

import triform
from triform.cli import main
from triform.data.line_reader import DataError
from triform.data.rows import LabelledRow, PairRow
from triform.model import Model
from triform.pipeline.lint_rows import find_kind
from triform.tasks import get_task

ROWS = [{"text": row.text, "label": row.labels[0]} for row in LABELLED]


@pytest.fixture(scope="module")
def model() -> Model:
    return begun(get_task("classify"), LABELLED)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path / "rows.jsonl"


def test_evaluate_says_what_the_command_says(
    model: Model, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.save(tmp_path / "model")
    counted: list[tuple[int, int]] = []
    report = triform.evaluate(
        model, ROWS, baseline=True, train=ROWS, progress=lambda done, total: counted.append((done, total))
    )
    assert counted[-1] == (len(ROWS), len(ROWS))
    with pytest.raises(SystemExit):
        main(["eval", str(tmp_path / "model"), str(path), "--baseline", "--train", str(path), "--json"])
    told = json.loads(capsys.readouterr().out)
    found = {name: scores["values"] for name, scores in told["scores"].items()}
    assert found.pop(str(tmp_path / "model")) == report.scores.values
    assert found == {name: scores.values for name, scores in report.baselines.items()}
    assert triform.evaluate(tmp_path / "model", str(path)).scores == report.scores


def test_a_report_as_a_frame(model: Model) -> None:
    pytest.importorskip("pandas")
    report = triform.evaluate(model, ROWS, baseline=True, train=ROWS, limit=6)
    frame = report.to_pandas()
    assert list(frame.index) == ["model", *report.baselines]
    assert frame.loc["model", "accuracy"] == report.scores.values["accuracy"]
    assert report.scores.rows == 6


def test_lint_counts_the_same_in_rows_and_in_a_file(path: Path) -> None:
    rows = [*ROWS, ROWS[0], {"text": "", "label": "good"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    of_file, of_rows = triform.lint(path, task="classify"), triform.lint(rows)
    assert of_rows == of_file.rename_place(str(path), "rows")
    problem = next(each for each in of_rows.problems if each.kind == "blank")
    assert problem.examples == (f"rows:{len(rows)}",)
    assert repr(of_rows).startswith(f"LintReport({len(ROWS) + 1} good rows, 1 skipped: ")
    with pytest.raises(DataError, match="the data is refused"):
        of_rows.refuse()


def test_the_kind_of_rows_follows_from_their_fields(path: Path, tmp_path: Path) -> None:
    layout = triform.data.columns.Layout()
    assert find_kind(path, layout) is LabelledRow
    (tmp_path / "pairs.jsonl").write_text('{"source": "a", "target": "b"}\n')
    assert find_kind(tmp_path / "pairs.jsonl", layout) is PairRow
    with pytest.raises(DataError, match="rows: the first rows have the fields of no task; name the task"):
        triform.lint([{"a": 1}])
    with pytest.raises(DataError, match=r"there is no file .*gone\.csv"):
        triform.lint(tmp_path / "gone.csv")
