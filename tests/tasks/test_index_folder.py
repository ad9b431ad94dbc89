"""Segments: a change is one step whenever the process is killed, and searches do not know how the index was made."""

import os
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from triform.errors import TriformError
from triform.files.safe_folder import SafeFolder
from triform.tasks import index_folder
from triform.tasks.bm25 import BM25, build_word_table, join_word_tables
from triform.tasks.index_folder import IndexNote, change_folder, read_folder, read_note
from triform.tasks.index_segment import IndexedFile, Segment, VectorKind, make_segment
from triform.tasks.passage_filter import PassageFilter
from triform.tasks.passage_splitter import Passage
from triform.tasks.search_ranking import rank_passages
from triform.tasks.vector_index import FolderStore, SegmentIndex, make_index, read_index

WIDTH = 8
NOTE = IndexNote("tiny", "0" * 64, WIDTH)


def make_batch(files: str, *, each: int = 5, version: int = 0) -> Segment:
    """Some files of `each` passages; what a file holds depends on its name and version alone."""
    passages, vectors = [], []
    for file in files:
        rng = torch.Generator().manual_seed(1000 * ord(file) + version)
        vectors.append(F.normalize(torch.randn(each, WIDTH, generator=rng), dim=-1))
        passages += [
            Passage(
                file, row, 0, f"word{(ord(file) + row) % 7} word{(row + version) % 5} {file}", fields={"at": str(row)}
            )
            for row in range(each)
        ]
    return make_segment(passages, torch.cat(vectors), {file: IndexedFile(f"{version}", each) for file in files})


def grow(folder: Path, note: IndexNote = NOTE) -> SegmentIndex:
    """An index that has seen additions, updates and deletions."""
    store = FolderStore(folder)
    index = store.change(None, note, removed=frozenset(), added=[make_batch("abcdefgh", each=20)])
    index = store.change(index, note, removed=frozenset(), added=[make_batch("ij")])
    index = store.change(index, note, removed=frozenset("bj"), added=[make_batch("b", version=1)])
    return store.change(read_index(folder), note, removed=frozenset("c"), added=[make_batch("k")])


def search(index: SegmentIndex) -> list[tuple[str, int, float]]:
    """What several searches find, by place."""
    found: list[tuple[str, int, float]] = []
    vectors = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(5))
    for only in (PassageFilter(), PassageFilter(("b", "d", "k")), PassageFilter((), (("at", "3"),))):
        ranked = rank_passages(index, ["word3", "word1 b", "k word6"], vectors, k=9, only=only)
        for hits in ranked:
            passages = index.get_passages([hit.at for hit in hits])
            places = [(one.file, one.line, hit.score) for one, hit in zip(passages, hits, strict=True)]
            found += sorted(places, key=lambda place: (-place[2], place))
    return found


@pytest.mark.parametrize("kind", get_args(VectorKind))
def test_a_grown_index_finds_what_one_made_at_once_finds(tmp_path: Path, kind: VectorKind) -> None:
    """The slow twin: the same passages in memory, in one piece."""
    grow(tmp_path / "index", msgspec.structs.replace(NOTE, vectors=kind))
    grown = read_index(tmp_path / "index")
    assert len(grown.segments) > 1
    files = [make_batch("adefgh", each=20), make_batch("i"), make_batch("b", version=1), make_batch("k")]
    plain = SegmentIndex(NOTE, files)
    assert len(grown) == len(plain) == 135
    assert list(grown.passages) == list(plain.passages)
    assert torch.equal(grown.read_vectors(), plain.read_vectors())
    once = make_index(NOTE, list(plain.passages), plain.read_vectors())
    once.segments[0].files = {file: known for segment in files for file, known in segment.files.items()}
    assert search(grown) == search(plain) == search(once)


def test_small_segments_are_joined_and_large_ones_left_alone(tmp_path: Path) -> None:
    index = FolderStore(tmp_path / "index").change(
        None, NOTE, removed=frozenset(), added=[make_batch("abcdefgh", each=20)]
    )
    (large,) = (tmp_path / "index").glob("*.safetensors")
    before = os.stat(large)
    for file in "ijklmn":
        index = FolderStore(tmp_path / "index").change(index, NOTE, removed=frozenset(), added=[make_batch(file)])
    assert [segment.rows for segment in index.segments] == [160, 25, 5]
    assert (os.stat(large).st_ino, os.stat(large).st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    index = FolderStore(tmp_path / "index").change(index, NOTE, removed=frozenset("ab"), added=[])
    assert [(segment.rows, len(segment)) for segment in index.segments] == [(160, 120), (25, 25), (5, 5)]
    index = FolderStore(tmp_path / "index").change(index, NOTE, removed=frozenset("c"), added=[])
    assert [(segment.rows, len(segment)) for segment in index.segments] == [(100, 100), (25, 25), (5, 5)]
    assert len(read_index(tmp_path / "index")) == 130


def test_other_codes_and_a_graph_are_made_of_what_is_there(tmp_path: Path) -> None:
    pytest.importorskip("usearch")
    index = grow(tmp_path / "index")
    plain = search(index)
    note = msgspec.structs.replace(NOTE, vectors="int8", hnsw=True)
    FolderStore(tmp_path / "index").change(index, note, removed=frozenset(), added=[])
    again = read_index(tmp_path / "index")
    assert all(segment.graph is not None and segment.codes is not None for segment in again.segments)
    assert search(again) == plain, "this small, the graph finds all"
    smaller = FolderStore(tmp_path / "index").change(again, note, removed=frozenset("a"), added=[])
    queries = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(6))
    through_graph = list(smaller.nearest(queries, k=30))
    for segment in smaller.segments:
        segment.graph = None
    assert through_graph == list(smaller.nearest(queries, k=30))


