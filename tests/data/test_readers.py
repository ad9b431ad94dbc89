"""Every format says the same rows; a bad row costs itself only; a file of any size is read in the same memory."""

import csv
import gzip
import io
import json
import os
import tracemalloc
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triform.data import json_rows, line_reader, table_rows, text_rows
from triform.data.columns import Layout
from triform.data.input_paths import find_splits
from triform.data.line_reader import DataError
from triform.data.readers import read, read_placed
from triform.data.rows import (
    ROW_TYPES,
    AnsweredQuestionRow,
    AnswerInContext,
    BadRow,
    ChatRow,
    DataRow,
    DocumentRow,
    LabelledRow,
    Message,
    PairRow,
    ScoredPairRow,
    TaggedRow,
    TextRow,
)
from triform.errors import TriformError

some = settings(max_examples=30, deadline=None)  # files are slow and machines are shared

# Texts with everything that breaks careless readers: quotes, commas, tabs, U+2028, a BOM; but no NUL, and not blank.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).filter(str.strip)
one_line = texts.map(lambda text: text.replace("\n", " ").replace("\r", " ")).filter(str.strip)
words = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1)
names = st.sampled_from(["person", "place", "creative-work"])


def write(path: Path, content: str | bytes) -> Path:
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def good(path: Path | str, kind: type[DataRow]) -> list[DataRow]:
    rows = list(read(path, kind=kind))
    assert not [row for row in rows if isinstance(row, BadRow)]
    return rows


def counts(path: Path | str, kind: type[DataRow]) -> dict[str, int]:
    return dict(Counter(row.kind if isinstance(row, BadRow) else "good" for row in read(path, kind=kind)))


def bad(path: Path | str, kind: type[DataRow]) -> list[tuple[int, str]]:
    return [(row.line, row.kind) for row in read(path, kind=kind) if isinstance(row, BadRow)]


# --- round trips: what is written is what is read -------------------------------------------------------------------


