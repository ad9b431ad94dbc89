"""A corpus of bad lines, counted to the line."""

import json
import tracemalloc
from pathlib import Path

import pytest
from rich.console import Console

from triform.data import duplicate_rows
from triform.data.duplicate_rows import DuplicateFinder
from triform.data.line_reader import DataError
from triform.data.lint import LintReport, lint
from triform.data.rows import (
    AnsweredQuestionRow,
    ChatRow,
    DocumentRow,
    LabelledRow,
    PairRow,
    ScoredPairRow,
    TaggedRow,
    TextRow,
)


def counts(report: LintReport) -> dict[str, int]:
    return {problem.kind: problem.count for problem in report.problems}


def examples(report: LintReport, kind: str) -> list[str]:
    (problem,) = (problem for problem in report.problems if problem.kind == kind)
    return [Path(place).name for place in problem.examples]


def shown(report: LintReport) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(report)
    return captured.get()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """100 good rows of two classes, and among them one to nine lines of everything that can be wrong with a table."""
    wrong = [
        *[b"b\xffd %d,pos" % number for number in range(1)],
        *[b"n\0l %d,pos" % number for number in range(2)],
        *[b"  ,pos" for _ in range(3)],
        *[b"cells,%d,pos" % number for number in range(4)],
        *[b'"open %d,pos' % number for number in range(5)],
        *[b"no label %d," % number for number in range(6)],
        *[b"good 7,pos" for _ in range(7)],
        *[b"x" * 60 + b" %d,neg" % number for number in range(8)],
        *[b"strange %d,meh" % number for number in range(9)],
        b"\xef\xbb\xbfmark,neg",
    ]
    good = [b"good %d,%s" % (number, b"pos" if number % 2 else b"neg") for number in range(100)]
    mixed = [
        line for number, row in enumerate(good) for line in ([row, wrong[number]] if number < len(wrong) else [row])
    ]
    path = tmp_path / "train.csv"
    path.write_bytes(b"\xef\xbb\xbftext,label\n" + b"\n".join(mixed))
    return path


def test_exact_counts(corpus: Path):
    report = lint(corpus, kind=LabelledRow, labels=["pos", "neg"], longest=50)
    assert counts(report) == {
        "invalid UTF-8": 1,
        "NUL": 2,
        "blank": 3,
        "wrong columns": 4,
        "broken CSV": 5,
        "missing field": 6,
        "duplicate": 7,
        "over-long": 8,
        "unknown label": 9,
        "BOM": 2,
    }
    assert report.rows == 100 + 7 + 8 + 9 + 1
    assert report.skipped == 1 + 2 + 3 + 4 + 5 + 6
    assert report.classes == {"neg": 59, "pos": 57, "meh": 9}
    assert examples(report, "invalid UTF-8") == ["train.csv:3"]
    assert examples(report, "NUL") == ["train.csv:5", "train.csv:7"]
    assert examples(report, "duplicate") == ["train.csv:45", "train.csv:47", "train.csv:49"]


def test_every_planted_mistake_is_in_the_count(corpus: Path):
    """A negative control: one more bad line of a kind is one more in the count."""
    before = counts(lint(corpus, kind=LabelledRow))
    corpus.write_bytes(corpus.read_bytes() + b"\n  ,pos\ngood 1,pos")
    after = counts(lint(corpus, kind=LabelledRow))
    assert after == before | {"blank": before["blank"] + 1, "duplicate": before["duplicate"] + 1}


def test_refusing_is_one_line(corpus: Path, tmp_path: Path):
    with pytest.raises(DataError, match=r"refused: 7 duplicate \(.*train.csv:45\), 6 missing field") as caught:
        lint(corpus, kind=LabelledRow).refuse()
    assert "\n" not in str(caught.value)
    (tmp_path / "fine.txt").write_text("a\nb\n")
    lint(tmp_path / "fine.txt", kind=TextRow).refuse()


