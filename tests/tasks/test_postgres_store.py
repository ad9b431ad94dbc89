"""The same passages in PostgreSQL and in a folder: the same results; several writers; a store that is away."""

import socket
import tempfile
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import msgspec
import pytest
import torch
from postgres_server import start_postgres
from tiny_tasks import SCORED, begun
from torch.nn import functional as F

from triform.errors import InputError, StoreUnavailable, TriformError
from triform.pooling import SimilarityName
from triform.tasks import get_task
from triform.tasks.index_folder import BadIndex, IndexNote
from triform.tasks.index_segment import IndexedFile, Segment, make_segment
from triform.tasks.passage_filter import PassageFilter
from triform.tasks.passage_splitter import Passage
from triform.tasks.postgres_store import PostgresStore, hide_password
from triform.tasks.search_ranking import rank_passages
from triform.tasks.vector_index import Index, SegmentIndex, build_index, read_index

pytestmark = pytest.mark.slow  # a real server
WIDTH, NAMES = 8, count()
NOTE = IndexNote("tiny", "0" * 64, WIDTH)
MODES = ("hybrid", "vector", "keyword")


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # short: a socket lies in it
        yield start_postgres(Path(folder) / "data")


@pytest.fixture
def store(server: str) -> Iterator[PostgresStore]:
    made = PostgresStore(server, f"index {next(NAMES)}")
    yield made
    made.connections.close()


def make_batch(files: str, *, each: int = 40, similarity: SimilarityName = "cosine", seed: int = 0) -> Segment:
    rng = torch.Generator().manual_seed(seed + len(files))
    vectors = torch.randn(each * len(files), WIDTH, generator=rng).div(4).exp()
    vectors = F.normalize(vectors, dim=-1) if similarity == "cosine" else vectors
    passages = [
        Passage(f"docs/{file}.md", row, 3, f"word{row % 7} mole{row % 5} é {file}", "row", {"at": str(row % 4)})
        for file in files
        for row in range(each)
    ]
    return make_segment(passages, vectors, {f"docs/{file}.md": IndexedFile("s", each) for file in files})


def search(index: Index) -> list[tuple[str, int, float, float]]:
    """What searches of every mode find, with filters and without."""
    found = []
    vectors = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(5))
    for only in (PassageFilter(), PassageFilter(("b.md", "docs/c*")), PassageFilter((), (("at", "3"),))):
        for mode in MODES:
            with index.hold() as held:
                for hits in rank_passages(held, ["word3", "mole1 é b", "c"], vectors, k=9, only=only, mode=mode):  # type: ignore[arg-type]
                    passages = held.get_passages([hit.at for hit in hits])
                    found += [(p.file, p.line, h.score, h.cosine) for p, h in zip(passages, hits, strict=True)]
    return found


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
def test_the_results_are_those_of_the_folder(store: PostgresStore, similarity: SimilarityName) -> None:
    """Score for score, after passages were added, replaced and deleted."""
    note = msgspec.structs.replace(NOTE, similarity=similarity)
    first, second = make_batch("abcd", similarity=similarity), make_batch("bx", similarity=similarity, seed=9)
    made = store.change(None, note, removed=frozenset(), added=[first])
    made = store.change(made, note, removed=frozenset(["docs/d.md"]), added=[second])
    plain = SegmentIndex(note, [first.delete(frozenset(["docs/b.md", "docs/d.md"])), second])
    read = store.open()
    assert len(read) == len(plain) == 160
    assert read.list_files() == dict(sorted(plain.list_files().items()))
    assert search(read) == search(plain)
    assert search(made) == search(read)


def test_hnsw_finds_nearly_the_same_and_is_used(store: PostgresStore) -> None:
    note = msgspec.structs.replace(NOTE, hnsw=True)
    made = store.change(None, note, removed=frozenset(), added=[make_batch("abcd")])
    plain = SegmentIndex(NOTE, [make_batch("abcd")])
    queries = torch.randn(20, WIDTH, generator=torch.Generator().manual_seed(6))
    pairs = zip(made.nearest(queries, k=5), plain.nearest(queries, k=5), strict=True)
    with made.hold() as held:
        lowest = min(at for at, _ in held._fetch("SELECT id, 1 FROM triform_passages WHERE index_id = %s", made.id))
        said = str(held._fetch("SELECT indexdef FROM pg_indexes WHERE indexname = %s", f"triform_hnsw_{made.id}"))
    assert "USING hnsw" in said
    found = [({at - lowest for at, _ in graph}, {at for at, _ in exact}) for graph, exact in pairs]
    assert sum(len(graph & exact) for graph, exact in found) >= 95