@some
@given(rows=st.lists(st.tuples(texts, words), min_size=1), ending=st.sampled_from([".csv", ".csv.gz"]))
def test_csv_keeps_every_character(rows: list[tuple[str, str]], ending: str, tmp_path_factory: pytest.TempPathFactory):
    table = io.StringIO()
    # A cell that ends its line in a lone \r is written unquoted by nobody else but read as a line end: quote them all.
    csv.writer(table, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([("Text", "LABEL"), *rows])
    path = write(tmp_path_factory.getbasetemp() / f"table{ending}", table.getvalue())
    wanted = [LabelledRow(text.replace("\r\n", "\n"), (label,)) for text, label in rows]
    assert good(path, LabelledRow) == wanted


@some
@given(rows=st.lists(st.tuples(texts, texts), min_size=1), ending=st.sampled_from([".jsonl", ".jsonl.gz", ".json"]))
def test_json_keeps_every_character(rows: list[tuple[str, str]], ending: str, tmp_path_factory: pytest.TempPathFactory):
    records = [{"id": number, "source": source, "target": target} for number, (source, target) in enumerate(rows)]
    content = json.dumps(records) if ending == ".json" else "\n".join(map(json.dumps, records))
    path = write(tmp_path_factory.getbasetemp() / f"records{ending}", content)
    assert good(path, PairRow) == [PairRow(source, target) for source, target in rows]


@some
@given(rows=st.lists(st.tuples(one_line, one_line), min_size=1), packed=st.booleans())
def test_parallel_lines_by_two_paths_and_by_stem(
    rows: list[tuple[str, str]], packed: bool, tmp_path_factory: pytest.TempPathFactory
):
    folder = tmp_path_factory.mktemp("parallel")
    gz = ".gz" if packed else ""
    one = write(folder / f"train.en{gz}", "\n".join(source for source, _ in rows))
    other = write(folder / f"train.de{gz}", "".join(target + "\r\n" for _, target in rows))
    pairs = [PairRow(source, target) for source, target in rows]
    assert list(read([one, other], kind=PairRow)) == pairs
    assert good(folder / "train.en-de", PairRow) == pairs
    assert good(folder / "train.de-en", PairRow) == [PairRow(pair.target, pair.source) for pair in pairs]


@some
@given(
    sentences=st.lists(
        st.lists(st.tuples(words, st.one_of(st.just("O"), names.map("B-{}".format))), min_size=1), min_size=1
    ),
    middle=st.sampled_from(["\t", " ", "\tNN\tB-NP\t", " NN "]),
    between=st.sampled_from(["\n", "\t\n", "\n\n \n"]),
)
def test_conll_of_any_width(sentences, middle: str, between: str, tmp_path_factory: pytest.TempPathFactory):
    blocks = ["".join(f"{word}{middle}{tag}\n" for word, tag in sentence) for sentence in sentences]
    path = write(
        tmp_path_factory.getbasetemp() / "words.conll", f"-DOCSTART- -X- O O\n{between}" + between.join(blocks)
    )
    wanted = [TaggedRow(*map(tuple, zip(*sentence, strict=True))) for sentence in sentences]
    comments = {"#", "-DOCSTART-"}
    if not any(word in comments for sentence in sentences for word, _ in sentence):
        assert good(path, TaggedRow) == wanted


@some
@given(
    paragraphs=st.lists(st.tuples(words, words, words, st.lists(texts, min_size=1)), min_size=1),
    indent=st.sampled_from([None, 2]),
    block=st.integers(100, 300),
)
def test_squad_paragraph_by_paragraph(paragraphs, indent, block: int, tmp_path_factory: pytest.TempPathFactory):
    def one(before: str, answer: str, after: str, questions: list[str]) -> dict:
        qas = [{"question": q, "answers": [{"text": answer, "answer_start": len(before)}]} for q in questions]
        return {"context": before + answer + after, "qas": qas}

    data = {"version": "1", "data": [{"title": "{[", "paragraphs": [one(*each)]} for each in paragraphs]}
    path = write(tmp_path_factory.getbasetemp() / "squad.json", json.dumps(data, indent=indent, ensure_ascii=False))
    wanted = [
        AnsweredQuestionRow(question, before + answer + after, (AnswerInContext(answer, len(before)),))
        for before, answer, after, questions in paragraphs
        for question in questions
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_rows, "BLOCK", block)  # so small that strings, keys and objects are cut everywhere
        assert good(path, AnsweredQuestionRow) == wanted


@some
@given(lines=st.lists(one_line | st.just("")), piece=st.integers(1, 40))
def test_documents_joined_are_the_file(lines: list[str], piece: int, tmp_path_factory: pytest.TempPathFactory):
    text = "".join(line + "\n" for line in ["start", *lines])
    path = write(tmp_path_factory.getbasetemp() / "book.txt", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_rows, "PIECE", piece)
        rows = good(path, DocumentRow)
    assert "".join(row.text for row in rows) == text
    assert [row.goes_on for row in rows] == [True] * (len(rows) - 1) + [False]


def test_chat_and_labels_and_scores(tmp_path: Path):
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    chat = write(tmp_path / "chat.jsonl", json.dumps({"messages": turns}))
    assert good(chat, ChatRow) == [ChatRow((Message("user", "Hi"), Message("assistant", "Hello")))]
    records = [
        {"text": "a", "labels": ["x", "y"]},
        {"text": "b", "label": 1},
        {"text": "c", "label": True},
        {"text": "d", "labels": []},
    ]
    many = write(tmp_path / "many.jsonl", "\n".join(map(json.dumps, records)))
    assert [row.labels for row in good(many, LabelledRow)] == [("x", "y"), ("1",), ("true",), ()]
    scores = write(tmp_path / "scores.tsv", "sentence_1\tsentence_2\tscore\na\tb\t1e-1\n")
    assert good(scores, ScoredPairRow) == [ScoredPairRow("a", "b", 0.1)]


def test_several_targets_and_sentences_as_lists(tmp_path: Path):
    path = write(tmp_path / "a.jsonl", '{"source": ["One.", "Two."], "target": ["First.", "Second."]}')
    assert good(path, PairRow) == [PairRow("One. Two.", "First.", ("Second.",))]


def test_answers_in_every_shape(tmp_path: Path):
    asked = {"question": "who", "context": "we two, we all"}
    wanted = (AnswerInContext("we", 8),)
    shapes = [
        {"answers": {"text": ["we"], "answer_start": [8]}},
        {"answers": [{"text": "we", "answer_start": 8}]},
        {"answers": ["we"], "starts": [8]},
        {"answer": "we", "start": 8},
    ]
    path = write(tmp_path / "a.jsonl", "\n".join(json.dumps(asked | shape) for shape in shapes))
    assert [row.answers for row in good(path, AnsweredQuestionRow)] == [wanted] * 4
    found = write(tmp_path / "b.csv", 'question,context,answer\nwho,"we two, we all",we\nwhen,"we two, we all",\n')
    assert [row.answers for row in good(found, AnsweredQuestionRow)] == [(AnswerInContext("we", 0),), ()]


def test_parquet(tmp_path: Path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    records = [{"translation": {"en": f"dog {n}", "de": f"Hund {n}"}} for n in range(3000)] + [{"translation": None}]
    parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "a.parquet")
    columns = {"source": "translation.en", "target": "translation.de"}
    *rows, last = read(tmp_path / "a.parquet", kind=PairRow, layout=Layout(columns))
    assert rows == [PairRow(f"dog {n}", f"Hund {n}") for n in range(3000)]
    assert (last.line, last.kind) == (3001, "wrong type")
    with pytest.raises(DataError, match="not a complete Parquet file"):
        list(read(write(tmp_path / "b.parquet", "PAR1 no"), kind=PairRow))


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(DataError, match="pip install pyarrow"):
        list(read(write(tmp_path / "a.parquet", "PAR1"), kind=TextRow))


# --- bad rows: counted as what they are, and the next one is read ---------------------------------------------------


def test_bad_lines_of_text(tmp_path: Path):
    raw = b"\xef\xbb\xbffine\n\n  \t \nb\xffd\nn\0l\n" + b"x" * 100 + b"\nlast \xe2\x80\xa8 line\r\n"
    assert counts(write(tmp_path / "a.txt", raw), TextRow) == {"good": 3, "blank": 2, "invalid UTF-8": 1, "NUL": 1}
    rows = list(read(tmp_path / "a.txt", kind=TextRow))
    assert rows[0] == TextRow("fine")
    assert rows[-1] == TextRow("last \u2028 line")


def test_a_line_beyond_measure_is_skipped_and_the_next_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(line_reader, "MAX_LINE_BYTES", 1000)
    path = write(tmp_path / "a.txt", "x" * 999 + "\n" + "y" * 5000 + "\nz\n" + "w" * 1000)
    assert bad(path, TextRow) == [(2, "too long"), (4, "too long")]


def test_a_million_characters_are_a_row(tmp_path: Path):
    assert good(write(tmp_path / "a.txt", "x" * 1_000_000), TextRow) == [TextRow("x" * 1_000_000)]


def test_bad_rows_of_csv(tmp_path: Path):
    lines = [
        b"text,label",
        b"fine,1",
        b'"opened, never closed,1',  # 3: costs its own line only
        b"fine,0",
        b"",  # 5
        b"b\xffd,1",  # 6
        b"n\0l,1",  # 7
        b"one cell",  # 8
        b"a,b,c",  # 9
        b",1",  # 10
        b"no label,",  # 11
        b'"junk"after,1',  # 12
        b'"two',
        b'lines",1',
        b'6" pipe,1',
        b"last,0",
    ]
    path = write(tmp_path / "a.csv", b"\n".join(lines))
    assert bad(path, LabelledRow) == [
        (3, "broken CSV"),
        (5, "blank"),
        (6, "invalid UTF-8"),
        (7, "NUL"),
        (8, "wrong columns"),
        (9, "wrong columns"),
        (10, "blank"),
        (11, "missing field"),
        (12, "broken CSV"),
    ]
    rows = [row.text for row in read(path, kind=LabelledRow) if isinstance(row, LabelledRow)]
    assert rows == ["fine", "fine", "two\nlines", '6" pipe', "last"]


def test_an_endless_quote_costs_its_own_line_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table_rows, "MAX_LINE_BYTES", 1000)
    path = write(tmp_path / "a.csv", 'text,label\n"open,1\n' + "fine,0\n" * 500)
    assert bad(path, LabelledRow) == [(2, "broken CSV")]
    assert counts(path, LabelledRow)["good"] == 500