def test_shown_as_table_and_as_json(corpus: Path, tmp_path: Path):
    report = lint(corpus, kind=LabelledRow)
    text = shown(report)
    assert "train.csv:45" in text
    assert "the same as train.csv:16" in text
    found = json.loads(report.to_json())
    assert {problem["kind"]: problem["count"] for problem in found["problems"]} == counts(report)
    (tmp_path / "fine.txt").write_text("a\nb\n")
    assert shown(lint(tmp_path / "fine.txt", kind=TextRow)).startswith("2 good rows, 0 skipped: no problems found")


def test_names_with_markup_are_shown_as_they_are(tmp_path: Path):
    path = tmp_path / "[red]a[bold].txt"
    path.write_text("a\na\n")
    assert "[red]a[bold].txt:2" in shown(lint(path, kind=TextRow))


# --- training and validation data -----------------------------------------------------------------------------------


def test_leaks_and_labels_of_validation_data(tmp_path: Path):
    (tmp_path / "train.tsv").write_text("a\t1\nb\t0\nc\t1\nc\t0\n")
    (tmp_path / "dev.tsv").write_text("d\t1\nd\t1\nb\t1\nc\t1\ne\t2\n\n")
    report = lint(tmp_path / "train.tsv", kind=LabelledRow, valid=tmp_path / "dev.tsv")
    # Another label makes another row (c) but no other input: b and c of dev are leaks. A repeat in dev is none.
    assert counts(report) == {"leak": 2, "unknown label": 1, "blank": 1}
    assert examples(report, "leak") == ["dev.tsv:3", "dev.tsv:4"]
    assert report.classes == {"1": 2, "0": 2}


def test_the_same_file_twice_leaks_entirely(tmp_path: Path):
    (tmp_path / "a.txt").write_text("a\nb\nc\n")
    report = lint(tmp_path / "a.txt", kind=TextRow, valid=tmp_path / "a.txt")
    assert counts(report) == {"leak": 3}


def test_a_pair_is_leaked_by_its_source(tmp_path: Path):
    (tmp_path / "train.jsonl").write_text('{"source": "a", "target": "b"}\n{"source": "c", "target": "d"}\n')
    (tmp_path / "dev.jsonl").write_text('{"source": "a", "target": "x"}\n{"source": "x", "target": "d"}\n')
    report = lint(tmp_path / "train.jsonl", kind=PairRow, valid=tmp_path / "dev.jsonl")
    assert counts(report) == {"leak": 1}


def test_several_files_are_one_set(tmp_path: Path):
    (tmp_path / "a.txt").write_text("a\nb\n")
    (tmp_path / "b.txt").write_text("b\nc\n")
    report = lint([tmp_path / "a.txt", tmp_path / "b.txt"], kind=TextRow)
    assert counts(report) == {"duplicate": 1}
    assert examples(report, "duplicate") == ["b.txt:1"]


# --- kinds of rows --------------------------------------------------------------------------------------------------


def test_a_single_class(tmp_path: Path):
    (tmp_path / "a.tsv").write_text("a\t1\nb\t1\n")
    assert counts(lint(tmp_path / "a.tsv", kind=LabelledRow)) == {"single class": 1}
    (tmp_path / "a.conll").write_text("a\tO\n\nb\tO\n")
    assert counts(lint(tmp_path / "a.conll", kind=TaggedRow)) == {"single class": 1}


def test_tags(tmp_path: Path):
    sentences = ["a\tB-x\nb\tI-x\nc\tI-x", "a\tO\nb\tI-x", "a\tB-x\nb\tI-y", "a\tI-x", "a\tS-x", "a\tB-", "c\tB-y"]
    (tmp_path / "a.conll").write_text("\n\n".join(sentences))
    assert counts(lint(tmp_path / "a.conll", kind=TaggedRow)) == {"I- without B-": 3, "not BIO": 2}


def test_conversations_in_which_nothing_is_answered(tmp_path: Path):
    talks = [[{"role": role, "content": "x"} for role in roles] for roles in (["user"], ["user", "assistant"])]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"messages": talk}) for talk in talks))
    assert counts(lint(tmp_path / "a.jsonl", kind=ChatRow)) == {"no answer": 1}


