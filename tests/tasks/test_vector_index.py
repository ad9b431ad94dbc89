"""Files become passages, passages vectors, and only what has changed is embedded again."""

import json
import os
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lock_holder import held_by_another
from tiny_tasks import SCORED, begun

from triform.data.line_reader import DataError
from triform.errors import TriformError
from triform.files.locks import FolderBusy, lock_beside
from triform.model import Model
from triform.tasks import get_task, index_folder
from triform.tasks import vector_index as indexes
from triform.tasks.embed import EmbedTask
from triform.tasks.passage_splitter import Passage, cut_text, split_passages
from triform.tasks.vector_index import SegmentIndex, build_index, open_index, read_index


@pytest.fixture(scope="module")
def model() -> Model:
    return begun(get_task("embed"), SCORED)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "deep").mkdir(parents=True)
    (folder / "one.txt").write_text("Jack loves Rome.\n\nRose hates Paris.\n")
    (folder / "deep" / "two.md").write_text("Florence went to London. " * 60)
    (folder / "rows.jsonl").write_text('{"text": "Jack went to New York."}\n{"text": "Rose went to Rome."}\n')
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / ".hidden.txt").write_text("not for others")
    return folder


@given(st.text(alphabet=st.sampled_from("ab. \n\t?é"), max_size=200), st.integers(1, 30))
@settings(deadline=None, max_examples=200)
def test_passages_hold_all_that_is_not_white_space(text: str, longest: int) -> None:
    found = cut_text(text, longest=longest)
    assert "".join("".join(text[a:b].split()) for a, b in found) == "".join(text.split())
    assert all(0 < b - a <= longest for a, b in found)
    assert all(before[1] <= after[0] for before, after in pairwise(found))


def test_passages_stand_where_they_say(docs: Path) -> None:
    for path in (docs / "one.txt", docs / "deep" / "two.md"):
        text = path.read_text()
        for passage in split_passages(path):
            assert text[passage.start : passage.start + len(passage.text)] == passage.text
            assert passage.line == 1 + text[: passage.start].count("\n")
    assert [passage.line for passage in split_passages(docs / "rows.jsonl")] == [1, 2]


def test_an_index_may_be_read_by_whom_the_umask_lets(docs: Path, model: Model, tmp_path: Path) -> None:
    """A service under a user of its own reads it."""
    before = os.umask(0o022)
    try:
        build_index([docs], model=model, name="m", out=tmp_path / "index", graph=find_spec("usearch") is not None)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "index").iterdir()}
    assert "000001.safetensors" in modes
    assert set(modes.values()) == {0o644}, modes
    assert (tmp_path / "index").stat().st_mode & 0o777 == 0o755


def test_a_missing_package_is_said_before_anything_is_embedded(
    docs: Path, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "usearch", None)
    monkeypatch.setattr(indexes, "_embedded", lambda *args: pytest.fail("texts were embedded"))
    with pytest.raises(TriformError, match="pip install usearch"):
        build_index([docs], model=model, name="m", out=tmp_path / "index", graph=True)
    assert not (tmp_path / "index").exists()


def test_a_long_file_keeps_its_places(tmp_path: Path) -> None:
    text = "".join(f"Line {number} of a long text.\n\n" for number in range(6000))
    (tmp_path / "long.txt").write_text(text)
    found = split_passages(tmp_path / "long.txt")
    assert len(text) > 1 << 17
    assert all(text.startswith(passage.text, passage.start) for passage in found)
    assert found[-1].line == 1 + text[: found[-1].start].count("\n")


