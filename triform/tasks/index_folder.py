"""The folder of an index: segments that are never written to again, and a note that says which of them count.

    index.json             what the index was made with, its segments, and the files that were deleted of each
    000001.jsonl           passages of a segment, one per line
    000001.safetensors     vectors, codes, where lines begin, words and their postings
    000001.files.json      the files they are of
    000001.usearch         perhaps an HNSW graph
    manifest.json

A change makes another folder beside this one, with links to the segments that stay, and exchanges the two names: at
every moment the old or the new index is there. Large files are mapped, small ones read. Format 1 had all passages in
`passages.jsonl` and all vectors in `vectors.safetensors`; it is read as one segment.
"""

import mmap
import os
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor

from triform.data.columns import Layout
from triform.errors import TriformError
from triform.files import manifest
from triform.files.atomic_folder import write_folder
from triform.files.errors import FileError
from triform.files.format_version import INDEX_FORMAT, check_format
from triform.files.manifest import Fingerprint
from triform.files.safe_folder import SafeFolder
from triform.files.safetensors_data import describe_tensor
from triform.files.safetensors_header import OutgoingTensor, StoredTensor, read_header, write_safetensors
from triform.files.stable_read import read_steadily
from triform.files.strict_json import encode_json, parse_json
from triform.hints import Hint
from triform.pooling import SimilarityName
from triform.tasks.bm25 import WordTable, join_word_tables
from triform.tasks.index_segment import (
    SCAN_ROWS,
    IndexedFile,
    Segment,
    VectorCodes,
    VectorKind,
    encode_vectors,
    iterate_lines,
    iterate_vectors,
)

NOTE = "index.json"
FIRST_PASSAGES, FIRST_VECTORS, FIRST_GRAPH = "passages.jsonl", "vectors.safetensors", "graph.usearch"  # of format 1
PASSAGES, VECTORS, FILES, GRAPH = ".jsonl", ".safetensors", ".files.json", ".usearch"
ALIGNMENT = 64
READ_BYTES = 1 << 26  # of a file: a larger one is mapped
MAX_SEGMENT_PASSAGES = 1 << 18
MAX_DELETED_SHARE = 0.25  # of a segment's passages; with more it is written again
GRAPH_METRICS: dict[SimilarityName, str] = {"cosine": "cos", "dot": "ip", "euclidean": "l2sq"}  # usearch's


class BadIndex(TriformError):
    """An index that cannot be read or does not fit."""


class SegmentNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """A segment: its name, how many passages are in its file, and the files that were deleted since."""

    name: str
    passages: int
    deleted: tuple[str, ...] = ()


class IndexNote(msgspec.Struct, frozen=True):
    """What an index was made from, and its segments."""

    model: str
    numbers: str  # hash of the model's weights
    width: int
    files: dict[str, IndexedFile] = {}  # of format 1, in the order of their passages
    layout: Layout = Layout()  # how the files were read
    windows: bool = True  # long texts were read whole; an index that does not say it is of before there was a choice
    similarity: SimilarityName = "cosine"
    vectors: VectorKind = "float32"
    hnsw: bool = False
    segments: tuple[SegmentNote, ...] = ()
    format_version: int = 1  # an index that does not say it is of before there were versions


class StoredSegment(NamedTuple):
    """A segment and the name of its files; without one it is in memory."""

    segment: Segment
    name: str = ""


class FolderContent(NamedTuple):
    """An index as it was read: its note, its segments, and the fingerprints of their files."""

    note: IndexNote
    segments: list[StoredSegment]
    known: dict[str, Fingerprint]


# --- reading --------------------------------------------------------------------------------------------------------


def read_folder(folder: str | Path) -> FolderContent:
    """The index in a folder, compared with what its manifest says before anything of it is believed."""
    return read_steadily(folder, lambda: _read(SafeFolder(folder)))


