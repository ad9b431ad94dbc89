"""Rows of every task: right by the grammar, the same for the same seed, and files that can be read again."""

import csv
import json
from pathlib import Path

import pytest

from little_world import TASKS, TOPICS, Task, is_grammatical, parse, rows, sentences, translate, write_rows
from little_world.export import ExportError
from triform.errors import TriformError

FIELDS = {
    "complete": {"text"},
    "chat": {"messages"},
    "fill": {"text"},
    "translate": {"source", "target"},
    "summarize": {"source", "target"},
    "classify": {"text", "label"},
    "tag": {"tokens", "tags"},
    "answer": {"question", "context", "answers"},
    "embed": {"first", "second", "score"},
    "search": {"query", "passage"},
}


@pytest.mark.parametrize("task", TASKS)
def test_rows_have_their_fields_and_repeat_with_their_seed(task: Task) -> None:
    made = list(rows(task, split="test", seed=3, count=20))
    assert all(set(row) == FIELDS[task] for row in made)
    assert made == list(rows(task, split="test", seed=3, count=20))
    assert made != list(rows(task, split="test", seed=4, count=20))
    json.dumps(made)


def test_translations_are_the_grammars_own() -> None:
    for row in rows("translate", split="test", seed=1, count=30):
        assert translate(row["source"]) == row["target"]


@pytest.mark.parametrize("label", ["topic", "sentiment"])
def test_labels(label: str) -> None:
    for row in rows("classify", split="test", seed=1, count=30, label=label):  # type: ignore[arg-type]
        found = parse(row["text"])
        assert found is not None
        assert row["label"] == getattr(found, label)


def test_tags_are_those_of_the_sentences() -> None:
    made = sentences(split="valid", seed=9, count=50)
    for row, sentence in zip(rows("tag", split="valid", seed=9, count=50), made, strict=True):
        assert (row["tokens"], row["tags"]) == (list(sentence.tokens), list(sentence.tags))


# --- questions ------------------------------------------------------------------------------------------------------


def sentences_of(passage: str) -> list[str]:
    return [text + "." for text in passage.removesuffix(".").split(". ")]


def test_answers_stand_where_they_are_said_to_stand() -> None:
    asking = set()
    for row in rows("answer", split="train", seed=2, count=300):
        [text], [start] = row["answers"]["text"], row["answers"]["answer_start"]
        assert row["context"][start : start + len(text)] == text
        assert text.strip(" .,") == text
        assert row["question"].endswith("?")
        asking.add(row["question"].split()[0])
    assert asking == {"Who", "What", "Which", "Where", "When"}


def test_a_passage_is_made_of_sentences_of_one_topic_and_split() -> None:
    for row in rows("answer", split="test", seed=2, count=20):
        found = [parse(text) for text in sentences_of(row["context"])]
        assert len(found) == 3
        assert {sentence.split for sentence in found if sentence} == {"test"}
        assert len({sentence.topic for sentence in found if sentence}) == 1


def test_only_one_sentence_answers() -> None:
    """The words of the question stand in one sentence of the passage only."""
    for row in rows("answer", split="train", seed=3, count=200):
        [text], [start] = row["answers"]["text"], row["answers"]["answer_start"]
        spoken = {word.lower() for word in row["question"].strip("?").split()} - {"did", "a", "an", "the"}
        shared = [len(spoken & set(said.lower().strip(".").split())) for said in sentences_of(row["context"])]
        answering = row["context"][: start + len(text)].count(". ")
        assert max(shared) == shared[answering], row


def test_questions_are_english() -> None:
    questions = [row["question"] for row in rows("answer", split="train", seed=5, count=400)]
    assert not [q for q in questions if " did " in q and q.split()[0] in ("Who", "Which")]
    assert all(" did " in q for q in questions if q.split()[0] in ("Where", "When"))
    assert not [q for q in questions if " a a" in q or " an p" in q]


# --- passages, pairs, chats -----------------------------------------------------------------------------------------


def test_a_summary_is_one_sentence_that_says_all() -> None:
    for row in rows("summarize", split="test", seed=1, count=40):
        assert is_grammatical(row["target"])
        passage = row["source"].lower().replace(".", " ").split()
        assert set(row["target"].lower().strip(".").split()) - {"a", "an"} <= set(passage)
        assert row["target"] not in row["source"]
        assert len(sentences_of(row["source"])) == 4


def test_the_more_alike_the_more_words_are_shared() -> None:
    shared: dict[float, list[float]] = {}
    for row in rows("embed", split="train", seed=1, count=1500):
        one, other = (set(row[side].lower().strip(".").split()) for side in ("first", "second"))
        shared.setdefault(row["score"], []).append(len(one & other) / len(one | other))
        assert row["first"] != row["second"]
    assert sorted(shared) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    mean = {score: sum(values) / len(values) for score, values in shared.items()}
    assert mean[0] < mean[1] < mean[2] < mean[3] < mean[4]
    assert mean[5] > mean[3]


