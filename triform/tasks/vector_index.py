"""An index: passages, their vectors, and what they were made from, in a folder or another store.

Made again after files have changed, only what is new is embedded. Search is exact; with usearch (an extra) an HNSW
graph lies beside the vectors and finds nearly the same much sooner in very large indexes. Refuses to know terminals,
and what lies in which file (`index_folder.py`).
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from triform.core.quantized_network import find_matrices
from triform.data.chunks import split_chunks
from triform.data.columns import Layout
from triform.data.line_reader import DataError
from triform.data.readers import DEFAULT_LAYOUT
from triform.data.row_cache import hash_file
from triform.errors import InputError
from triform.files.atomic_folder import lock_folder
from triform.model import Model
from triform.pooling import SimilarityName
from triform.tasks.bm25 import BM25, best_of
from triform.tasks.embed import EmbedTask
from triform.tasks.index_folder import (
    GRAPH_METRICS,
    BadIndex,
    FolderContent,
    IndexNote,
    change_folder,
    read_folder,
    usearch,
)
from triform.tasks.index_segment import IndexedFile, Segment, VectorKind, make_segment
from triform.tasks.passage_filter import ALL_PASSAGES, PassageFilter
from triform.tasks.passage_splitter import Passage, list_files, split_passages
from triform.tasks.text_vectors import check_dimensions, get_full_width, get_pooling, get_width
from triform.weights.sentence_transformers import layer_tensors

MAX_BATCH_PASSAGES = 1024  # passages embedded at once
FIRST_BATCH_PASSAGES = 32  # of them at first: so that progress is seen soon
MAX_BATCH_QUERIES = 64  # compared with all vectors at once
STORED_PASSAGES = 1 << 16  # embedded, then stored in one step
KEPT_FILTERS = 8  # their passages are remembered


class Index(ABC):
    """Passages, each with a number, and their vectors; of length 1 where the cosine is the similarity."""

    note: IndexNote

    @abstractmethod
    def __len__(self) -> int:
        """How many passages there are."""

    @abstractmethod
    def list_files(self) -> dict[str, IndexedFile]:
        """The files that the passages are of."""

    @abstractmethod
    def check_filter(self, only: PassageFilter) -> None:
        """Refuses a filter that leaves no passage."""

    @abstractmethod
    def nearest(
        self, queries: Tensor, *, k: int, only: PassageFilter = ALL_PASSAGES
    ) -> Iterator[list[tuple[int, float]]]:
        """For each query its k nearest passages, by number, and their similarities."""

    @abstractmethod
    def match_words(self, query: str, *, k: int, only: PassageFilter = ALL_PASSAGES) -> list[tuple[int, float]]:
        """The k best passages that share words with a query, and their scores (BM25)."""

    @abstractmethod
    def compare(self, query: Tensor, numbers: Sequence[int]) -> list[float]:
        """Similarities of some passages with a query."""

    @abstractmethod
    def get_passages(self, numbers: Sequence[int]) -> list[Passage]:
        """Some passages."""

    def hold(self) -> "AbstractContextManager[Index]":
        """The index as it is now, for a search: others may change a shared one meanwhile."""
        return nullcontext(self)


class IndexStore(ABC):
    """Where an index is kept."""

    is_shared = False  # with others who index other files

    @abstractmethod
    def lock(self) -> AbstractContextManager[object]:
        """While the index is made, where there is one writer at a time."""

    @abstractmethod
    def read(self) -> Index | None:
        """The index that is there."""

    @abstractmethod
    def change(self, before: Index | None, note: IndexNote, *, removed: frozenset[str], added: list[Segment]) -> Index:
        """In one step: without the passages of some files, and with new ones."""

    def contains(self, path: Path) -> bool:
        """An index that stands among its files is not one of them."""
        return False


# --- in segments ----------------------------------------------------------------------------------------------------


class SegmentIndex(Index):
    """An index in memory or in a folder. Passages are numbered from 0, segment by segment, without deleted ones."""

    def __init__(self, note: IndexNote, segments: Sequence[Segment], *, content: FolderContent | None = None) -> None:
        """`content`: what the folder holds, for the next change."""
        self.note, self.segments, self.content = note, list(segments), content
        self.starts = np.cumsum([0, *map(len, self.segments)])
        self._masks: dict[PassageFilter, list[npt.NDArray[np.bool_]]] = {}

    def __len__(self) -> int:
        return int(self.starts[-1])

    def list_files(self) -> dict[str, IndexedFile]:
        return {file: known for segment in self.segments for file, known in segment.kept_files.items()}

    @property
    def passages(self) -> "StoredPassages":
        """All passages, each read when it is asked for."""
        return StoredPassages(self)

    def read_vectors(self) -> Tensor:
        """All vectors, in memory."""
        found = [one.vectors if one.kept is None else one.vectors[one.kept] for one in self.segments]
        return torch.cat([torch.empty(0, self.note.width), *found])

    def get_passages(self, numbers: Sequence[int]) -> list[Passage]:
        found = []
        for number in numbers:
            segment, row = self._find_row(number)
            segment.check()
            found.append(segment.get_passage(row))
        return found

    def _find_row(self, number: int) -> tuple[Segment, int]:
        at = int(np.searchsorted(self.starts, number, side="right")) - 1
        segment, row = self.segments[at], number - int(self.starts[at])
        return segment, row if segment.kept is None else int(segment.kept[row])

    # --- search -----------------------------------------------------------------------------------------------------

    def check_filter(self, only: PassageFilter) -> None:
        if only != ALL_PASSAGES and not any(mask.any() for mask in self._find_masks(only)):
            raise only.make_empty_error({name for one in self.passages for name in one.fields})

    def _find_masks(self, only: PassageFilter) -> list[npt.NDArray[np.bool_]]:
        """Of each segment the rows that a filter allows; those of the last filters are remembered."""
        if only not in self._masks:
            while len(self._masks) >= KEPT_FILTERS:
                self._masks.pop(next(iter(self._masks)), None)
            self._masks[only] = [mark_rows(segment, only) for segment in self.segments]
        return self._masks[only]

    def nearest(
        self, queries: Tensor, *, k: int, only: PassageFilter = ALL_PASSAGES
    ) -> Iterator[list[tuple[int, float]]]:
        masks = None if only == ALL_PASSAGES else self._find_masks(only)
        k, similarity = min(k, len(self)), self.note.similarity
        for some in torch.split(scale_vectors(queries.float(), similarity), MAX_BATCH_QUERIES):
            numbers: list[list[npt.NDArray[np.int64]]] = [[np.empty(0, np.int64)] for _ in some]
            scores: list[list[npt.NDArray[np.float32]]] = [[np.empty(0, np.float32)] for _ in some]
            for at, segment in enumerate(self.segments):
                if masks is None and segment.graph is not None:
                    near = segment.find_in_graph(some, k=k, similarity=similarity)
                else:
                    allowed = None if masks is None else masks[at]
                    near = segment.find_nearest(some, k=k, similarity=similarity, allowed=allowed)
                for query, one in enumerate(near):
                    rows = one.rows if segment.kept is None else np.searchsorted(segment.kept, one.rows)
                    numbers[query].append(self.starts[at] + rows)
                    scores[query].append(one.scores)
            for query in range(len(some)):
                every, all_scores = np.concatenate(numbers[query]), np.concatenate(scores[query])
                order = np.lexsort((every, -all_scores))[:k]
                yield list(zip(every[order].tolist(), all_scores[order].tolist(), strict=True))

    @cached_property
    def keywords(self) -> BM25:
        """Made with the first search that needs them."""
        return BM25(tables=[(segment.words, segment.kept) for segment in self.segments])

    def match_words(self, query: str, *, k: int, only: PassageFilter = ALL_PASSAGES) -> list[tuple[int, float]]:
        allowed = None
        if only != ALL_PASSAGES:
            pairs = zip(self.segments, self._find_masks(only), strict=True)
            allowed = np.concatenate([mask if one.kept is None else mask[one.kept] for one, mask in pairs])
        for segment in self.segments:
            segment.check()
        found = self.keywords.scores(query)
        return [(at, float(found[at])) for at in best_of(found, k, allowed=allowed) if found[at] > 0]

    def compare(self, query: Tensor, numbers: Sequence[int]) -> list[float]:
        scaled, every = scale_vectors(query.float(), self.note.similarity), np.array(numbers, np.int64)
        found = np.empty(len(every), np.float32)
        for segment, start, end in zip(self.segments, self.starts, self.starts[1:], strict=False):
            (own,) = ((every >= start) & (every < end)).nonzero()
            rows = every[own] - start
            rows = rows if segment.kept is None else segment.kept[rows]
            found[own] = segment.score_rows(scaled, rows, self.note.similarity)
        return [float(score) for score in found]


class StoredPassages(Sequence[Passage]):
    """The passages of an index, read one by one."""

    def __init__(self, index: SegmentIndex) -> None:
        self.whole = index

    def __len__(self) -> int:
        return len(self.whole)

    def __getitem__(self, at):  # type: ignore[no-untyped-def]  # a number or a slice
        if isinstance(at, slice):
            return self.whole.get_passages(range(*at.indices(len(self))))
        (found,) = self.whole.get_passages([range(len(self))[at]])
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def mark_rows(segment: Segment, only: PassageFilter) -> npt.NDArray[np.bool_]:
    """The rows of a segment that a filter allows."""
    marks = segment.mark_files(lambda file: file not in segment.deleted and only.allows_file(file))
    if only.values:
        segment.check()
        for row in marks.nonzero()[0].tolist():
            marks[row] = only.allows_fields(FIELDS.decode(segment.get_line(row)).fields)
    return marks


class _Fields(msgspec.Struct):
    fields: dict[str, str] = {}


FIELDS = msgspec.json.Decoder(_Fields)


def scale_vectors(vectors: Tensor, similarity: SimilarityName) -> Tensor:
    """To length 1 where the cosine is the similarity."""
    return F.normalize(vectors, dim=-1) if similarity == "cosine" else vectors


def make_index(note: IndexNote, passages: Sequence[Passage], vectors: Tensor) -> SegmentIndex:
    """An index in memory; where the note has no files, all passages are of one without a name."""
    files = note.files or {"": IndexedFile("", len(passages))}
    return SegmentIndex(note, [make_segment(passages, vectors, files)])


class VectorSettings(NamedTuple):
    """How the passages of an index are read."""

    windows: bool
    dimensions: int


class IndexProgress(NamedTuple):
    """How far the making of an index is: files that are done, of how many, and passages embedded by now."""

    files: int
    total: int
    passages: int


class IndexUpdate(NamedTuple):
    """What has become of the files."""

    made: Index
    kept: int
    added: int
    removed: int
    skipped: dict[str, str]  # file → why


def index_passages(texts: Sequence[str], *, model: Model) -> SegmentIndex:
    """An index in memory."""
    settings = VectorSettings(windows=False, dimensions=get_width(model))
    note = IndexNote("", "", settings.dimensions, {}, windows=False, similarity=get_pooling(model).similarity)
    passages = [Passage("", n, 0, text) for n, text in enumerate(texts, start=1)]
    return make_index(note, passages, _vectors(texts, model, settings))


# --- made and made again --------------------------------------------------------------------------------------------


class FolderStore(IndexStore):
    """A folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    def lock(self) -> AbstractContextManager[object]:
        return lock_folder(self.folder)

    def read(self) -> SegmentIndex | None:
        return read_index(self.folder) if self.folder.is_dir() and any(self.folder.iterdir()) else None

    def change(
        self, before: Index | None, note: IndexNote, *, removed: frozenset[str], added: list[Segment]
    ) -> SegmentIndex:
        content = before.content if isinstance(before, SegmentIndex) else None
        return _as_index(change_folder(self.folder, note, content, removed=removed, added=added))

    def contains(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self.folder.resolve())


