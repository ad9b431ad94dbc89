"""classify, tag, answer, embed, index and search as a person meets them."""

import io
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_tasks import LABELLED, QUESTIONS, SCORED, TAGGED, begun

from triform.cli import main
from triform.model import Model
from triform.tasks import get_task
from triform.weights import model_folder
from triform.weights.model_folder import load


def run(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for name, rows in {"classify": LABELLED, "tag": TAGGED, "answer": QUESTIONS, "embed": SCORED}.items():
        model_folder.write(root / name, model=begun(get_task(name), rows))
    return root


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_bytes("Jack loves Rome.\n\nRose hates \u65e5\u672c.\n".encode() + b"bad \xff\n")
    return path


def test_shards_are_of_one_model_by_its_weights_wherever_it_lies(
    capsys: pytest.CaptureFixture[str], models: Path, lines: Path, tmp_path: Path
) -> None:
    moved, other = (tmp_path / place / "embed" for place in ("moved", "other"))
    shutil.copytree(models / "embed", moved)
    shutil.copytree(models / "embed", other)
    changed = load(other)
    next(changed.network.parameters()).data += 1
    changed.save(other)
    for number, model in enumerate((models / "embed", moved, other)):
        shard = ("--shard", f"{min(number, 1)}/2", "--out", tmp_path / f"part{number}.jsonl")
        assert run(capsys, "embed", model, "--file", lines, *shard)[0] == 0
    out, part0, part1, part2 = (tmp_path / f"{name}.jsonl" for name in ("out", "part0", "part1", "part2"))
    code, _, err = run(capsys, "merge", out, part0, part2)
    assert (code, "are of different runs: model is" in err) == (2, True)
    assert run(capsys, "merge", out, part0, part1)[0] == 0
    assert run(capsys, "embed", models / "embed", "--file", lines, "--out", tmp_path / "whole.jsonl")[0] == 0
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_classify_one_text_and_a_file(capsys: pytest.CaptureFixture[str], models: Path, lines: Path) -> None:
    code, out, _ = run(capsys, "classify", models / "classify", "Jack loves Rome.")
    assert code == 0
    assert "good" in out
    assert "%" in out
    code, out, err = run(capsys, "classify", models / "classify", "--file", lines, "--json", "--top", "1")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [sorted(row) for row in rows] == [
        ["chances", "labels"],
        ["skipped"],
        ["chances", "labels", "unknown"],
        ["skipped"],
    ]
    assert len(rows[0]["chances"]) == 1
    assert "skipped 2 of 4: 1 blank, 1 invalid UTF-8" in err
    assert "unknown tokens: 2" in err


def test_tag_from_standard_input(
    capsys: pytest.CaptureFixture[str], models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Jack went to Rome.\nRose\n")))
    code, out, _ = run(capsys, "tag", models / "tag", "--json")
    assert code == 0
    for line, text in zip(out.splitlines(), ["Jack went to Rome.", "Rose"], strict=True):
        assert all(text[one["start"] : one["end"]] == one["text"] for one in json.loads(line)["entities"])


def test_tag_reads_its_own_format(capsys: pytest.CaptureFixture[str], models: Path, tmp_path: Path) -> None:
    rows = [zip(row.tokens, row.tags, strict=True) for row in TAGGED[:3]]
    (tmp_path / "test.conll").write_text("\n\n".join("\n".join(f"{word} {tag}" for word, tag in row) for row in rows))
    code, out, _ = run(capsys, "tag", models / "tag", "--file", tmp_path / "test.conll", "--json")
    plain = run(capsys, "tag", models / "tag", *(" ".join(row.tokens) for row in TAGGED[:3]), "--json")
    assert (code, out) == plain[:2]


def test_what_was_unseen_cut_or_unknown_is_told_where_a_model_is_judged(
    capsys: pytest.CaptureFixture[str], models: Path, tmp_path: Path
) -> None:
    (tmp_path / "test.conll").write_text("Jack B-person\nloves O\nRome B-river\n\nRose B-person\n\u65e5 O\n")
    code, out, err = run(capsys, "eval", models / "tag", tmp_path / "test.conll")
    assert code == 0
    assert "unseen_label" in out
    assert "unknown tokens: 1" in err
    said = json.loads(run(capsys, "eval", models / "tag", tmp_path / "test.conll", "--json")[1])
    assert said["unknown"] == 1
    assert next(iter(said["scores"].values()))["values"]["unseen_label"] == 1


def test_answer_with_a_context_and_with_a_file(
    capsys: pytest.CaptureFixture[str], models: Path, tmp_path: Path
) -> None:
    (tmp_path / "context.txt").write_text("Jack went to Rome.\nRose went to Paris.\n")
    code, out, _ = run(capsys, "answer", models / "answer", "Where?", "--context", tmp_path / "context.txt", "--json")
    found = json.loads(out)
    assert code == 0
    assert (tmp_path / "context.txt").read_text()[found["start"] : found["end"]] == found["text"]
    rows = [{"question": row.question, "context": row.context, "answers": [row.answers[0].text]} for row in QUESTIONS]
    (tmp_path / "squad.jsonl").write_text("\n".join(map(json.dumps, rows)))
    code, out, _ = run(capsys, "answer", models / "answer", "--file", tmp_path / "squad.jsonl")
    assert code == 0
    assert len(out.splitlines()) == len(QUESTIONS)
    for row in rows:
        del row["answers"]
    (tmp_path / "asked.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert run(capsys, "answer", models / "answer", "--file", tmp_path / "asked.jsonl")[:2] == (0, out)
    assert run(capsys, "run", models / "answer", "--file", tmp_path / "asked.jsonl")[:2] == (0, out)
    code, again, _ = run(capsys, "run", models / "answer", "Where?", "--context", tmp_path / "context.txt", "--json")
    assert (code, json.loads(again)) == (0, found)
    code, _, err = run(capsys, "run", models / "tag", "Jack", "--context", tmp_path / "context.txt")
    assert (code, "takes no --context" in err) == (2, True)
    code, _, err = run(capsys, "answer", models / "answer", "Where?")
    assert (code, "needs a text" in err) == (2, True)
    code, _, err = run(capsys, "answer", models / "answer", "Where?", "--context", tmp_path / "nowhere.txt")
    assert (code, "cannot read" in err) == (2, True)


def test_embed_into_one_file(capsys: pytest.CaptureFixture[str], models: Path, lines: Path, tmp_path: Path) -> None:
    out = tmp_path / "vectors.safetensors"
    code, _, err = run(capsys, "embed", models / "embed", "--file", lines, "--out", out)
    assert code == 0
    assert "4 vectors of 16 numbers" in err
    vectors = load_file(out)["vectors"]
    torch.testing.assert_close(vectors[[0]], load(models / "embed").embed(["Jack loves Rome."]))
    assert vectors.isnan().all(1).tolist() == [False, True, False, True]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lines.txt", "vectors.safetensors"]
    code, _, err = run(capsys, "embed", models / "embed", "Jack", "--out", out)
    assert (code, "already there" in err) == (2, True)
    code, shown, _ = run(capsys, "embed", models / "embed", "Jack")
    assert (code, len(shown.split())) == (0, 16)


def test_index_and_search(capsys: pytest.CaptureFixture[str], models: Path, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for number, text in enumerate(("Jack loves Rome.", "Rose hates Paris.")):
        (tmp_path / "docs" / f"{number}.txt").write_text(text)
    made = ("index", tmp_path / "docs", "--model", models / "embed", "--out", tmp_path / "index")
    code, out, _ = run(capsys, *made)
    assert (code, "2 passages; 2 files added, 0 as they were" in out) == (0, True)
    code, out, _ = run(capsys, *made)
    assert (code, "2 passages; 0 files added, 2 as they were" in out) == (0, True)
    code, out, _ = run(capsys, "search", tmp_path / "index", "Rose hates Paris.", "-k", "1")
    assert code == 0
    assert "1.txt:1" in out
    assert "0.txt" not in out
    code, out, _ = run(capsys, "search", tmp_path / "index", "Rose", "Jack", "--json")
    assert [len(json.loads(line)["hits"]) for line in out.splitlines()] == [2, 2]
    code, _, err = run(capsys, "search", tmp_path / "docs", "Rose")
    assert (code, "holds no index" in err) == (2, True)


@pytest.mark.parametrize("command", ["classify", "tag", "embed"])
def test_the_wrong_model_is_one_line(capsys: pytest.CaptureFixture[str], models: Path, command: str) -> None:
    code, out, err = run(capsys, command, models / "answer", "Jack")
    assert (code, out) == (2, "")
    assert f"so it cannot {command}; it can: answer. It can learn to: triform train {command} " in err
    assert err.count("\n") == 1


# --- in Python ------------------------------------------------------------------------------------------------------


def test_a_text_gives_an_answer_and_a_list_a_list(models: Path, tmp_path: Path) -> None:
    opened = {name: load(models / name) for name in ("classify", "tag", "answer", "embed")}
    texts = ["Jack loves Rome.", "Rose hates Paris."]
    for model, name in ((opened["classify"], "classify"), (opened["tag"], "tag")):
        ask = getattr(model, name)
        assert str(ask(texts)[1]) == str(ask(texts[1]))
    asked = opened["answer"].answer(["Where?", "Who?"], context="Jack went to Rome.")
    assert str(asked[0]) == str(opened["answer"].answer("Where?", context="Jack went to Rome."))
    assert opened["embed"].embed("Jack").shape == (16,)
    assert opened["embed"].embed(texts).shape == (2, 16)
    from triform.tasks.vector_index import build_index

    (tmp_path / "a.txt").write_text("Jack loves Rome.")
    build_index([tmp_path / "a.txt"], model=opened["embed"], name="x", out=tmp_path / "index")
    hits = opened["embed"].search("Rome", index=tmp_path / "index")
    assert hits.hits[0].text == "Jack loves Rome."
    assert isinstance(opened["embed"], Model)


def test_a_store_that_cannot_be_reached_is_one_line(
    capsys: pytest.CaptureFixture[str], models: Path, lines: Path
) -> None:
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    pytest.importorskip("pgvector", reason="the extra postgres is not installed")
    store = ("--store", "postgresql://me:secret@127.0.0.1:1/db")
    for given in (
        ("search", "docs", "Rome", *store),
        ("index", lines, "--model", models / "embed", "--out", "docs", *store),
        ("ask", "docs", "Who?", "--model", models / "answer", *store),
        ("serve", models / "embed", "--index", "docs=docs", *store, "--check"),
    ):
        code, _, err = run(capsys, *given)
        assert code == 2
        last = err.strip().splitlines()[-1]
        assert "the store postgresql://me:…@127.0.0.1:1/db cannot be reached: " in last
        assert "secret" not in err
        assert "Traceback" not in err