def _read(box: SafeFolder) -> FolderContent:
    known = manifest.read(box)
    if known is None or NOTE not in known.files:
        raise BadIndex(f"{box.root} holds no index; make one with: {Hint.INDEX.format(folder=box.root)}")
    seen = {name: _identify(box, name) for name in known.files}
    if wrong := manifest.find_damaged(box, known):
        raise BadIndex(f"the index {box.root} is damaged: {', '.join(wrong)} is not as it was written; make it again")
    note = read_note(box)
    if note.format_version == 1:
        hnsw = FIRST_GRAPH in known.files
        segments = [StoredSegment(_read_first_format(box, note, hnsw=hnsw))]
        note = msgspec.structs.replace(note, hnsw=hnsw)
    else:
        segments = [StoredSegment(_read_segment(box, one, note), one.name) for one in note.segments]
    for name, before in seen.items():
        if _identify(box, name) != before:
            raise FileError(
                f"{box.root}: {name} was changed by another program while it was being read; "
                "load it again when that has finished"
            )
    return FolderContent(note, segments, known.files)


def _identify(box: SafeFolder, name: str) -> tuple[int, ...] | None:
    """Without the time of the last change: another process that links a file for its own index changes that."""
    found = manifest.read_identity(box, name)
    return found and found[:4]


def read_note(box: SafeFolder) -> IndexNote:
    """What an index says of itself, however many files it was made of."""
    with box.open(NOTE) as file:
        data = file.read()
    otherwise = "make the index again in another folder"
    check_format(data, what=box.root / NOTE, otherwise=otherwise, newest=INDEX_FORMAT)
    return parse_json(data, type=IndexNote, what=NOTE, unique_keys=True)


class _Opened:
    """A file's bytes, read or mapped."""

    def __init__(self, box: SafeFolder, name: str) -> None:
        self.place, self.file = f"{name} in {box.root}", box.open(name)
        weakref.finalize(self, self.file.close)
        status = os.fstat(self.file.fileno())
        self.identity = status.st_size, status.st_mtime_ns
        self.is_mapped = status.st_size > READ_BYTES
        self.data: Any = _map(self.file.fileno()) if self.is_mapped else bytearray(self.file.read())

    def check(self) -> None:
        """Refuses a mapped file that is not as it was opened; one that is cut while it is read ends the process."""
        status = os.fstat(self.file.fileno())
        if self.is_mapped and (status.st_size, status.st_mtime_ns) != self.identity:
            raise FileError(f"{self.place} was changed by another program; make the index again")

    def get_tensor(self, place: StoredTensor) -> Tensor:
        dtype = TENSOR_DTYPES[place.dtype]
        count = (place.stop - place.start) // dtype.itemsize
        if not count:
            return torch.empty(place.shape, dtype=dtype)
        return torch.frombuffer(self.data, dtype=dtype, count=count, offset=place.start).view(place.shape)


TENSOR_DTYPES = {
    "F32": torch.float32, "F16": torch.float16, "I64": torch.int64, "I32": torch.int32, "I8": torch.int8,
    "U8": torch.uint8,
}  # fmt: skip