def test_paraphrases_mean_the_same() -> None:
    """Both belong to one combination, and both are sentences of the world."""
    for row in rows("embed", split="test", seed=2, count=60):
        one, other = parse(row["first"]), parse(row["second"])
        assert one is not None
        assert other is not None
        if row["score"] >= 3:
            assert one.combination == other.combination
            assert (one.topic, one.sentiment) == (other.topic, other.sentiment)
        if row["score"] == 0:
            assert one.topic != other.topic


def test_chats_alternate_and_end_with_the_assistant() -> None:
    for row in rows("chat", split="train", seed=1, count=60):
        roles = [message["role"] for message in row["messages"]]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        assert all(message["content"] for message in row["messages"])


def test_a_query_is_answered_in_its_passage() -> None:
    asked = rows("answer", split="train", seed=6, count=20)
    for row, question in zip(rows("search", split="train", seed=6, count=20), asked, strict=True):
        assert (row["query"], row["passage"]) == (question["question"], question["context"])


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_json_lines(task: Task, tmp_path: Path) -> None:
    write_rows(task, tmp_path / "rows.jsonl", split="valid", seed=1, count=5)
    lines = (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == list(rows(task, split="valid", seed=1, count=5))


@pytest.mark.parametrize("task", ["complete", "fill", "translate", "summarize", "classify", "embed", "search"])
@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_tables(task: Task, ending: str, delimiter: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows.{ending}"
    write_rows(task, path, split="valid", seed=1, count=5)
    with path.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file, delimiter=delimiter))
    made = list(rows(task, split="valid", seed=1, count=5))
    assert found == [{field: str(value) for field, value in row.items()} for row in made]


def test_two_parallel_files(tmp_path: Path) -> None:
    write_rows("translate", tmp_path / "train.en-de", split="train", seed=1, count=5)
    english, german = ((tmp_path / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de"))
    assert [translate(text) for text in english] == german
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.de", "train.en"]


def test_conll(tmp_path: Path) -> None:
    write_rows("tag", tmp_path / "rows.conll", split="train", seed=1, count=5)
    blocks = (tmp_path / "rows.conll").read_text(encoding="utf-8").strip().split("\n\n")
    found = [[line.split(" ") for line in block.splitlines()] for block in blocks]
    assert found == [
        [[token, tag] for token, tag in zip(row["tokens"], row["tags"], strict=True)]
        for row in rows("tag", split="train", seed=1, count=5)
    ]


def test_squad(tmp_path: Path) -> None:
    write_rows("answer", tmp_path / "rows.json", split="train", seed=1, count=5)
    [article] = json.loads((tmp_path / "rows.json").read_text(encoding="utf-8"))["data"]
    found = [(p["context"], p["qas"][0]["question"], p["qas"][0]["answers"]) for p in article["paragraphs"]]
    made = rows("answer", split="train", seed=1, count=5)
    for (context, question, [answer]), row in zip(found, made, strict=True):
        assert (context, question) == (row["context"], row["question"])
        assert answer == {"text": row["answers"]["text"][0], "answer_start": row["answers"]["answer_start"][0]}


def test_lines_of_text(tmp_path: Path) -> None:
    write_rows("complete", tmp_path / "rows.txt", split="train", seed=1, count=5)
    lines = (tmp_path / "rows.txt").read_text(encoding="utf-8").splitlines()
    assert lines == [row["text"] for row in rows("complete", split="train", seed=1, count=5)]


def test_no_rows_are_a_file_too(tmp_path: Path) -> None:
    for task, ending in (("answer", "json"), ("translate", "csv"), ("chat", "jsonl")):
        write_rows(task, tmp_path / f"none.{ending}", split="train", seed=1, count=0)  # type: ignore[arg-type]
    assert json.loads((tmp_path / "none.json").read_text())["data"][0]["paragraphs"] == []


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows("complete", path, split="train", seed=1, count=2)
    before = path.read_bytes()
    monkeypatch.setattr("little_world.export._to_json", lambda row: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(ExportError, match=r"cannot write .*rows.jsonl: No space left"):
        write_rows("complete", path, split="train", seed=2, count=2)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize(
    ("task", "name", "message"),
    [
        (
            "complete",
            "rows.parquet",
            r"rows.parquet is not a format for complete; use the extension .jsonl or .csv or .tsv or .txt",
        ),
        ("tag", "rows.csv", r"rows.csv is not a format for tag; use the extension .jsonl or .conll"),
        ("tagg", "rows.csv", r"unknown task 'tagg'; did you mean 'tag'\?"),
        ("tag", "nowhere/rows.jsonl", r"cannot write .*nowhere/rows.jsonl: No such file or directory"),
    ],
)
def test_wrong_requests_say_the_way_out(task: Task, name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TriformError, match=message):
        write_rows(task, tmp_path / name, split="train", seed=1, count=1)


def test_an_unknown_label_is_refused() -> None:
    with pytest.raises(TriformError, match="unknown label 'mood'"):
        rows("classify", split="train", seed=1, count=1, label="mood")  # type: ignore[arg-type]


def test_topics_are_the_labels() -> None:
    assert {row["label"] for row in rows("classify", split="train", seed=1, count=200)} == set(TOPICS)