def test_mapped_files_are_searched_like_read_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = search(grow(tmp_path / "index"))
    monkeypatch.setattr(index_folder, "READ_BYTES", 0)
    mapped = read_index(tmp_path / "index")
    assert search(mapped) == expected
    for path in (tmp_path / "index").glob("*.jsonl"):
        os.utime(path, ns=(0, 1))
    with pytest.raises(TriformError, match="was changed by another program"):
        search(mapped)


def test_an_index_that_is_read_does_not_see_later_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_folder, "READ_BYTES", 0)
    grow(tmp_path / "index")
    held = read_index(tmp_path / "index")
    before = search(held)
    FolderStore(tmp_path / "index").change(held, NOTE, removed=frozenset("abdefgh"), added=[make_batch("z")])
    assert search(held) == before
    assert set(read_index(tmp_path / "index").list_files()) == set("bikz") - {"b"}


def test_joined_word_tables_are_those_of_all_texts() -> None:
    texts = [f"word{number % 7} mole{number % 5} lion" for number in range(60)]
    parts = [build_word_table(texts[:20]), build_word_table(texts[20:])]
    kept = np.array([0, 3, 7, 39])
    joined = join_word_tables([(parts[0], None), (parts[1], kept)])
    plain = build_word_table([*texts[:20], *(texts[20 + at] for at in kept)])
    for one, other in zip(joined, plain, strict=True):
        assert one.tolist() == other.tolist()
    some = BM25(tables=[(parts[0], None), (parts[1], kept)])
    assert (
        some.scores("word3 lion").tolist()
        == BM25([*texts[:20], *(texts[20 + at] for at in kept)]).scores("word3 lion").tolist()
    )


# --- killed -----------------------------------------------------------------------------------------------------------

STEPS = ("fsync", "link", "replace", "rename", "mkdir", "rmdir", "unlink")


def count_or_die(last: int) -> Callable[[], int]:
    """Patches what writes to the disk: the process is killed before step number `last`."""
    steps, done = count(), [0]

    def wrap(real: Callable[..., object]) -> Callable[..., object]:
        def step(*given: object, **named: object) -> object:
            done[0] = next(steps)
            if done[0] == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **named)

        return step

    for name in STEPS:
        setattr(os, name, wrap(getattr(os, name)))
    return lambda: done[0]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_any_step_the_old_or_the_new_index_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    old = sorted(passage.text for passage in grow(folder).passages)
    expected = sorted([*(text for text in old if not text.endswith(" a")), *(f"{one.text}" for one in ADDED.passages)])
    seen = []
    for last in count():
        child = os.fork()
        if not child:
            try:
                before = read_folder(folder)
                total = count_or_die(last)
                change_folder(folder, NOTE, before, removed=frozenset("a"), added=[make_batch("xy")])
                os._exit(0 if total() < last else 1)
            except BaseException:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        found = sorted(passage.text for passage in read_index(folder).passages)
        assert found in (old, expected)
        seen.append(found == expected)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        if found == expected:
            FolderStore(folder).change(
                read_index(folder), NOTE, removed=frozenset("xy"), added=[make_batch("a", each=20)]
            )
    assert seen[-1]
    assert True in seen[:-1], "also after the step that counts"
    assert seen.count(False) > 10
    assert not [path.name for path in tmp_path.iterdir() if path.name not in ("index", ".index.lock")]


ADDED = SegmentIndex(NOTE, [make_batch("xy")])


def test_the_note_says_its_segments(tmp_path: Path) -> None:
    grow(tmp_path / "index")
    note = read_note(SafeFolder(tmp_path / "index"))
    assert note.format_version == 2
    assert [segment.name for segment in note.segments] == sorted(segment.name for segment in note.segments)
    assert any(segment.deleted for segment in note.segments)