def build_index(
    places: Sequence[str | Path],
    *,
    model: Model,
    name: str,
    out: str | Path | IndexStore,
    graph: bool = False,
    vectors: VectorKind | None = None,
    layout: Layout = DEFAULT_LAYOUT,
    windows: bool | None = None,
    dimensions: int | None = None,
    progress: Callable[[IndexProgress], None] = lambda at: None,
) -> IndexUpdate:
    """The index of these files and folders at `out`; stopped by Ctrl-C, it holds the files that were done.

    Made again without a layout it keeps its own; with another one all files are read again. `windows`: whether passages
    longer than the model reads are read whole; None: as the index was made, a new one without. `dimensions`: only so
    many numbers of each vector; None: as the index was made, a new one all. `vectors`: what a search reads of all
    vectors, before it reads the best in float32; None: as the index was made, a new one float32. One process makes the
    index of a folder at a time: the next one begins with what this one has made.
    """
    check_dimensions(dimensions, model=model)
    store = out if isinstance(out, IndexStore) else FolderStore(Path(out))
    if graph:
        check_graph(model)  # before anything is embedded
    with store.lock():
        old = store.read()
        earlier = _check_earlier(old, store, model, windows, dimensions)
        note = IndexNote(
            name,
            hash_weights(model),
            earlier.settings.dimensions,
            layout=layout if layout != DEFAULT_LAYOUT else earlier.layout,
            windows=earlier.settings.windows,
            similarity=get_pooling(model).similarity,
            vectors=vectors or (old.note.vectors if old is not None else "float32"),
            hnsw=graph or (old is not None and old.note.hnsw),
        )
        if note.hnsw:
            check_graph(model)
        return _Making(store, old, note, model, progress).make(places)