def test_a_sentence_and_an_object_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(text_rows, "MAX_LINE_BYTES", 1000)
    path = write(tmp_path / "a.conll", "a\tO\n" * 900 + "\nb\tO\n")
    assert bad(path, TaggedRow) == [(900, "too long")]
    monkeypatch.setattr(json_rows, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(json_rows, "BLOCK", 100)
    refuse(
        write(tmp_path / "a.json", '[{"text": "' + "a" * 2000 + '"}]'),
        TextRow,
        "an object that does not end, after line 1",
    )
    refuse(write(tmp_path / "b.json", "[" * 3000), TextRow, "an object that does not end, after line 1")


def test_bad_rows_of_tsv_and_a_quote_is_a_character(tmp_path: Path):
    path = write(tmp_path / "a.tsv", 'a\t1\n"open\t0\nb\n\t\nc\td\te\n')
    assert counts(path, LabelledRow) == {"good": 2, "wrong columns": 2, "blank": 1}


def test_bad_lines_of_json(tmp_path: Path):
    lines = [
        b'{"first": "a", "second": "b", "score": 1}',
        b"",
        b"{",
        b'["a", "b", 1]',
        b'{"first": "a", "score": 1}',
        b'{"first": 7, "second": "b", "score": 1}',
        b'{"first": "a", "second": "b", "score": NaN}',
        b'{"first": "a", "second": "b", "score": 1e999}',
        b'{"first": "a", "second": "b", "score": "three"}',
        b'{"first": "\xff", "second": "b", "score": 1}',
        b'{"first": "\\u0000", "second": "b", "score": 1}',
        b'{"first": "\\ud800", "second": "b", "score": 1}',
        b'{"first": " ", "second": "b", "score": 1}',
        b"[" * 100_000,
    ]
    assert counts(write(tmp_path / "a.jsonl", b"\n".join(lines)), ScoredPairRow) == {
        "good": 1,
        "blank": 2,
        "not JSON": 2,
        "wrong type": 2,
        "missing field": 1,
        "not a number": 3,
        "invalid UTF-8": 2,
        "NUL": 1,
    }


def test_bad_sentences_of_conll(tmp_path: Path):
    raw = b"a\tO\nb\tB-x\n\nalone\n\nc\tO\nd\tS-x\n\ne\tO\n\xff\tO\n\nf\t\n\n# id 7\tdomain=en\n# O\ng\tI-x\n\nh\n"
    path = write(tmp_path / "a.conll", raw)
    columns = [(4, "wrong columns"), (12, "wrong columns"), (18, "wrong columns")]
    assert bad(path, TaggedRow) == sorted([*columns, (6, "not BIO"), (10, "invalid UTF-8")])
    rows = [row for row in read(path, kind=TaggedRow) if isinstance(row, TaggedRow)]
    assert rows[-1] == TaggedRow(("#", "g"), ("O", "I-x"))


def test_bad_pairs(tmp_path: Path):
    write(tmp_path / "train.en", b"a\n\nc\nd\xff\ne\n")
    write(tmp_path / "train.de", b"A\nB\n \nD\nE\0\n")
    assert counts(tmp_path / "train.en-de", PairRow) == {"good": 1, "blank": 2, "invalid UTF-8": 1, "NUL": 1}


def test_bad_questions(tmp_path: Path):
    def qa(**answer: object) -> dict:
        return {"question": "who", "answers": [answer]}

    qas = [
        qa(text="we", answer_start=4),
        qa(text="they", answer_start=0),
        qa(text="we", answer_start=5),
        qa(text="we", answer_start=-3),
        qa(text="we", answer_start="x"),
        qa(answer_start=4),
        {"question": "unanswerable", "answers": [], "is_impossible": True},
        {"question": "", "answers": []},
        {"answers": []},
        "junk",
    ]
    data = {"data": [{"paragraphs": [{"context": "and we went", "qas": qas}, {"context": "no questions"}]}]}
    assert counts(write(tmp_path / "a.json", json.dumps(data)), AnsweredQuestionRow) == {
        "good": 2,
        "answer not in context": 3,
        "not a number": 1,
        "wrong type": 2,
        "blank": 1,
        "missing field": 2,
    }


@pytest.mark.parametrize("block", [20, 1000])
def test_a_broken_element_of_an_array_costs_itself_only(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_rows, "BLOCK", block)
    path = write(tmp_path / "a.json", '[{"text": "a"},\n{"text": b},\n\n {"text":\n"c"},\n{"text": d}, {"text": e}]')
    assert bad(path, TextRow) == [(2, "not JSON"), (4, "not JSON"), (5, "not JSON")]
    assert [each.line for each in read_placed(path, kind=TextRow)] == [1, 2, 3, 4, 5]
    assert str(next(each for each in read(path, kind=TextRow) if isinstance(each, BadRow))).startswith(
        f"{path}:item 2: not"
    )


def test_bad_messages(tmp_path: Path):
    turns = [[], [{"role": "king", "content": "a"}], [{"role": "user"}], [{"role": "user", "content": " "}], "hello"]
    fine = [{"role": "user", "content": "a"}]
    path = write(tmp_path / "a.jsonl", "\n".join(json.dumps({"messages": each}) for each in [*turns, fine]))
    assert counts(path, ChatRow) == {"blank": 2, "wrong type": 3, "good": 1}


@some
@given(raw=st.binary(max_size=300) | st.text('"{}[],\t\n:aO-\\').map(str.encode), kind=st.sampled_from(ROW_TYPES))
def test_no_bytes_can_do_more_harm_than_one_clear_error(raw, kind, tmp_path_factory: pytest.TempPathFactory):
    for ending in (".txt", ".csv", ".tsv", ".json", ".jsonl", ".conll", ".jsonl.gz"):
        path = tmp_path_factory.getbasetemp() / f"noise{ending}"
        path.write_bytes(raw)
        with suppress(TriformError):
            assert all(isinstance(row, kind | BadRow) for row in read(path, kind=kind))


# --- columns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("sentence1,sentence2,score\na,b,3\n", None),
        ("id,Sentence 1,Sentence-2,SCORE\n0,a,b,3\n", None),
        ("score,second,first\n3,b,a\n", None),
        ("a,b,3\n", None),
        ("first;second;score\na;b;3\n", None),
        ("Sentence1,sentence_1,sentence2,score\na,x,b,3\n", None),
        ("x,left,right,mark\n0,a,b,3\n", {"first": "left", "second": "right", "score": "mark"}),
        ("x,sentence1,right,score\n0,a,b,3\n", {"second": "right"}),
        ("3,x,b,a\n", {"first": 3, "second": 2, "score": 0}),
    ],
)
def test_columns_by_usual_name_by_place_and_as_asked(content: str, columns, tmp_path: Path):
    rows = list(read(write(tmp_path / "a.csv", content), kind=ScoredPairRow, layout=Layout(columns or {})))
    assert rows == [ScoredPairRow("a", "b", 3.0)]


