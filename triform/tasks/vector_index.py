"""An index: passages, their vectors, and what they were made from, in a folder of safetensors and JSON.

Made again after files have changed, only what is new is embedded. Search is exact; with usearch (an extra) an HNSW
graph lies beside the vectors and finds nearly the same much sooner in very large indexes. Refuses to know terminals.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from triform.core.quantized_network import find_matrices
from triform.data.chunks import split_chunks
from triform.data.columns import Layout
from triform.data.line_reader import DataError
from triform.data.readers import DEFAULT_LAYOUT
from triform.data.row_cache import hash_file
from triform.errors import InputError, TriformError
from triform.files import manifest
from triform.files.atomic_folder import lock_folder, write_folder
from triform.files.format_version import CURRENT_FORMAT, check_format
from triform.files.safe_folder import SafeFolder
from triform.files.safetensors_data import TensorFile, write_tensors
from triform.files.safetensors_header import read_header
from triform.files.stable_read import read_steadily
from triform.files.strict_json import encode_json, parse_json
from triform.hints import Hint
from triform.model import Model
from triform.pooling import SimilarityName, compare_vectors
from triform.tasks.embed import EmbedTask
from triform.tasks.passage_splitter import Passage, list_files, split_passages
from triform.tasks.text_vectors import check_dimensions, get_full_width, get_pooling, get_width
from triform.weights.sentence_transformers import layer_tensors

NOTE, PASSAGES, VECTORS, GRAPH = "index.json", "passages.jsonl", "vectors.safetensors", "graph.usearch"
MAX_BATCH_PASSAGES = 1024  # passages embedded at once
FIRST_BATCH_PASSAGES = 32  # of them at first: so that progress is seen soon
MAX_BATCH_QUERIES = 64  # compared with all vectors at once


class BadIndex(TriformError):
    """An index that cannot be read or does not fit."""


class IndexedFile(msgspec.Struct, frozen=True):
    """Hash of a file in the index, and its number of passages."""

    sha256: str
    passages: int


class IndexNote(msgspec.Struct, frozen=True):
    """What an index was made from; `files` stand in the order of their passages."""

    model: str
    numbers: str  # hash of the model's weights
    width: int
    files: dict[str, IndexedFile]
    layout: Layout = Layout()  # how the files were read
    windows: bool = True  # long texts were read whole; an index that does not say it is of before there was a choice
    similarity: SimilarityName = "cosine"
    format_version: int = CURRENT_FORMAT


class Index(NamedTuple):
    """Passages and their vectors, [N, D]; where the cosine is the similarity each of length 1."""

    note: IndexNote
    passages: list[Passage]
    vectors: Tensor
    graph: Any = None  # usearch's

    def nearest(self, queries: Tensor, *, k: int) -> Iterator[list[tuple[int, float]]]:
        """For each query its k nearest passages, by number, and their similarities."""
        k, similarity = min(k, len(self.passages)), self.note.similarity
        for some in torch.split(scale_vectors(queries.float(), similarity), MAX_BATCH_QUERIES):
            if self.graph is not None:
                found, to_score = self.graph.search(some.numpy(), k), GRAPH_METRICS[similarity][1]
                rows = zip(np.atleast_2d(found.keys), np.atleast_2d(found.distances), strict=True)
                yield from ([(int(at), to_score(float(far))) for at, far in zip(*row, strict=True)] for row in rows)
            else:
                scores = compare_vectors(some, self.vectors, "dot" if similarity == "cosine" else similarity)
                best = scores.topk(k, dim=-1)
                rows_ = zip(best.indices.tolist(), best.values.tolist(), strict=True)
                yield from (list(zip(*row, strict=True)) for row in rows_)


GRAPH_METRICS: dict[
    SimilarityName, tuple[str, Callable[[float], float]]
] = {  # usearch's metric, its distance as a score
    "cosine": ("cos", lambda distance: 1 - distance),
    "dot": ("ip", lambda distance: 1 - distance),
    "euclidean": ("l2sq", lambda distance: -math.sqrt(max(distance, 0.0))),
}


def scale_vectors(vectors: Tensor, similarity: SimilarityName) -> Tensor:
    """To length 1 where the cosine is the similarity."""
    return F.normalize(vectors, dim=-1) if similarity == "cosine" else vectors


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


def index_passages(texts: Sequence[str], *, model: Model) -> Index:
    """An index in memory."""
    settings = VectorSettings(windows=False, dimensions=get_width(model))
    note = IndexNote("", "", settings.dimensions, {}, windows=False, similarity=get_pooling(model).similarity)
    passages = [Passage("", n, 0, text) for n, text in enumerate(texts, start=1)]
    return Index(note, passages, _vectors(texts, model, settings))


# --- made and made again --------------------------------------------------------------------------------------------


def build_index(
    places: Sequence[str | Path],
    *,
    model: Model,
    name: str,
    out: str | Path,
    graph: bool = False,
    layout: Layout = DEFAULT_LAYOUT,
    windows: bool | None = None,
    dimensions: int | None = None,
    progress: Callable[[IndexProgress], None] = lambda at: None,
) -> IndexUpdate:
    """The index of these files and folders at `out`; stopped by Ctrl-C, it holds the files that were done.

    Made again without a layout it keeps its own; with another one all files are read again. `windows`: whether passages
    longer than the model reads are read whole; None: as the index was made, a new one without. `dimensions`: only so
    many numbers of each vector; None: as the index was made, a new one all. One process makes it at a time: the next
    one begins with what this one has made.
    """
    check_dimensions(dimensions, model=model)
    folder = Path(out)
    if graph := graph or (folder / GRAPH).exists():
        usearch()  # a package that is missing is said before anything is embedded
        check_graph(model)
    with lock_folder(folder):
        return _make(
            places,
            model=model,
            name=name,
            folder=folder,
            graph=graph,
            layout=layout,
            progress=progress,
            windows=windows,
            dimensions=dimensions,
        )


def _make(
    places: Sequence[str | Path],
    *,
    model: Model,
    name: str,
    folder: Path,
    graph: bool,
    layout: Layout,
    windows: bool | None,
    dimensions: int | None,
    progress: Callable[[IndexProgress], None],
) -> IndexUpdate:
    old, own_layout, settings = _earlier(folder, model, windows, dimensions)
    layout = layout if layout != DEFAULT_LAYOUT else own_layout
    named = list_files([Path(place) for place in places], format=layout.format)
    found = (path for path in named if not is_inside(path, folder))
    hashes, skipped = _hashes(found)
    if not hashes and not skipped:
        raise DataError(
            f"no file with text in {', '.join(map(str, places))}; .txt, .md, .jsonl, .csv and others are read"
        )
    same = {file for file, known in old.items() if hashes.get(file) == known.sha256}
    kept = {file: old[file] for file in same} if layout == own_layout else {}
    done, total, embedded = dict(kept), len(hashes) + len(skipped), 0

    def tell(passages: int) -> None:
        progress(IndexProgress(len(done) + len(skipped), total, embedded + passages))

    try:
        for some in _new((file for file in hashes if file not in kept), layout):
            tell(0)
            new = {file: each for file, each in some.items() if isinstance(each, list)}
            done |= _embedded(new, hashes, model, tell, settings=settings)
            embedded += sum(map(len, new.values()))
            skipped |= {file: each for file, each in some.items() if isinstance(each, str)}
    finally:
        # Whatever ends it, files that were done are kept; without one there is nothing to keep.
        if done:
            note = IndexNote(name, hash_weights(model), settings.dimensions, {}, layout, settings.windows)
            index = _joined(done, msgspec.structs.replace(note, similarity=get_pooling(model).similarity))
            _write(folder, index, graph=graph)
    if not done:
        raise DataError(f"no text was found: {next(iter(skipped.values()))}")
    progress(IndexProgress(total, total, embedded))
    return IndexUpdate(index, len(kept), len(done) - len(kept), len(old.keys() - hashes.keys()), skipped)


def is_inside(path: Path, folder: Path) -> bool:
    """An index that stands among its files is not one of them."""
    return path.resolve().is_relative_to(folder.resolve())


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


def _earlier(
    folder: Path, model: Model, windows: bool | None, dimensions: int | None
) -> tuple[dict[str, _Known], Layout, VectorSettings]:
    """What stands there already, by file, and how it was read; made with another model or way it is not touched."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return {}, DEFAULT_LAYOUT, VectorSettings(bool(windows), dimensions or get_width(model))
    index, found, at = open_index(folder, model=model), dict[str, _Known](), 0
    if windows is not None and windows != index.note.windows:
        raise InputError(
            f"the index {folder} was made {'with' if index.note.windows else 'without'} windows; "
            "go on as it was made, or make a new index in another folder"
        )
    if dimensions is not None and dimensions != index.note.width:
        raise InputError(
            f"the index {folder} was made with {index.note.width} dimensions, not {dimensions}; "
            "go on as it was made, or make a new index in another folder"
        )
    for file, said in index.note.files.items():
        end = at + said.passages
        found[file] = _Known(said.sha256, index.passages[at:end], index.vectors[at:end])
        at = end
    return found, index.note.layout, VectorSettings(index.note.windows, index.note.width)


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