def test_several_writers_at_once(server: str, store: PostgresStore) -> None:
    """Each of its own files; every search meanwhile sees whole steps."""
    store.change(None, NOTE, removed=frozenset(), added=[make_batch("a")])
    index, wrong, done = store.open(), list[int](), threading.Event()

    def write(file: str) -> None:
        own = PostgresStore(server, store.name)
        for version in range(4):
            own.change(own.read(), NOTE, removed=frozenset(), added=[make_batch(file, seed=version)])
        own.connections.close()

    def watch() -> None:
        while not done.is_set():
            with index.hold() as held:
                if len(held) % 40 or len(held) != 40 * len(held.list_files()):
                    wrong.append(len(held))

    threads = [threading.Thread(target=write, args=(file,)) for file in "bcdb"]
    watcher = threading.Thread(target=watch)
    watcher.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    watcher.join()
    assert not wrong
    assert set(index.list_files()) == {f"docs/{file}.md" for file in "abcd"}
    assert len(index) == 160


def test_a_step_that_fails_changes_nothing(store: PostgresStore) -> None:
    index = store.change(None, NOTE, removed=frozenset(), added=[make_batch("ab")])
    before = search(index)
    bad = make_batch("c")
    bad.vectors = torch.full((40, WIDTH), torch.nan)  # the last of them, when the rest is written
    with pytest.raises(Exception, match="NaN"):
        store.change(index, NOTE, removed=frozenset(["docs/a.md"]), added=[bad])
    assert search(store.open()) == before


def test_built_and_searched_like_a_folder(store: PostgresStore, tmp_path: Path) -> None:
    model = begun(get_task("embed"), SCORED)
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("one", "two", "three"):
        (docs / f"{name}.txt").write_text(f"Jack loves {name}.\n\nRose hates {name}.\n")
    build_index([docs], model=model, name="tiny", out=tmp_path / "index")
    build_index([docs], model=model, name="tiny", out=store)
    (docs / "two.txt").write_text("Rose loves Rome.")
    (docs / "one.txt").unlink()
    build_index([docs], model=model, name="tiny", out=tmp_path / "index")
    done = build_index([docs], model=model, name="tiny", out=store)
    assert (done.kept, done.added, done.removed) == (1, 1, 1)
    other = tmp_path / "other.txt"
    other.write_text("Jack went to Paris.")
    build_index([other], model=model, name="tiny", out=store)
    assert len(store.open().list_files()) == 3, "files of another writer stay"
    search_task = get_task("search")
    answers = [
        search_task.run(
            ["Rose loves Rome.", "Jack"],
            model=model,
            options=search_task.options(index=index, k=2, files=("two.txt", "three.txt")),
        )
        for index in (read_index(tmp_path / "index"), store.open())
    ]
    for here, there in zip(*answers, strict=True):
        assert [(hit.file, hit.text) for hit in here.hits] == [(hit.file, hit.text) for hit in there.hits]


def test_a_connection_that_was_lost_is_made_again(store: PostgresStore) -> None:
    index = store.change(None, NOTE, removed=frozenset(), added=[make_batch("ab")])
    before = search(index)
    for connection in store.connections.idle:
        connection.close()
    assert search(index) == before


def test_what_a_store_refuses(store: PostgresStore) -> None:
    with pytest.raises(BadIndex, match="there is no index 'index"):
        store.open()
    note = msgspec.structs.replace(NOTE, vectors="int8")
    with pytest.raises(InputError, match="--vectors int8 is for indexes in folders"):
        store.change(None, note, removed=frozenset(), added=[make_batch("a")])
    index = store.change(None, NOTE, removed=frozenset(), added=[make_batch("a")])
    with pytest.raises(InputError, match="made with another model"):
        store.change(index, msgspec.structs.replace(NOTE, numbers="1"), removed=frozenset(), added=[])
    for values in ((("lang", "de"),), (("at", "9"),), (("at", "1"), ("at", "2"))):
        with pytest.raises(InputError):
            index.check_filter(PassageFilter((), values))


def test_a_store_that_is_away_is_one_line() -> None:
    pytest.importorskip("psycopg")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(StoreUnavailable, match=r"cannot be reached: .*refused.*; check the address") as error:
        PostgresStore(f"postgresql://me:secret@127.0.0.1:{port}/db", "docs").open()
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)
    with pytest.raises(TriformError, match="is no store"):
        PostgresStore("mysql://me@host/db", "docs")
    assert hide_password("postgresql://me:a:b@h/d?password=x&a=b") == "postgresql://me:…@h/d?password=…&a=b"