@pytest.mark.parametrize(
    ("content", "columns", "says"),
    [
        ("phrase,sentiment\na,1\n", None, "no text among its columns 'phrase', 'sentiment'"),
        ("a,b,c\n", None, "no text and no labels"),
        ("text,label\na,1\n", {"text": "phrase"}, "no column 'phrase'; it has 'text', 'label'"),
        ("a,1\n", {"text": 0, "labels": 2}, "the columns 0 to 1"),
        ("a,1\n", {"txt": "a"}, "did you mean 'text'"),
        ("phrase,label\na,1\n", {"text": "phrase.en"}, "no column .phrase.en.; it has .phrase."),
    ],
)
def test_columns_that_are_not_there(content: str, columns, says: str, tmp_path: Path):
    with pytest.raises(TriformError, match=says):
        list(read(write(tmp_path / "a.csv", content), kind=LabelledRow, layout=Layout(columns or {})))


def test_a_value_inside_a_value(tmp_path: Path):
    path = write(tmp_path / "a.jsonl", '{"translation": {"en": "dog", "de": "Hund"}}')
    columns = {"source": "translation.en", "target": "translation.de"}
    assert list(read(path, kind=PairRow, layout=Layout(columns))) == [PairRow("dog", "Hund")]


# --- whole files ----------------------------------------------------------------------------------------------------