def _joined(done: dict[str, _Known], note: IndexNote) -> Index:
    ordered = sorted(done.items())
    files = {file: IndexedFile(known.sha256, len(known.passages)) for file, known in ordered}
    return Index(
        msgspec.structs.replace(note, files=files),
        [passage for _, known in ordered for passage in known.passages],
        torch.cat([known.vectors for _, known in ordered]),
    )


# --- the folder -----------------------------------------------------------------------------------------------------


def _write(folder: Path, index: Index, *, graph: bool) -> None:
    with write_folder(folder) as draft:
        (draft / NOTE).write_bytes(encode_json(index.note))
        encode = msgspec.json.Encoder().encode
        with (draft / PASSAGES).open("wb") as lines:
            lines.writelines(encode(passage) + b"\n" for passage in index.passages)
        write_tensors(draft / VECTORS, {"vectors": index.vectors})
        if graph:
            metric, _ = GRAPH_METRICS[index.note.similarity]
            made = usearch().Index(ndim=index.note.width, metric=metric, dtype="f32")
            made.add(np.arange(len(index.passages)), index.vectors.numpy())
            made.save(str(draft / GRAPH))
        manifest.write(draft)


def read_index(folder: str | Path) -> Index:
    """The index in a folder, compared with what its manifest says before anything of it is believed. It is all in
    memory then: what becomes of the files afterwards changes nothing."""
    return read_steadily(folder, lambda: _read(SafeFolder(folder)))


