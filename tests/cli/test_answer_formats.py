"""A file of answers holds what its ending says: with ids and inputs, line for line, and it can go on."""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tiny_tasks import LABELLED, SCORED, begun

from triform.cli import main, task_io
from triform.cli.task_io import MAX_CHUNK_ROWS, CommandInput, answer_input
from triform.data.readers import read
from triform.data.rows import LabelledRow
from triform.errors import InputError, TriformError
from triform.tasks import get_task
from triform.tasks.task import Reply
from triform.weights import model_folder


class Counted(Reply, frozen=True):
    text: str
    score: float
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


def count(texts: Sequence[str]) -> Iterator[Counted]:
    for text in texts:
        if text == "refused":
            raise InputError("this text is refused")
        yield Counted(text=text.upper(), score=len(text) / 3, words=tuple(text.split()))


def ask(run: task_io.Run = count, **asked: object) -> None:
    answer_input(CommandInput(**asked), run, about={"model": "counts"})  # type: ignore[arg-type]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "in.csv"
    path.write_text('id,text\na7,refused\nb8,"one, ""two"""\n9,"tab\there\nand there"\n,no id\nc1,\n')
    return path


def test_a_table_has_ids_inputs_and_what_was_skipped(rows: Path, tmp_path: Path) -> None:
    ask(file=str(rows), out=str(tmp_path / "out.csv"))
    with (tmp_path / "out.csv").open(newline="") as file:
        found = list(csv.reader(file))
    assert found == [
        ["id", "input", "text", "score", "words", "skipped"],
        ["a7", "refused", "", "", "", "this text is refused"],
        ["b8", 'one, "two"', 'ONE, "TWO"', "3.33333", '["one,","\\"two\\""]', ""],
        ["9", "tab\there and there", "TAB\tHERE AND THERE", "6", '["tab","here","and","there"]', ""],
        ["4", "no id", "NO ID", "1.66667", '["no","id"]', ""],
        ["c1", "", "", "", "", found[5][-1]],
    ]
    assert "blank" in found[5][-1]


def test_tabs_need_no_quotes(rows: Path, tmp_path: Path) -> None:
    ask(file=str(rows), out=str(tmp_path / "out.tsv"))
    found = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert [len(row) for row in found] == [6] * 6
    assert found[2][:3] == ["b8", 'one, "two"', 'ONE, "TWO"']
    assert found[3][2] == "TAB HERE AND THERE"


def test_json_lines_keep_everything(rows: Path, tmp_path: Path) -> None:
    ask(file=str(rows), out=str(tmp_path / "out.jsonl"))
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in found] == ["a7", "b8", "9", 4, "c1"]
    assert found[0] == {"id": "a7", "input": "refused", "skipped": "this text is refused"}
    assert found[2]["input"] == "tab\there\nand there"
    assert found[2]["text"] == "TAB\tHERE\nAND THERE"
    assert found[2]["words"] == ["tab", "here", "and", "there"]


def test_other_names_and_standard_output_are_plain_lines(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(file=str(rows), out=str(tmp_path / "out.de"))
    assert (tmp_path / "out.de").read_text().splitlines() == ["", 'ONE, "TWO"', "TAB\tHERE AND THERE", "NO ID", ""]
    ask(texts=("one", "two"), as_json=True)
    first, _ = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"text": "ONE", "score": 1.0, "words": ["one"]}


@pytest.mark.parametrize("ending", [".json", ".parquet", ".csv.gz", ".xlsx", ".npy", ".png"])
def test_what_cannot_be_written_is_refused(ending: str, rows: Path, tmp_path: Path) -> None:
    with pytest.raises(TriformError, match=r"use \.jsonl, \.csv or \.tsv"):
        ask(file=str(rows), out=str(tmp_path / f"out{ending}"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv"]


def test_a_table_is_no_json(rows: Path, tmp_path: Path) -> None:
    with pytest.raises(TriformError, match=r"leave --json out, or use \.jsonl"):
        ask(file=str(rows), out=str(tmp_path / "out.csv"), as_json=True)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".txt"])
@pytest.mark.parametrize("left", [0, 5, 40, 3000])
def test_a_stopped_run_goes_on_to_the_same_file(ending: str, left: int, tmp_path: Path) -> None:
    """Whatever was on disk when it was killed: nothing, part of the header, some rows and a part of one."""
    path = tmp_path / "in.jsonl"
    lines = [{"id": f"row {n}", "text": "refused" if n % 7 == 0 else f"line\n{n}"} for n in range(2 * MAX_CHUNK_ROWS)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ask(file=str(path), out=str(tmp_path / f"whole{ending}"))
    out = tmp_path / f"out{ending}"

    def stopped(texts: Sequence[str]) -> Iterator[Counted]:
        if any(f"\n{MAX_CHUNK_ROWS + 1}" in text for text in texts):
            raise KeyboardInterrupt
        return count(texts)

    with pytest.raises(KeyboardInterrupt):
        ask(stopped, file=str(path), out=str(out))
    part = out.with_name(out.name + ".part")
    part.write_bytes(part.read_bytes()[:left])
    ask(file=str(path), out=str(out), resume=True)
    assert out.read_bytes() == (tmp_path / f"whole{ending}").read_bytes()


# --- of tasks -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for name, given in {"classify": LABELLED, "embed": SCORED}.items():
        model_folder.write(root / name, model=begun(get_task(name), given))
    return root


def run(*args: str | Path) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    return int(stop.value.code or 0)


def test_labels_are_a_column_that_can_be_learned_from(models: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("Jack loves Rome.\nRose hates Paris.\n")
    assert run("classify", models / "classify", "--file", tmp_path / "in.txt", "--out", tmp_path / "out.csv") == 0
    header, first, _ = (tmp_path / "out.csv").read_text().splitlines()
    assert header == "id,input,label,probability,skipped"
    assert first.startswith("1,Jack loves Rome.,")
    renamed = (tmp_path / "out.csv").read_text().replace("input", "text", 1)
    (tmp_path / "again.csv").write_text(renamed)
    assert all(isinstance(row, LabelledRow) for row in read(tmp_path / "again.csv", kind=LabelledRow))


def test_top_counts_for_several_texts_too(models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ("Jack loves Rome.", "Rose hates Paris.")
    assert run("classify", models / "classify", *texts) == 0
    assert [line.count("%") for line in capsys.readouterr().out.splitlines()] == [1, 1]
    assert run("classify", models / "classify", *texts, "--top", "2") == 0
    assert [line.count("%") for line in capsys.readouterr().out.splitlines()] == [2, 2]
    assert run("classify", models / "classify", *texts, "--top", "2", "--out", tmp_path / "out.csv") == 0
    header = (tmp_path / "out.csv").read_text().splitlines()[0]
    assert header == "id,input,label,probability,label_1,probability_1,label_2,probability_2,skipped"


def test_vectors_are_a_column_too(models: Path, tmp_path: Path) -> None:
    assert run("embed", models / "embed", "Jack", "Rose", "--out", tmp_path / "out.tsv") == 0
    header, first, _ = (line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines())
    assert header == ["id", "input", "vector", "skipped"]
    assert len(json.loads(first[2])) == 16