def test_made_read_and_searched(model: Model, docs: Path, tmp_path: Path) -> None:
    done = build_index([docs], model=model, name="tiny", out=tmp_path / "index")
    assert (done.added, done.kept, done.removed, done.skipped) == (3, 0, 0, {})
    found = read_index(tmp_path / "index")
    assert found.passages == done.made.passages
    assert torch.equal(found.read_vectors(), done.made.read_vectors())
    (answer,) = get_task("search").run(
        ["Jack went to New York."], model=model, options=get_task("search").options(index=found, k=2)
    )
    assert answer.hits[0].text == "Jack went to New York."
    assert answer.hits[0].cosine == pytest.approx(1, abs=1e-5)
    assert len(answer.hits) == 2
    assert {path.name for path in (tmp_path / "index").iterdir()} == {
        "index.json", "000001.jsonl", "000001.safetensors", "000001.files.json", "manifest.json",
    }  # fmt: skip


def order(index: SegmentIndex) -> tuple[list[Passage], torch.Tensor]:
    """Passages and vectors in the order of files: segments are in the order in which they were made."""
    passages = list(index.passages)
    by_place = sorted(range(len(passages)), key=lambda at: (passages[at].file, passages[at].line, passages[at].start))
    return [passages[at] for at in by_place], index.read_vectors()[by_place]