def refuse(paths: object, kind: type[DataRow], says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        list(read(paths, kind=kind))
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path):
    write(tmp_path / "train.csv", "text,label\na,1\n")
    refuse(tmp_path / "tran.csv", LabelledRow, "there is no file .*tran.csv; did you mean train.csv")
    refuse(write(tmp_path / "empty.txt", ""), TextRow, "has no rows")
    refuse(write(tmp_path / "head.csv", "text,label\n"), LabelledRow, "has no rows")
    refuse(
        write(tmp_path / "blank.txt", "\n\n"),
        TextRow,
        "blank.txt has no good text rows; the first problem is .*:1: blank",
    )
    refuse(write(tmp_path / "a.doc", "x"), TextRow, "is not one for text rows; use one of .txt")
    refuse(write(tmp_path / "a.txt", "x"), ScoredPairRow, "is not one for scored pair rows")
    refuse(write(tmp_path / "wide.txt", "hi".encode("utf-16")), TextRow, "is UTF-16")
    refuse(write(tmp_path / "cut.json", '[{"text": "a"}, {"te'), TextRow, "ends in the middle of its JSON")
    refuse([], TextRow, "no data files were given")
    with pytest.raises(DataError, match="not a folder"):
        find_splits(tmp_path / "train.csv", kind=TextRow)
    (tmp_path / "notes").mkdir()
    write(tmp_path / "notes" / "README.md", "about")
    refuse(tmp_path / "notes", TextRow, "has no text rows")