def _read(box: SafeFolder) -> Index:
    known = manifest.read(box)
    if known is None or NOTE not in known.files:
        raise BadIndex(f"{box.root} holds no index; make one with: {Hint.INDEX.format(folder=box.root)}")
    seen = manifest.read_identities(box, known.files)
    if wrong := manifest.find_damaged(box, known):
        raise BadIndex(f"the index {box.root} is damaged: {', '.join(wrong)} is not as it was written; make it again")
    note = read_note(box)
    with box.open(PASSAGES) as lines:
        passages = msgspec.json.Decoder(Passage).decode_lines(lines.read())
    index = Index(note, passages, _stored_vectors(box), _graph(box) if box.has(GRAPH) else None)
    count = sum(file.passages for file in note.files.values())
    if index.vectors.shape != (len(passages), note.width) or count != len(passages):
        raise BadIndex(f"the index {box.root} is damaged: its passages and vectors are not equally many")
    manifest.check_unchanged(box, seen)
    return index


def read_note(box: SafeFolder) -> IndexNote:
    """What an index says of itself, however many files it was made of."""
    with box.open(NOTE) as file:
        data = file.read()
    check_format(data, what=box.root / NOTE, otherwise="make the index again in another folder")
    return parse_json(data, type=IndexNote, what=NOTE, unique_keys=True)


def _stored_vectors(box: SafeFolder) -> Tensor:
    place = read_header(box, VECTORS).get("vectors")
    if place is None or place.dtype != "F32":
        raise BadIndex(f"the index {box.root} is damaged: {VECTORS} holds no float32 vectors; make it again")
    return TensorFile(box, VECTORS).read_tensor(place)


def _graph(box: SafeFolder) -> Any:
    return usearch().Index.restore(str(box.root / GRAPH))


def check_graph(model: Model) -> None:
    """Refuses a graph for a similarity that it does not know."""
    similarity = get_pooling(model).similarity
    if similarity not in GRAPH_METRICS:
        raise BadIndex(f"an HNSW graph knows no {similarity} similarity, which this model asks for; leave --hnsw out")


def usearch() -> Any:
    """The usearch package; its absence is an error that says how to install it."""
    try:
        from usearch import index
    except ImportError:
        raise BadIndex("an HNSW graph needs the usearch package: pip install usearch") from None
    return index


def open_index(folder: str | Path, *, model: Model) -> Index:
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