def test_scores(tmp_path: Path):
    scores = ["-1", "5", "5.01", "-1.5", "nan", "inf", "high", ""]
    (tmp_path / "a.csv").write_text("".join(f"a{number},b,{score}\n" for number, score in enumerate(scores)))
    assert counts(lint(tmp_path / "a.csv", kind=ScoredPairRow)) == {"score out of range": 2, "not a number": 4}


def test_answers(tmp_path: Path):
    rows = [{"question": "q", "context": "c d", "answers": [answer]} for answer in ("c", "d", "e")]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert counts(lint(tmp_path / "a.jsonl", kind=AnsweredQuestionRow)) == {"answer not in context": 1}


def test_parallel_files(tmp_path: Path):
    (tmp_path / "train.en").write_bytes(b"\xef\xbb\xbfa\nb\n\nd\n")
    (tmp_path / "train.de").write_bytes(b"A\nB\n")
    report = lint(tmp_path / "train.en-de", kind=PairRow)
    assert counts(report) == {"BOM": 1, "unequal files": 1}
    assert (report.rows, report.skipped) == (2, 0)
    with pytest.raises(DataError, match="1 unequal files"):
        report.refuse()


def test_files_without_a_row(tmp_path: Path):
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(DataError, match="has no rows"):
        lint(tmp_path / "a.txt", kind=DocumentRow)
    (tmp_path / "b.txt").write_text("\n\n")
    report = lint(tmp_path / "b.txt", kind=TextRow)
    assert (report.rows, counts(report)) == (0, {"blank": 2})
    assert report.without_rows == (str(tmp_path / "b.txt"),)


# --- memory ---------------------------------------------------------------------------------------------------------


def test_parts_give_the_same_answer(monkeypatch: pytest.MonkeyPatch):
    def found() -> set[tuple[int, int]]:
        with DuplicateFinder() as seen:
            for place in range(3000):
                seen.add(b"%d" % (place * place % 1009), place=place)
            return {
                pair
                for places, firsts in seen.find_duplicates()
                for pair in zip(places.tolist(), firsts.tolist(), strict=True)
            }

    first: dict[int, int] = {}
    wanted = {(n, first[n * n % 1009]) for n in range(3000) if first.setdefault(n * n % 1009, n) != n}
    assert found() == wanted
    monkeypatch.setattr(duplicate_rows, "PART_ROWS", 100)
    assert found() == wanted


def test_memory_does_not_grow_with_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(duplicate_rows, "PART_ROWS", 500)
    monkeypatch.setattr(duplicate_rows, "BUFFER_ROWS", 100)

    def peak(count: int) -> int:
        path = tmp_path / f"{count}.tsv"
        path.write_text("".join(f"text {number}\t{number % 2}\n" for number in range(count)))
        tracemalloc.start()
        try:
            lint(path, kind=LabelledRow, valid=path)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1000)
    assert peak(5_000) < peak(1_000) + 50_000  # 5,000 rows twice, with 32 bytes each, would be 256,000 more


def test_labels_that_differ_only_in_case_or_space_are_remarked(tmp_path: Path) -> None:
    labels = [
        "late bill",
        "late bill",
        "late bill",
        "Late bill",
        "Late  Bill",
        "Late bill",
        "login",
        "login",
        "Late  Bill",
    ]
    lines = [f"text {number},{label}" for number, label in enumerate(labels)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    report = lint(tmp_path / "rows.csv", kind=LabelledRow)
    assert counts(report) == {"label spelling": 4}
    assert examples(report, "label spelling") == ["rows.csv:6", "rows.csv:5"]
    assert "'Late  Bill' and 'late bill'" in report.problems[0].detail
    assert not report.skipped


def test_a_class_of_one_row_is_remarked(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,label\na,x\nb,x\nc,y\n")
    (problem,) = lint(tmp_path / "rows.csv", kind=LabelledRow).problems
    assert (problem.kind, problem.count) == ("class of one row", 1)
    assert problem.detail.startswith("'y'")
    assert problem.examples[0].endswith("rows.csv:4")
