"""Rows that are judged by are never learned from, and are the same ones every time."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triform.data.array_store import FolderCache
from triform.data.line_reader import DataError
from triform.data.row_sample import sample_rows
from triform.data.rows import AnsweredQuestionRow, AnswerInContext, DocumentRow, LabelledRow
from triform.pipeline.splits import FEW_DOCUMENTS, collect_rows, hold_out, split_rows
from triform.tasks.classify import ClassifyTask

texts = st.lists(st.sampled_from("abcdefghij"), min_size=2, max_size=60)


@given(texts, st.floats(0.01, 0.9), st.randoms())
def test_held_out_rows_are_never_learned_whatever_their_order(
    names: list[str], share: float, random: "st.random.Random"
) -> None:
    rows = [LabelledRow(text, (str(number),)) for number, text in enumerate(names)]
    train, valid = split_rows(rows, share=share)
    assert sorted((*train, *valid), key=repr) == sorted(rows, key=repr)
    assert not {row.text for row in train} & {row.text for row in valid}
    if len(set(names)) > 1:
        assert train
        assert valid
    mixed = list(rows)
    random.shuffle(mixed)
    assert sorted(split_rows(mixed, share=share)[1], key=repr) == sorted(valid, key=repr)


def test_one_row_is_only_learned_from_and_no_share_holds_nothing() -> None:
    row = LabelledRow("a", ("x",))
    assert tuple(map(list, split_rows([row], share=0.5))) == ([row], [])
    assert split_rows([row, LabelledRow("b", ("x",))], share=0.0)[1] == []


def test_questions_about_one_text_stay_together() -> None:
    rows = [AnsweredQuestionRow(f"who {n}", f"text {n // 4}", (AnswerInContext("text", 0),)) for n in range(40)]
    train, valid = split_rows(rows, share=0.3)
    assert len(valid) == 12
    assert not {row.context for row in train} & {row.context for row in valid}


@given(st.lists(st.text("ab \n", min_size=1, max_size=40), min_size=1, max_size=FEW_DOCUMENTS), st.floats(0.05, 0.5))
def test_of_few_documents_the_common_end_is_held_out(parts: list[str], share: float) -> None:
    rows = [DocumentRow(text, goes_on=number % 2 == 0) for number, text in enumerate(parts)]
    train, valid = split_rows(rows, share=share)
    assert "".join(row.text for row in (*train, *valid)) == "".join(parts)
    assert sum(len(row.text) for row in train) <= (1 - share) * sum(map(len, parts)) + 1
    assert not train or not valid or not train[-1].goes_on  # what follows is not learned


def test_of_many_documents_some_are_held_out_whole() -> None:
    rows = [DocumentRow(f"{number}{part}", goes_on=part == "a") for number in range(FEW_DOCUMENTS + 1) for part in "ab"]
    train, valid = split_rows(rows, share=0.2)
    assert len(valid) == 8
    assert all(one.text[:-1] == two.text[:-1] for one, two in zip(valid[::2], valid[1::2], strict=True))
    assert not {row.text for row in train} & {row.text for row in valid}


def test_an_evaluation_reads_only_a_part() -> None:
    rows = [LabelledRow(str(number), ()) for number in range(1000)]
    some = sample_rows(rows, most=50)
    assert len(set(some)) == 50
    assert some == sample_rows(rows, most=50)
    assert some != rows[:50]
    assert [len(row.text) for row in sample_rows([DocumentRow("a" * 900), DocumentRow("b" * 900)], most=2)] == [
        900,
        100,
    ]


def test_a_folder_brings_its_own_validation_rows(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\none,a\ntwo,b\nthree,a\nfive,b\n")
    (tmp_path / "dev.csv").write_text("text,label\nfour,a\none,a\n")
    cache = FolderCache(tmp_path / "cache")
    found = hold_out(collect_rows(ClassifyTask(), tmp_path, valid=None, cache=cache), share=0.5)
    assert (len(found.train), len(found.valid), found.held_out) == (4, 2, False)
    assert [problem.kind for problem in found.report.problems] == ["leak"]
    assert set(found.valid_files) == {str(tmp_path / "dev.csv")}
    with pytest.raises(DataError, match="refused: 1 leak"):
        collect_rows(ClassifyTask(), tmp_path, valid=None, cache=cache, strict=True)