def test_errors_come_at_the_call_and_not_at_the_first_row():
    with pytest.raises(DataError):
        read("nowhere.csv", kind=TextRow)


def test_damaged_gzip(tmp_path: Path):
    whole = gzip.compress(os.urandom(3000).hex().encode() + b"\n" * 2)
    (tmp_path / "a.txt.gz").write_bytes(whole[:-900])
    refuse(tmp_path / "a.txt.gz", TextRow, "is not a complete gzip file")
    (tmp_path / "b.txt.gz").write_bytes(b"plain")
    refuse(tmp_path / "b.txt.gz", TextRow, "is not a complete gzip file")


def test_unequal_parallel_files(tmp_path: Path):
    write(tmp_path / "train.en", "a\nb\nc\n")
    write(tmp_path / "train.de", "A\nB\n")
    refuse(tmp_path / "train.en-de", PairRow, "train.en has 3 lines, train.de has 2")
    refuse(tmp_path / "train.en-fr", PairRow, "there is no file .*train.fr")


def test_a_folder_by_usual_names(tmp_path: Path):
    for name in ("my-train.csv", "my-dev.csv", "test_2016.csv.gz", "README.csv", "latest.csv", "train.txt"):
        write(tmp_path / name, f"text,label\n{name},1\n")
    found = find_splits(tmp_path, kind=LabelledRow)
    assert [[path.name for path in part] for part in found] == [["my-train.csv"], ["my-dev.csv"], ["test_2016.csv.gz"]]
    assert good(tmp_path, LabelledRow) == [LabelledRow("my-train.csv", ("1",))]
    (tmp_path / "my-train.csv").unlink()
    assert good(tmp_path, LabelledRow) == [LabelledRow("latest.csv", ("1",))]