def _map(handle: int) -> mmap.mmap:
    """Privately: nothing that is written to these bytes reaches the file."""
    if os.name == "nt":
        return mmap.mmap(handle, 0, access=mmap.ACCESS_COPY)
    flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)  # larger than memory is no error
    return mmap.mmap(handle, 0, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def _read_segment(box: SafeFolder, note: SegmentNote, whole: IndexNote) -> Segment:
    lines, arrays = _Opened(box, note.name + PASSAGES), _Opened(box, note.name + VECTORS)
    places = read_header(box, note.name + VECTORS)

    def get(name: str, dtype: str) -> Tensor:
        if name not in places or places[name].dtype != dtype:
            raise BadIndex(f"the index {box.root} is damaged: {note.name}{VECTORS} holds no {name}; make it again")
        return arrays.get_tensor(places[name])

    codes = None
    if whole.vectors != "float32":
        scales = get("scales", "F32") if whole.vectors == "int8" else None
        codes = VectorCodes(get("codes", "I8" if whole.vectors == "int8" else "F16"), scales, get("errors", "F32"))
    words = WordTable(*(get(name, dtype).numpy() for name, dtype in WORD_ARRAYS.items()))
    with box.open(note.name + FILES) as file:
        files = parse_json(file.read(), type=dict[str, IndexedFile], what=note.name + FILES)
    vectors, starts = get("vectors", "F32"), get("line_starts", "I64").numpy()
    counts = {note.passages, len(starts) - 1, len(words.lengths), sum(one.passages for one in files.values())}
    if vectors.shape != (note.passages, whole.width) or len(counts) != 1 or starts[-1] != len(lines.data):
        raise BadIndex(f"the index {box.root} is damaged: its passages and vectors are not equally many")

    def check() -> None:
        lines.check()
        arrays.check()

    graph = None
    if whole.hnsw:
        graph = _read_graph(box, note.name + GRAPH)
    return Segment(
        lines.data, starts, vectors, files, codes=codes, words=words, graph=graph, deleted=frozenset(note.deleted),
        check=check,
    )  # fmt: skip


WORD_ARRAYS = {
    "words": "U8", "word_starts": "I64", "posting_starts": "I64", "places": "I32", "times": "I32", "lengths": "I32",
}  # fmt: skip


def _read_first_format(box: SafeFolder, note: IndexNote, *, hnsw: bool) -> Segment:
    lines, arrays = _Opened(box, FIRST_PASSAGES), _Opened(box, FIRST_VECTORS)
    place = read_header(box, FIRST_VECTORS).get("vectors")
    if place is None or place.dtype != "F32":
        raise BadIndex(f"the index {box.root} is damaged: {FIRST_VECTORS} holds no float32 vectors; make it again")
    vectors = arrays.get_tensor(place)
    ends = (np.frombuffer(lines.data, np.uint8) == ord("\n")).nonzero()[0] + 1
    count = sum(file.passages for file in note.files.values())
    if vectors.shape != (len(ends), note.width) or count != len(ends):
        raise BadIndex(f"the index {box.root} is damaged: its passages and vectors are not equally many")
    graph = _read_graph(box, FIRST_GRAPH) if hnsw else None
    return Segment(lines.data, np.concatenate(([0], ends)), vectors, note.files, graph=graph)


def _read_graph(box: SafeFolder, name: str) -> Any:
    path = box.root / name
    return usearch().Index.restore(str(path), view=path.stat().st_size > READ_BYTES)


def usearch() -> Any:
    """The usearch package; its absence is an error that says how to install it."""
    try:
        from usearch import index
    except ImportError:
        raise BadIndex("an HNSW graph needs the usearch package: pip install usearch") from None
    return index


# --- changing -------------------------------------------------------------------------------------------------------


def change_folder(
    folder: Path, note: IndexNote, before: FolderContent | None, *, removed: frozenset[str], added: Sequence[Segment]
) -> FolderContent:
    """One step: without the passages of some files, and with new segments."""
    stored = [] if before is None else before.segments
    deleted = [StoredSegment(one.segment.delete(removed), one.name) for one in stored]
    same = before is not None and (before.note.vectors, before.note.hnsw) == (note.vectors, note.hnsw)
    groups = group_segments([*deleted, *map(StoredSegment, added)])
    names = {one.name for one in stored if one.name}
    number, segments, known = max(map(int, names), default=0), list[SegmentNote](), dict[str, Fingerprint]()
    with write_folder(folder) as draft:
        for group in groups:
            if same and len(group) == 1 and group[0].name and not needs_compaction(group[0].segment):
                (kept,) = group
                segment, name = kept.segment, kept.name
                files = [name + PASSAGES, name + VECTORS, name + FILES, *([name + GRAPH] if note.hnsw else [])]
                for file in files:
                    link_file(folder / file, draft / file)
                    known[file] = before.known[file]  # type: ignore[union-attr]
                segments.append(SegmentNote(name, segment.rows, tuple(sorted(segment.deleted))))
            else:
                number += 1
                name = f"{number:06}"
                rows = write_segment(draft, name, [one.segment for one in group], note)
                segments.append(SegmentNote(name, rows))
        written = msgspec.structs.replace(note, files={}, segments=tuple(segments), format_version=INDEX_FORMAT)
        (draft / NOTE).write_bytes(encode_json(written))
        manifest.write(draft, known=known)
    box = SafeFolder(folder)
    opened = [StoredSegment(_read_segment(box, one, written), one.name) for one in segments]
    found = manifest.read(box)
    return FolderContent(written, opened, {} if found is None else found.files)


def needs_compaction(segment: Segment) -> bool:
    return segment.rows - len(segment) > MAX_DELETED_SHARE * segment.rows


def group_segments(segments: Iterable[StoredSegment]) -> list[list[StoredSegment]]:
    """Neighbours that become one segment: so that each is more than twice as large as the next one, or two together
    are larger than segments get. Empty ones are left out."""
    groups: list[list[StoredSegment]] = []
    for one in segments:
        if not len(one.segment):
            continue
        groups.append([one])
        while len(groups) > 1:
            before, last = (sum(len(each.segment) for each in group) for group in groups[-2:])
            if before > 2 * last or before + last > MAX_SEGMENT_PASSAGES:
                break
            groups[-2:] = [groups[-2] + groups[-1]]
    return groups


def link_file(source: Path, target: Path) -> None:
    """Another name for a file that nothing writes to any more; a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def write_segment(draft: Path, name: str, parts: Sequence[Segment], note: IndexNote) -> int:
    """One segment of the passages that are left of several; returns how many."""
    starts = [np.zeros(1, np.int64)]
    with (draft / (name + PASSAGES)).open("wb") as file:
        for part in parts:
            for line in iterate_lines(part):
                file.write(line)
            lengths = np.diff(part.line_starts)
            starts.append(starts[-1][-1] + np.cumsum(lengths if part.kept is None else lengths[part.kept]))
    line_starts = np.concatenate(starts)
    rows = len(line_starts) - 1
    words = join_word_tables([(part.words, part.kept) for part in parts])
    write_arrays(draft / (name + VECTORS), parts, line_starts, words, note)
    files = {file: known for part in parts for file, known in part.kept_files.items()}
    (draft / (name + FILES)).write_bytes(encode_json(files))
    if note.hnsw:
        dtype = "f32" if note.vectors == "float32" else "f16"
        graph = usearch().Index(ndim=note.width, metric=GRAPH_METRICS[note.similarity], dtype=dtype)
        for some in _iterate(parts):
            graph.add(np.arange(len(graph), len(graph) + len(some)), some.numpy())
        graph.save(str(draft / (name + GRAPH)))
    return rows


def write_arrays(path: Path, parts: Sequence[Segment], line_starts: Any, words: WordTable, note: IndexNote) -> None:
    """Wide numbers first, so that all are aligned. Vectors go through memory some at a time."""
    rows = len(line_starts) - 1
    small = {"line_starts": torch.from_numpy(line_starts)}
    small |= {name: torch.from_numpy(np.array(array)) for name, array in words._asdict().items()}
    tensors = [describe_tensor(name, tuple(x.shape), x.dtype, lambda x=x: x) for name, x in small.items()]  # type: ignore[misc]
    tensors.append(OutgoingTensor("vectors", "F32", (rows, note.width), _pieces(parts, lambda some: some)))
    if note.vectors != "float32":
        kind = note.vectors
        measured = [encode_vectors(some, kind)[1:] for some in _iterate(parts)]
        aside = {"errors": torch.cat([errors for _, errors in measured])}
        if kind == "int8":
            aside["scales"] = torch.cat([scales for scales, _ in measured if scales is not None])
        tensors += [describe_tensor(name, tuple(x.shape), x.dtype, lambda x=x: x) for name, x in aside.items()]  # type: ignore[misc]
        dtype = "I8" if kind == "int8" else "F16"
        codes = _pieces(parts, lambda some: encode_vectors(some, kind).codes)
        tensors.append(OutgoingTensor("codes", dtype, (rows, note.width), codes))
    order = ("I64", "F32", "I32", "F16", "I8", "U8")
    with path.open("wb") as file:
        write_safetensors(file, sorted(tensors, key=lambda one: order.index(one.dtype)), align=ALIGNMENT)


def _iterate(parts: Sequence[Segment]) -> Iterator[Tensor]:
    return (some for part in parts for some in iterate_vectors(part))


def _pieces(parts: Sequence[Segment], encode: Callable[[Tensor], Tensor]) -> Callable[[], Iterator[memoryview]]:
    def pieces() -> Iterator[memoryview]:
        for some in _iterate(parts):
            data: memoryview = encode(some).contiguous().flatten().view(torch.uint8).numpy().data
            yield data

    return pieces


def count_scan_bytes(width: int) -> int:
    """What a search has in memory of mapped vectors at once."""
    return 4 * SCAN_ROWS * width
