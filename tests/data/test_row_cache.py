"""What is stored is what was read, is made once, is found damaged when it is, and is whole or not there."""

import gzip
import json
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lock_holder import held_by_another

from triform.data import array_store, row_cache
from triform.data.array_store import FolderCache
from triform.data.columns import Layout
from triform.data.line_reader import DataError
from triform.data.readers import read
from triform.data.row_cache import CachedRows, RowSubset, TokenCache, describe_place, digest, hash_file
from triform.data.rows import AnsweredQuestionRow, BadRow, DataRow, LabelledRow, PairRow, TaggedRow, TextRow
from triform.errors import TriformError
from triform.files import replace_folder
from triform.files.locks import lock_beside


def table(path: Path, count: int = 20) -> Path:
    lines = [f"text {number},{number % 2}" if number % 5 else "," for number in range(1, count + 1)]
    path.write_text("\n".join(["text,label", *lines]))
    return path


def ids(rows: list[TextRow]) -> list[dict[str, list[int]]]:
    return [{"ids": list(row.text.encode())} for row in rows]


# --- rows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_rows_at_random_are_the_rows_in_order(ending: str, tmp_path: Path):
    path = table(tmp_path / "a.csv")
    if ending == ".csv.gz":
        path = tmp_path / "a.csv.gz"
        path.write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    rows = CachedRows(path, kind=LabelledRow, cache=FolderCache(tmp_path / "cache"))
    wanted = [row for row in read(path, kind=LabelledRow) if not isinstance(row, BadRow)]
    assert [rows[index] for index in (15, 0, 7)] == [wanted[index] for index in (15, 0, 7)]
    assert list(rows) == wanted
    assert rows.bad == {"blank": 4}
    assert rows.where(4) == f"{path}:7"
    assert describe_place(RowSubset(rows, [9, 4], instead={4: wanted[0]}), 1) == f"{path}:7"
    assert describe_place(wanted, 4) == "row 4"
    with pytest.raises(IndexError):
        rows[16]


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        (PairRow, {"source": "a", "target": ["b", "c"]}),
        (TaggedRow, {"tokens": ["\U0001f600", "\u2028"][:1], "tags": ["B-x"]}),
        (AnsweredQuestionRow, {"question": "q", "context": "a b", "answers": ["b"]}),
        (LabelledRow, {"text": "ä\n", "labels": []}),
    ],
)
def test_every_kind_survives(kind: type[DataRow], record: dict, tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(record))
    assert list(CachedRows(path, kind=kind, cache=FolderCache(tmp_path / "cache"))) == list(read(path, kind=kind))