class _Making:
    """An index while it is made."""

    def __init__(
        self,
        store: IndexStore,
        old: Index | None,
        note: IndexNote,
        model: Model,
        progress: Callable[[IndexProgress], None],
    ) -> None:
        self.store, self.index, self.note, self.model, self.progress = store, old, note, model, progress
        self.old = {} if old is None else old.list_files()
        self.reads_all = old is not None and old.note.layout != note.layout
        self.pending: dict[str, _Known] = {}
        self.done, self.embedded = 0, 0

    def make(self, places: Sequence[str | Path]) -> IndexUpdate:
        """Embeds what is new, stores it some files at a time, and removes what is gone."""
        roots = [Path(place) for place in places]
        named = list_files(roots, format=self.note.layout.format)
        hashes, skipped = _hashes(path for path in named if not self.store.contains(path))
        if not hashes and not skipped:
            raise DataError(
                f"no file with text in {', '.join(map(str, places))}; .txt, .md, .jsonl, .csv and others are read"
            )
        same = {file for file, known in self.old.items() if hashes.get(file) == known.sha256}
        kept = set() if self.reads_all else same
        total = len(hashes) + len(skipped)
        removed = sum(file not in hashes and self.owns(file, roots) for file in self.old)

        def tell(passages: int) -> None:
            files = len(kept) + self.done + len(skipped)
            self.progress(IndexProgress(files, total, self.embedded + passages))

        settings = VectorSettings(self.note.windows, self.note.width)
        try:
            for some in _new((file for file in hashes if file not in kept), self.note.layout):
                tell(0)
                new = {file: each for file, each in some.items() if isinstance(each, list)}
                self.pending |= _embedded(new, hashes, self.model, tell, settings=settings)
                self.done += len(new)
                self.embedded += sum(map(len, new.values()))
                skipped |= {file: each for file, each in some.items() if isinstance(each, str)}
                if sum(len(known.passages) for known in self.pending.values()) >= STORED_PASSAGES:
                    self.store_pending()
        except BaseException:
            if self.pending:  # whatever ends it, files that were done are kept
                self.store_pending()
            raise
        if not self.done and not kept:
            raise DataError(f"no text was found: {next(iter(skipped.values()))}")
        gone = frozenset(file for file in self.old.keys() - kept if self.owns(file, roots))
        self.store_pending(gone=gone)
        if self.index is None:
            raise BadIndex(f"the index {self.store} was not made")
        tell(0)
        return IndexUpdate(self.index, len(kept), self.done, removed, skipped)

    def owns(self, file: str, roots: Sequence[Path]) -> bool:
        """Whether a file that is not found any more is to be removed; those of others in a shared store are not."""
        return not self.store.is_shared or any(Path(file).is_relative_to(root) for root in roots)

    def store_pending(self, *, gone: frozenset[str] = frozenset()) -> None:
        """What was embedded takes the place of what the index has of these files."""
        ordered = sorted(self.pending.items())
        present = {} if self.index is None else self.index.list_files()
        removed = frozenset(self.old) if self.reads_all else (gone | self.pending.keys()) & self.old.keys()
        note = None if self.index is None else self.index.note
        same = note is not None and (note.vectors, note.hnsw) == (self.note.vectors, self.note.hnsw)
        if not ordered and not removed & present.keys() and (same or self.index is None):
            return
        added = []
        if ordered:
            files = {file: IndexedFile(known.sha256, len(known.passages)) for file, known in ordered}
            passages = [passage for _, known in ordered for passage in known.passages]
            added.append(make_segment(passages, torch.cat([known.vectors for _, known in ordered]), files))
        self.index = self.store.change(self.index, self.note, removed=frozenset(removed), added=added)
        # what was stored is not removed again by a later step
        self.old = {file: known for file, known in self.old.items() if file not in removed}
        self.reads_all = False
        self.pending.clear()


