"""Columns and formats that a person names, and what is suggested where none is."""

import json
from pathlib import Path

import pytest

from triform.data.columns import Layout
from triform.data.input_paths import find_splits
from triform.data.line_reader import DataError
from triform.data.lint import lint
from triform.data.readers import read
from triform.data.rows import (
    AnsweredQuestionRow,
    BadRow,
    ChatRow,
    DataRow,
    LabelledRow,
    PairRow,
    QuestionRow,
    ScoredPairRow,
    TaggedRow,
    TextRow,
)

TICKETS = [("1001", "I was charged twice", "billing"), ("1002", "cannot sign in at all", "login"),
           ("1003", "refund this invoice please", "billing"), ("1004", "the password is refused", "login")]  # fmt: skip


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def table(path: Path, header: str) -> Path:
    return write(path, header + "".join(f"{','.join(row)}\n" for row in TICKETS))


# --- suggestions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("id,subject,queue\n", "--text-column subject --label-column queue"),  # by name
        ("x,y1,z\n", "--text-column y1 --label-column z"),  # by content alone
        ("id,text,z\n", "no labels among its columns .*; name it: --label-column z$"),
        ("id,my subject,queue\n", "--text-column 'my subject' --label-column queue"),
        ("", "--text-column 1 --label-column 2"),  # no header: by number
    ],
)
def test_the_error_suggests_the_likely_columns_of_a_table(header: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=says):
        list(read(table(tmp_path / "a.csv", header), kind=LabelledRow))


@pytest.mark.parametrize(
    ("kind", "record", "says"),
    [
        (LabelledRow, {"id": 1, "subject": "I was charged twice", "queue": "billing"}, "subject --label-column queue"),
        (ChatRow, {"id": 1, "chat": [{"role": "user", "content": "hi"}]}, "--messages-column chat"),
        (TaggedRow, {"q": ["B-PER", "O"], "p": ["Ann", "sings"]}, "--tokens-column p --tags-column q"),
        (
            QuestionRow,
            {"a": "Ann sang there all the night long.", "b": "Who sang?"},
            "question-column b --context-column a",
        ),
        (ScoredPairRow, {"a": "a cat sat", "b": "one cat sat", "gold": 0.7}, "--second-column b --score-column gold"),
        (PairRow, {"en": "a dog barks", "de": "ein Hund bellt"}, "--source-column en --target-column de"),
        (TextRow, {"id": 7}, "--text-column NAME"),  # nothing speaks for it
    ],
)
def test_the_error_suggests_the_likely_keys_of_an_object(
    kind: type[DataRow], record: dict[str, object], says: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=says):
        list(read(write(tmp_path / "a.jsonl", json.dumps(record)), kind=kind))


# --- columns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [{"text": "subject", "labels": "queue"}, {"text": 1, "labels": "queue"}])
def test_columns_by_name_beside_columns_by_number(columns: dict[str, str | int], tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "id,subject,queue\n")
    assert list(read(path, kind=LabelledRow, layout=Layout(columns))) == [
        LabelledRow(text, (queue,)) for _, text, queue in TICKETS
    ]


def test_one_column_by_number_and_the_other_by_its_usual_name(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "id,subject,label\n")
    assert len(list(read(path, kind=LabelledRow, layout=Layout({"text": 1})))) == len(TICKETS)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_column_that_is_not_there_has_a_neighbour(name: str, tmp_path: Path) -> None:
    content = "subject,queue\nhello,a\n" if name == "a.csv" else '{"subject": "hello", "queue": "a"}'
    layout = Layout({"text": "subjct", "labels": "queue"})
    with pytest.raises(DataError, match=r"no (column|key) 'subjct'; it has .*; did you mean 'subject'"):
        list(read(write(tmp_path / name, content), kind=LabelledRow, layout=layout))


# --- formats --------------------------------------------------------------------------------------------------------

SENTENCES = [TaggedRow(("Ann", "sings"), ("B-PER", "O")), TaggedRow(("Go", "Paris", "!"), ("O", "B-LOC", "O"))]
PLAIN = "Ann B-PER\nsings O\n\nGo O\nParis B-LOC\n! O\n"