def test_rows_are_made_once_and_again_when_something_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = []
    real = row_cache.read_placed
    monkeypatch.setattr(row_cache, "read_placed", lambda paths, **how: made.append(paths) or real(paths, **how))
    path, folder = table(tmp_path / "a.csv"), tmp_path / "cache"

    def fingerprint(**how: object) -> str:
        return CachedRows(path, **({"kind": LabelledRow, "cache": FolderCache(folder)} | how)).fingerprint

    first = fingerprint()
    assert fingerprint() == first
    assert len(made) == 1
    path.touch()
    moved = path.rename(tmp_path / "b.csv")
    assert CachedRows(moved, kind=LabelledRow, cache=FolderCache(folder)).where(0) == f"{moved}:2"
    assert len(made) == 1  # another time or name is not another content
    moved.rename(path)
    assert fingerprint(layout=Layout({"text": "label"})) != first
    assert fingerprint(kind=TextRow) != first
    status, content = path.stat(), path.read_text()
    path.write_text(content.replace("text 1,", "text X,"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    assert fingerprint() != first  # the same size and time, but other content
    assert len(made) == 4


def test_the_ending_is_part_of_what_a_file_says(tmp_path: Path):
    for name in ("a.csv", "a.tsv"):
        (tmp_path / name).write_text("a,b\tc,d\n")
    one, other = (
        CachedRows(
            tmp_path / name,
            kind=PairRow,
            cache=FolderCache(tmp_path / "cache"),
            layout=Layout({"source": 0, "target": 1}),
        )
        for name in ("a.csv", "a.tsv")
    )
    assert (one[0].source, other[0].source) == ("a", "a,b")


def test_bad_files_leave_nothing_behind(tmp_path: Path):
    (tmp_path / "a.txt").write_text("\n\n")
    with pytest.raises(DataError, match="has no good text rows"):
        CachedRows(tmp_path / "a.txt", kind=TextRow, cache=FolderCache(tmp_path / "cache"))
    assert list((tmp_path / "cache").iterdir()) == []


# --- tokens ---------------------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    lists=st.lists(st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 300)), min_size=1), together=st.integers(1, 9)
)
def test_tokens_survive(lists: list[list[int]], together: int, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("tokens")
    rows = [TextRow(str(number)) for number in range(len(lists))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_cache, "ENCODE_ROWS", together)
        patch.setattr(array_store, "CHUNK_NUMBERS", 3)
        stored = TokenCache.build(
            rows,
            lambda some: [{"ids": lists[int(row.text)], "twice": lists[int(row.text)] * 2} for row in some],
            cache=FolderCache(folder),
            fingerprint="a",
        )
    assert len(stored) == len(lists)
    assert [found.tolist() for found in stored["ids"]] == lists
    assert stored["twice"].lengths.tolist() == [2 * len(each) for each in lists]
    largest = max((number for each in lists for number in each), default=0)
    assert stored["ids"].values.dtype == (np.uint16 if largest < 2**16 else np.uint32)


@pytest.mark.parametrize(("largest", "dtype"), [(65_535, np.uint16), (65_536, np.uint32), (2**32 - 1, np.uint32)])
def test_ids_are_as_narrow_as_they_can_be(largest: int, dtype: type, tmp_path: Path):
    stored = TokenCache.build(
        [TextRow("a")], lambda rows: [{"ids": [0, largest]}], cache=FolderCache(tmp_path), fingerprint="a"
    )
    assert stored["ids"].values.dtype == dtype
    assert stored["ids"][0].tolist() == [0, largest]


def test_tokens_are_reused_and_made_again(tmp_path: Path):
    calls = []

    def encode(rows: list[TextRow]) -> list[dict[str, list[int]]]:
        calls.append(len(rows))
        return ids(rows)

    rows = [TextRow("abc"), TextRow("de")]
    first = TokenCache.build(
        rows, encode, cache=FolderCache(tmp_path), fingerprint=digest("data", "tokenizer", {"length": 8})
    )
    again = TokenCache.build(
        iter(()), encode, cache=FolderCache(tmp_path), fingerprint=digest("data", "tokenizer", {"length": 8})
    )
    assert [found.tolist() for found in again["ids"]] == [found.tolist() for found in first["ids"]]
    assert calls == [2]
    TokenCache.build(rows, encode, cache=FolderCache(tmp_path), fingerprint=digest("data", "tokenizer", {"length": 9}))
    assert calls == [2, 2]


def test_what_nobody_uses_for_a_month_goes(tmp_path: Path):
    def build(name: str) -> None:
        TokenCache.build([TextRow("abc")], ids, cache=FolderCache(tmp_path), fingerprint=name)

    for name in ("used", "unused"):
        build(name)
    (tmp_path / ".half-made").mkdir()
    long_ago = time.time() - array_store.MAX_UNUSED_SECONDS - 60
    for place in tmp_path.iterdir():
        os.utime(place, (long_ago, long_ago))
    build("used")
    build("new")
    kept = {f"tokens-{digest(name)[:16]}" for name in ("used", "new")}
    assert {place.name for place in tmp_path.iterdir()} == kept


@pytest.mark.parametrize("name", ["ids.uint16", "ids.offsets"])
@pytest.mark.parametrize("harm", [lambda path: os.truncate(path, 5), lambda path: os.truncate(path, 0), Path.unlink])
def test_a_damaged_cache_is_made_again(name: str, harm, tmp_path: Path):
    rows = [TextRow("abc"), TextRow("de")]
    TokenCache.build(rows, ids, cache=FolderCache(tmp_path), fingerprint="a")
    (folder,) = tmp_path.iterdir()
    harm(folder / name)
    stored = TokenCache.build(rows, ids, cache=FolderCache(tmp_path), fingerprint="a")
    assert [bytes(found.tolist()) for found in stored["ids"]] == [b"abc", b"de"]


def test_a_writer_that_dies_leaves_nothing_and_the_old_stays(tmp_path: Path):
    rows = [TextRow("abc")] * 1000
    TokenCache.build(rows, ids, cache=FolderCache(tmp_path), fingerprint="old")

    def dies(some: list[TextRow]) -> list[dict[str, list[int]]]:
        if dies.calls:
            raise KeyboardInterrupt
        dies.calls = 1
        return ids(some)

    dies.calls = 0
    with pytest.raises(KeyboardInterrupt):
        TokenCache.build(rows, dies, cache=FolderCache(tmp_path), fingerprint="new")
    assert len(list(tmp_path.iterdir())) == 1
    assert len(TokenCache.build(rows, dies, cache=FolderCache(tmp_path), fingerprint="old")) == 1000


def test_a_full_disk_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(replace_folder, "sync_tree", full)
    with pytest.raises(DataError, match=r"cannot write the cache .*: No space left on device"):
        TokenCache.build([TextRow("a")], ids, cache=FolderCache(tmp_path), fingerprint="a")
    assert list(tmp_path.iterdir()) == []


def test_two_processes_may_make_the_same_cache(tmp_path: Path):
    def other_is_faster(rows: list[TextRow]) -> list[dict[str, list[int]]]:
        TokenCache.build(rows, ids, cache=FolderCache(tmp_path), fingerprint="a")
        return ids(rows)

    stored = TokenCache.build([TextRow("abc")], other_is_faster, cache=FolderCache(tmp_path), fingerprint="a")
    assert stored["ids"][0].tolist() == [97, 98, 99]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("rows", "encode", "says"),
    [
        ([TextRow("a")], lambda rows: [{"ids": [-1]}], "ids from -1 to -1 do not fit"),
        ([TextRow("a")], lambda rows: [{"ids": [2**32]}], "do not fit"),
        ([], ids, "no rows to encode"),
    ],
)
def test_what_cannot_be_stored(rows, encode, says: str, tmp_path: Path):
    with pytest.raises(DataError, match=says):
        TokenCache.build(rows, encode, cache=FolderCache(tmp_path), fingerprint="a")


def test_a_column_that_is_not_there(tmp_path: Path):
    with pytest.raises(TriformError, match="did you mean 'ids'"):
        TokenCache.build([TextRow("a")], ids, cache=FolderCache(tmp_path), fingerprint="a")["id"]


def test_the_hash_of_a_file_is_what_sha256sum_says(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"abc")
    assert hash_file(tmp_path / "a").startswith("ba7816bf8f01cfea")
    with pytest.raises(DataError, match="cannot read"):
        hash_file(tmp_path / "b")


# --- other processes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", [lambda path: os.truncate(path, 0), lambda path: path.write_bytes(b"x" * 100)])
def test_a_cache_changed_while_it_is_used_is_one_clear_line(harm, tmp_path: Path):
    """Mapped, a file that is cut ends the process by a signal, and one that is written to gives other numbers."""
    stored = TokenCache.build([TextRow("abc" * 5000)], ids, cache=FolderCache(tmp_path), fingerprint="a")
    before = stored["ids"][0]
    (folder,) = tmp_path.iterdir()
    os.utime(folder / "ids.uint16", (0, 0))
    stored = TokenCache.build([TextRow("abc" * 5000)], ids, cache=FolderCache(tmp_path), fingerprint="a")
    harm(folder / "ids.uint16")
    with pytest.raises(DataError, match=r"ids\.uint16 was changed by another program while it was in use"):
        stored["ids"][0]
    assert before.tolist() == list(b"abc" * 5000), "what was read before stays"


def test_a_deleted_cache_is_read_to_the_end(tmp_path: Path):
    stored = TokenCache.build([TextRow("abc")], ids, cache=FolderCache(tmp_path), fingerprint="a")
    (folder,) = tmp_path.iterdir()
    shutil.rmtree(folder)
    assert stored["ids"][0].tolist() == [97, 98, 99]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_drafts_of_killed_processes_go_and_those_of_live_ones_stay(tmp_path: Path):
    live, dead = tmp_path / ".rows-live-0123abcd", tmp_path / ".rows-dead-0123abcd"
    for draft in (live, dead):
        draft.mkdir()
    with held_by_another(lambda: lock_beside(dead)):
        pass
    assert (tmp_path / "..rows-dead-0123abcd.lock").exists()
    with held_by_another(lambda: lock_beside(live)):
        TokenCache.build([TextRow("abc")], ids, cache=FolderCache(tmp_path), fingerprint="a")
        hidden = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("."))
    assert hidden == ["..rows-live-0123abcd.lock", ".rows-live-0123abcd"]