def _hashes(files: Iterable[Path]) -> tuple[dict[str, str], dict[str, str]]:
    """file → its hash, and file → why it cannot be read."""
    hashes, unread = dict[str, str](), dict[str, str]()
    for path in files:
        try:
            hashes[str(path)] = hash_file(path)
        except DataError as error:
            unread[str(path)] = str(error)
    return hashes, unread


class _Known(NamedTuple):
    """One file's part of an index."""

    sha256: str
    passages: list[Passage]
    vectors: Tensor


class _Earlier(NamedTuple):
    """How the index that is there was made."""

    layout: Layout
    settings: VectorSettings


def _check_earlier(
    old: Index | None, store: IndexStore, model: Model, windows: bool | None, dimensions: int | None
) -> _Earlier:
    """How what is there was read; made with another model or in another way it is not touched."""
    if old is None:
        return _Earlier(DEFAULT_LAYOUT, VectorSettings(bool(windows), dimensions or get_width(model)))
    check_model(old, model, place=str(store))
    if windows is not None and windows != old.note.windows:
        raise InputError(
            f"the index {store} was made {'with' if old.note.windows else 'without'} windows; "
            "go on as it was made, or make a new index in another folder"
        )
    if dimensions is not None and dimensions != old.note.width:
        raise InputError(
            f"the index {store} was made with {old.note.width} dimensions, not {dimensions}; "
            "go on as it was made, or make a new index in another folder"
        )
    return _Earlier(old.note.layout, VectorSettings(old.note.windows, old.note.width))