def test_a_folder_of_parallel_files_asks_for_the_direction(tmp_path: Path):
    for name in ("train.en.gz", "train.de.gz"):
        write(tmp_path / name, "a\n")
    refuse(tmp_path, PairRow, "name the direction: .*train.de-en")


def test_several_files_in_their_order_with_places(tmp_path: Path):
    paths = [write(tmp_path / f"{name}.txt", f"{name}\n\n{name}\n") for name in "ba"]
    found = [(Path(each.file).name, each.line, type(each).__name__) for each in read_placed(paths, kind=TextRow)]
    one = [("b.txt", 1, "PlacedRow"), ("b.txt", 2, "BadRow"), ("b.txt", 3, "PlacedRow")]
    assert found == one + [("a.txt", line, what) for _, line, what in one]


# --- memory ---------------------------------------------------------------------------------------------------------


def peak(path: Path, kind: type[DataRow]) -> int:
    tracemalloc.start()
    try:
        for _ in read(path, kind=kind):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".json", ".txt", ".csv.gz"])
def test_ten_times_the_file_in_the_same_memory(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def content(count: int) -> str:
        records = [f"text number {number} of a file that could be of any length" for number in range(count)]
        if "json" in ending:
            lines = [json.dumps({"text": record}) for record in records]
            return "[" + ",\n".join(lines) + "]" if ending == ".json" else "\n".join(lines)
        return "text\n" + "\n".join(records)

    monkeypatch.setattr(json_rows, "BLOCK", 1 << 12)
    monkeypatch.setattr(text_rows, "PIECE", 1 << 12)
    small = write(tmp_path / f"small{ending}", content(500))
    large = write(tmp_path / f"large{ending}", content(5_000))
    kind = DocumentRow if ending == ".txt" else TextRow
    peak(small, kind)  # what is imported and cached on the way
    assert peak(large, kind) < peak(small, kind) + 50_000


def test_keeping_the_rows_would_be_noticed(tmp_path: Path):
    path = write(tmp_path / "a.txt", "one line of text\n" * 5_000)
    tracemalloc.start()
    kept = list(read(path, kind=TextRow))
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert held > peak(path, TextRow) + 50_000
    assert len(kept) == 5_000


# --- what people have -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind", "rows"),
    [
        ("stsb", ScoredPairRow, 5749),
        ("stsb/stsb-en-test.csv", ScoredPairRow, 1379),
        ("sst2", LabelledRow, 6920),
        ("wnut17", TaggedRow, 3394),
        ("wnut17/emerging.dev.conll", TaggedRow, 1009),
        ("wnut17/emerging.test.annotated", TaggedRow, 1287),
        ("xquad", AnsweredQuestionRow, 1190),
        ("scitldr", PairRow, 1992),
        ("multi30k/val.en-de", PairRow, 1014),
    ],
)
def test_real_data_sets_have_the_rows_their_authors_say(path: str, kind: type[DataRow], rows: int, shared: Path):
    assert len(good(shared / path, kind)) == rows


def test_shakespeare_to_the_character(shared: Path):
    path = shared / "tinyshakespeare" / "input.txt"
    assert "".join(row.text for row in good(path, DocumentRow)) == path.read_text()