def test_only_what_changed_is_embedded(
    model: Model, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "index"
    build_index([docs], model=model, name="tiny", out=out)
    (docs / "one.txt").write_text("Jack loves Rome.\n\nRose loves Rome.\n")
    (docs / "rows.jsonl").unlink()
    (docs / "three.txt").write_text("Rose went to Paris.")
    texts: list[str] = []
    real = EmbedTask.compute_vectors
    monkeypatch.setattr(
        EmbedTask, "compute_vectors", lambda self, some, **rest: texts.extend(some) or real(self, some, **rest)
    )
    done = build_index([docs], model=model, name="tiny", out=out)
    assert (done.added, done.kept, done.removed) == (2, 1, 1)
    assert sorted(texts) == ["Jack loves Rome.\n\nRose loves Rome.", "Rose went to Paris."]
    fresh = build_index([docs], model=model, name="tiny", out=tmp_path / "fresh")
    assert order(fresh.made)[0] == order(done.made)[0]
    torch.testing.assert_close(order(fresh.made)[1], order(done.made)[1])


def test_an_index_among_its_files_is_not_one_of_them(model: Model, docs: Path) -> None:
    first = build_index([docs], model=model, name="tiny", out=docs / "index")
    again = build_index([docs], model=model, name="tiny", out=docs / "index")
    assert (first.added, again.added, again.kept) == (3, 0, 3)


def test_stopped_it_keeps_what_was_done(
    model: Model, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "MAX_BATCH_PASSAGES", 1)

    def stop(at: indexes.IndexProgress) -> None:
        if at.files == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index([docs], model=model, name="tiny", out=tmp_path / "index", progress=stop)
    assert len(read_index(tmp_path / "index").list_files()) == 1
    done = build_index([docs], model=model, name="tiny", out=tmp_path / "index")
    assert (done.kept, done.added) == (1, 2)


def test_a_graph_finds_the_same(model: Model, docs: Path, tmp_path: Path) -> None:
    pytest.importorskip("usearch")
    build_index([docs], model=model, name="tiny", out=tmp_path / "index", graph=True)
    found = read_index(tmp_path / "index")
    assert [segment.graph is not None for segment in found.segments] == [True]
    queries = EmbedTask().compute_vectors(["Rose went to Rome.", "Jack loves Rome."], model=model)
    through_graph = list(found.nearest(queries, k=3))
    for segment in found.segments:
        segment.graph = None
    assert through_graph == list(found.nearest(queries, k=3))


# --- bad input ------------------------------------------------------------------------------------------------------


def test_an_index_of_another_model_is_left_alone(model: Model, docs: Path, tmp_path: Path) -> None:
    build_index([docs], model=model, name="tiny", out=tmp_path / "index")
    other = begun(get_task("embed"), SCORED)
    with torch.no_grad():
        other.network.token.weight[7, 3] += 1e-3
    with pytest.raises(TriformError, match=r"was made with another model \(tiny\)"):
        build_index([docs], model=other, name="other", out=tmp_path / "index")
    with pytest.raises(TriformError, match="another model"):
        open_index(tmp_path / "index", model=other)
    assert read_index(tmp_path / "index").note.model == "tiny"


@pytest.mark.parametrize("file", ["index.json", "000001.jsonl", "000001.safetensors"])
def test_damage_is_found(model: Model, docs: Path, tmp_path: Path, file: str) -> None:
    build_index([docs], model=model, name="tiny", out=tmp_path / "index")
    path = tmp_path / "index" / file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(TriformError, match=f"damaged: {file}"):
        read_index(tmp_path / "index")


def test_what_is_no_index_and_what_has_no_text(model: Model, docs: Path, tmp_path: Path) -> None:
    with pytest.raises(TriformError, match="holds no index"):
        read_index(docs)
    with pytest.raises(TriformError, match="holds no index"):
        build_index([docs], model=model, name="tiny", out=docs)
    with pytest.raises(TriformError, match="no file or folder"):
        build_index([tmp_path / "nowhere"], model=model, name="tiny", out=tmp_path / "index")
    (tmp_path / "blank.txt").write_text("\n\n")
    with pytest.raises(TriformError, match="no text"):
        build_index([tmp_path / "blank.txt"], model=model, name="tiny", out=tmp_path / "index")
    (docs / "bad.txt").write_bytes(b"\xff\xfe\x00x")
    (docs / "table.csv").write_text("a,b\n1,2\n")
    done = build_index([docs], model=model, name="tiny", out=tmp_path / "index")
    assert {Path(file).name for file in done.skipped} == {"bad.txt", "table.csv"}
    assert json.loads((tmp_path / "index" / "index.json").read_text())["model"] == "tiny"


def test_search_without_an_index_is_one_line(model: Model) -> None:
    with pytest.raises(TriformError, match="needs an index"):
        list(get_task("search").run(["Jack"], model=model))


def test_a_file_that_cannot_be_read_is_skipped_and_named(
    model: Model, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vanished = docs / "one.txt"
    real = indexes.hash_file

    def hashed(path: Path) -> str:
        if path == vanished:
            raise DataError(f"cannot read {path}: No such file or directory")
        return real(path)

    monkeypatch.setattr(indexes, "hash_file", hashed)
    made = build_index([docs], model=model, name="tiny", out=tmp_path / "index")
    assert list(made.skipped) == [str(vanished)]
    assert made.added > 0


def test_what_becomes_of_its_files_changes_nothing(model: Model, docs: Path, tmp_path: Path) -> None:
    """A small file is read."""
    build_index([docs], model=model, name="m", out=tmp_path / "index")
    index = read_index(tmp_path / "index")
    before = index.read_vectors()
    (tmp_path / "index" / "000001.safetensors").write_bytes(b"")
    assert torch.equal(index.read_vectors(), before)


def test_written_to_while_it_is_opened_it_is_refused(
    model: Model, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_index([docs], model=model, name="m", out=tmp_path / "index")
    path, real = tmp_path / "index" / "000001.safetensors", index_folder.read_header
    os.utime(path, (0, 0))  # so that a write is another time, however fast this runs

    def header(*given: Any) -> Any:
        with path.open("r+b") as file:
            file.seek(-4, os.SEEK_END)
            file.write(b"\0\0\0\0")
        return real(*given)

    monkeypatch.setattr(index_folder, "read_header", header)
    with pytest.raises(TriformError, match="was changed by another program while it was being read"):
        read_index(tmp_path / "index")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_one_process_makes_it_at_a_time(model: Model, docs: Path, tmp_path: Path) -> None:
    with held_by_another(lambda: lock_beside(tmp_path / "index")), pytest.raises(FolderBusy):
        build_index([docs], model=model, name="m", out=tmp_path / "index")
    assert not (tmp_path / "index").exists()
    assert build_index([docs], model=model, name="m", out=tmp_path / "index").added == 3