def _new(files: Iterator[str], layout: Layout) -> Iterator[dict[str, list[Passage] | str]]:
    """Files with their passages, or why they have none; some at a time, so that their texts go through together."""
    some: dict[str, list[Passage] | str] = {}
    for file in files:
        try:
            some[file] = split_passages(Path(file), layout)
        except DataError as error:
            some[file] = str(error)
        if sum(len(each) for each in some.values() if isinstance(each, list)) >= MAX_BATCH_PASSAGES:
            yield some
            some = {}
    yield some


def _embedded(
    some: dict[str, list[Passage]],
    hashes: dict[str, str],
    model: Model,
    progress: Callable[[int], None],
    *,
    settings: VectorSettings,
) -> dict[str, _Known]:
    """`progress` gets how many of these passages are done."""
    texts = [passage.text for each in some.values() for passage in each]
    made = [torch.empty(0, settings.dimensions)]
    for portion in split_chunks(texts, first=FIRST_BATCH_PASSAGES):
        made.append(_vectors(portion, model, settings))
        progress(sum(map(len, made)))
    vectors = torch.cat(made)
    parts = torch.split(vectors, [len(each) for each in some.values()])
    return {file: _Known(hashes[file], each, part) for (file, each), part in zip(some.items(), parts, strict=True)}