@pytest.mark.parametrize(
    "content",
    [
        PLAIN,
        PLAIN.replace(" ", "\t"),
        "".join(f"en:{line}" if line.strip() else line for line in PLAIN.splitlines(keepends=True)),  # WikiAnn's tokens
        PLAIN.replace(" ", " en:"),  # tags
        "-DOCSTART- -X- O O\n\n" + PLAIN.replace(" ", " NNP B-NP "),  # CoNLL 2003
    ],
)
@pytest.mark.parametrize("name", ["train", "eng.testa", "a.conll"])
def test_published_conll_files_by_their_content(content: str, name: str, tmp_path: Path) -> None:
    assert list(read(write(tmp_path / name, content), kind=TaggedRow)) == SENTENCES
    assert list(read(tmp_path / name, kind=TaggedRow, layout=Layout(format="conll"))) == SENTENCES


def test_a_damaged_line_does_not_hide_what_a_file_is(tmp_path: Path) -> None:
    path = write(tmp_path / "train", f"{PLAIN}\n" * 3 + "broken\n")
    assert [type(row) for row in read(path, kind=TaggedRow)] == [TaggedRow] * 5 + [TaggedRow, BadRow]


def test_a_token_with_a_colon_keeps_it(tmp_path: Path) -> None:
    path = write(tmp_path / "train", "re:Ann O\nsings O\n")
    assert list(read(path, kind=TaggedRow)) == [TaggedRow(("re:Ann", "sings"), ("O", "O"))]


@pytest.mark.parametrize(("name", "content"), [("rows", '{"text": "a"}\n'), ("rows.bak", '[{"text":\n"a"}]')])
def test_json_by_its_content(name: str, content: str, tmp_path: Path) -> None:
    assert list(read(write(tmp_path / name, content), kind=TextRow)) == [TextRow("a")]


def test_what_does_not_tell_names_the_way(tmp_path: Path) -> None:
    path = write(tmp_path / "train", "Ann sings\nGo to Paris\n")
    with pytest.raises(DataError, match="or name the format: --format conll or jsonl or json or parquet"):
        list(read(path, kind=TaggedRow))
    with pytest.raises(DataError, match="csv files cannot have chat rows; use --format jsonl or json or parquet"):
        list(read(path, kind=ChatRow, layout=Layout(format="csv")))
    assert list(read(path, kind=TextRow, layout=Layout(format="text"))) == [
        TextRow("Ann sings"),
        TextRow("Go to Paris"),
    ]


def test_a_folder_of_files_without_endings(tmp_path: Path) -> None:
    for name in ("train", "dev", "test"):
        write(tmp_path / name, PLAIN)
    write(tmp_path / "README", PLAIN)
    write(tmp_path / "notes", "some words")
    found = find_splits(tmp_path, kind=TaggedRow)
    assert [[path.name for path in part] for part in found] == [["train"], ["dev"], ["test"]]
    assert list(read(tmp_path, kind=TaggedRow)) == SENTENCES


# --- places ---------------------------------------------------------------------------------------------------------


def test_rows_of_an_array_have_places_of_their_own(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": 1}, {"text": "b", "label": 2}, {"text": "a", "label": 1}, {"text": ""}]
    report = lint(write(tmp_path / "arr.json", json.dumps(rows)), kind=LabelledRow)
    found = {problem.kind: (problem.examples, problem.detail) for problem in report.problems}
    assert found["duplicate"] == ((f"{tmp_path}/arr.json:item 3",), "the same as arr.json:item 1")
    assert found["missing field"][0] == (f"{tmp_path}/arr.json:item 4",)


def test_questions_about_one_paragraph_have_places_of_their_own(tmp_path: Path) -> None:
    asked = {"question": "Who?", "answers": [{"text": "we", "answer_start": 4}]}
    squad = {"data": [{"paragraphs": [{"context": "and we went", "qas": [asked, asked]}]}]}
    report = lint(write(tmp_path / "squad.json", json.dumps(squad)), kind=AnsweredQuestionRow)
    assert [problem.detail for problem in report.problems] == ["the same as squad.json:item 1"]


def test_data_of_which_no_row_is_good(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "a.csv", "text,label\na,1\nb,2\n"), write(tmp_path / "b.csv", "text,label\n,1\n")
    lint(good, kind=LabelledRow, valid=good).refuse_if_none_good()
    for train, valid in ((bad, None), (bad, good), (good, bad)):
        with pytest.raises(DataError, match=r"no row of .*b\.csv can be used"):
            lint(train, kind=LabelledRow, valid=valid).refuse_if_none_good()