def _vectors(texts: Sequence[str], model: Model, settings: VectorSettings) -> Tensor:
    found = EmbedTask().compute_vectors(texts, model=model, role="document", **settings._asdict())
    return scale_vectors(found.float(), get_pooling(model).similarity)


# --- the folder -----------------------------------------------------------------------------------------------------


def read_index(folder: str | Path) -> SegmentIndex:
    """The index in a folder, compared with what its manifest says before anything of it is believed. Small files are
    in memory then, large ones mapped."""
    return _as_index(read_folder(folder))


def _as_index(content: FolderContent) -> SegmentIndex:
    return SegmentIndex(content.note, [one.segment for one in content.segments], content=content)


def check_graph(model: Model) -> None:
    """Refuses a graph where its package is missing, or for a similarity that it does not know."""
    usearch()
    similarity = get_pooling(model).similarity
    if similarity not in GRAPH_METRICS:
        raise BadIndex(f"an HNSW graph knows no {similarity} similarity, which this model asks for; leave --hnsw out")


def open_index(folder: str | Path, *, model: Model) -> SegmentIndex:
    """The index in a folder, to be searched with this model."""
    index = read_index(folder)
    check_model(index, model, place=folder)
    return index


def check_model(index: Index, model: Model, *, place: str | Path) -> None:
    """Refuses a model that the index was not made with."""
    if index.note.width > get_full_width(model) or index.note.numbers != hash_weights(model):
        raise InputError(
            f"the index {place} was made with another model ({index.note.model or 'unnamed'}); "
            "use that one, or make a new index in another folder"
        )


def hash_weights(model: Model) -> str:
    """SHA-256 of what decides a vector: weights, pooling, prompts."""
    made = hashlib.sha256(describe_vectors(model).encode())
    for path, p in sorted(model.network.named_parameters()):
        if not path.startswith("readout."):
            made.update(path.encode())
            made.update(p.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    for tensor in layer_tensors(get_pooling(model)):
        made.update(tensor.contiguous().view(torch.uint8).numpy().data)
    for path, matrix in sorted(find_matrices(model.network)):
        if not path.startswith("readout."):
            made.update(f"{path} {matrix.kind}".encode())
            made.update(matrix.data.numpy().data)
    return made.hexdigest()


def describe_vectors(model: Model) -> str:
    """The folder's words on vectors; what it does not use is left out, so that older indexes keep their hashes."""
    pooling = model.pooling
    if pooling is None:
        return "None"
    said = f"Pooling(kind={pooling.kind!r}, normalise={pooling.normalise!r}, longest={pooling.longest!r})"
    if any(text for _, text in pooling.prompts):
        said += f" {pooling.prompts!r} {pooling.default_prompt!r}"
    if pooling.further_kinds or pooling.layers or not pooling.pools_prompt:
        layers = [getattr(layer, "act", type(layer).__name__) for layer in pooling.layers]
        said += f" {pooling.further_kinds!r} {layers!r} {pooling.pools_prompt!r}"
    return said if pooling.similarity == "cosine" else f"{said} {pooling.similarity}"
