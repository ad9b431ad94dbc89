"""An index: passages, their vectors, and what they were made from, in a folder of safetensors and JSON.

Made again after files have changed, only what is new is embedded. Search is exact; with usearch (an extra) an HNSW
graph lies beside the vectors and finds nearly the same much sooner in very large indexes. Refuses to know terminals.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from triform.data.chunks import portions
from triform.data.columns import Layout
from triform.data.line_reader import DataError
from triform.data.readers import AS_NAMED
from triform.data.row_cache import file_hash
from triform.errors import InputError, TriformError
from triform.files import manifest
from triform.files.atomic_folder import appearing, writing
from triform.files.format_version import FORMAT, check_format
from triform.files.safe_folder import Box
from triform.files.safetensors_data import TensorFile, write_tensors
from triform.files.safetensors_header import read_header
from triform.files.stable_read import read_steadily
from triform.files.strict_json import encode_json, parse_json
from triform.hints import Hint
from triform.model import Model
from triform.tasks.embed import EmbedTask
from triform.tasks.passage_splitter import Passage, files_in, passages_of

NOTE, PASSAGES, VECTORS, GRAPH = "index.json", "passages.jsonl", "vectors.safetensors", "graph.usearch"
TOGETHER = 1024  # passages embedded at once
FIRST = 32  # of them at first: so that progress is seen soon
QUERIES = 64  # compared with all vectors at once


class BadIndex(TriformError):
    """An index that cannot be read or does not fit."""


class File(msgspec.Struct, frozen=True):
    sha256: str
    passages: int


class Note(msgspec.Struct, frozen=True):
    """What an index was made from; `files` stand in the order of their passages."""

    model: str
    numbers: str  # hash of the model's weights
    width: int
    files: dict[str, File]
    layout: Layout = Layout()  # how the files were read
    windows: bool = True  # long texts were read whole; an index that does not say it is of before there was a choice
    format_version: int = FORMAT


class Index(NamedTuple):
    """Passages and their vectors, [N, D], each of length 1."""

    note: Note
    passages: list[Passage]
    vectors: Tensor
    graph: Any = None  # usearch's

    def nearest(self, queries: Tensor, *, k: int) -> Iterator[list[tuple[int, float]]]:
        """For each query its k nearest passages, by number, and their cosines."""
        k = min(k, len(self.passages))
        for some in torch.split(F.normalize(queries.float(), dim=-1), QUERIES):
            if self.graph is not None:
                found = self.graph.search(some.numpy(), k)
                rows = zip(np.atleast_2d(found.keys), np.atleast_2d(found.distances), strict=True)
                yield from ([(int(at), 1 - float(far)) for at, far in zip(*row, strict=True)] for row in rows)
            else:
                best = (some @ self.vectors.T).topk(k, dim=-1)
                rows_ = zip(best.indices.tolist(), best.values.tolist(), strict=True)
                yield from (list(zip(*row, strict=True)) for row in rows_)


class Progress(NamedTuple):
    """How far the making of an index is: files that are done, of how many, and passages embedded by now."""

    files: int
    total: int
    passages: int


class Made(NamedTuple):
    """What has become of the files."""

    made: Index
    kept: int
    added: int
    removed: int
    skipped: dict[str, str]  # file → why


def of_passages(texts: Sequence[str], *, model: Model) -> Index:
    """An index in memory."""
    note = Note("", "", model.spec.width, {}, windows=False)
    passages = [Passage("", n, 0, text) for n, text in enumerate(texts, start=1)]
    return Index(note, passages, _vectors(texts, model, windows=False))


# --- made and made again --------------------------------------------------------------------------------------------


def make(
    places: Sequence[str | Path],
    *,
    model: Model,
    name: str,
    out: str | Path,
    graph: bool = False,
    layout: Layout = AS_NAMED,
    windows: bool | None = None,
    progress: Callable[[Progress], None] = lambda at: None,
) -> Made:
    """The index of these files and folders at `out`; stopped by Ctrl-C, it holds the files that were done.

    Made again without a layout it keeps its own; with another one all files are read again. `windows`: whether passages
    longer than the model reads are read whole; None: as the index was made, a new one without. One process makes it at
    a time: the next one begins with what this one has made.
    """
    folder = Path(out)
    if graph := graph or (folder / GRAPH).exists():
        usearch()  # a package that is missing is said before anything is embedded
    with writing(folder):
        return _make(
            places,
            model=model,
            name=name,
            folder=folder,
            graph=graph,
            layout=layout,
            progress=progress,
            windows=windows,
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
    progress: Callable[[Progress], None],
) -> Made:
    old, own_layout, windows = _earlier(folder, model, windows)
    layout = layout if layout != AS_NAMED else own_layout
    named = files_in([Path(place) for place in places], format=layout.format)
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
        progress(Progress(len(done) + len(skipped), total, embedded + passages))

    try:
        for some in _new((file for file in hashes if file not in kept), layout):
            tell(0)
            new = {file: each for file, each in some.items() if isinstance(each, list)}
            done |= _embedded(new, hashes, model, tell, windows=windows)
            embedded += sum(map(len, new.values()))
            skipped |= {file: each for file, each in some.items() if isinstance(each, str)}
    finally:
        # Whatever ends it, files that were done are kept; without one there is nothing to keep.
        if done:
            index = _joined(done, Note(name, numbers_of(model), model.spec.width, {}, layout, windows))
            _write(folder, index, graph=graph)
    if not done:
        raise DataError(f"no text was found: {next(iter(skipped.values()))}")
    progress(Progress(total, total, embedded))
    return Made(index, len(kept), len(done) - len(kept), len(old.keys() - hashes.keys()), skipped)


def is_inside(path: Path, folder: Path) -> bool:
    """An index that stands among its files is not one of them."""
    return path.resolve().is_relative_to(folder.resolve())


def _hashes(files: Iterable[Path]) -> tuple[dict[str, str], dict[str, str]]:
    """file → its hash, and file → why it cannot be read."""
    hashes, unread = dict[str, str](), dict[str, str]()
    for path in files:
        try:
            hashes[str(path)] = file_hash(path)
        except DataError as error:
            unread[str(path)] = str(error)
    return hashes, unread


class _Known(NamedTuple):
    """One file's part of an index."""

    sha256: str
    passages: list[Passage]
    vectors: Tensor


def _earlier(folder: Path, model: Model, windows: bool | None) -> tuple[dict[str, _Known], Layout, bool]:
    """What stands there already, by file, and how it was read; made with another model or way it is not touched."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return {}, AS_NAMED, bool(windows)
    index, found, at = opened(folder, model=model), dict[str, _Known](), 0
    if windows is not None and windows != index.note.windows:
        raise InputError(
            f"the index {folder} was made {'with' if index.note.windows else 'without'} windows; "
            "go on as it was made, or make a new index in another folder"
        )
    for file, said in index.note.files.items():
        end = at + said.passages
        found[file] = _Known(said.sha256, index.passages[at:end], index.vectors[at:end])
        at = end
    return found, index.note.layout, index.note.windows


def _new(files: Iterator[str], layout: Layout) -> Iterator[dict[str, list[Passage] | str]]:
    """Files with their passages, or why they have none; some at a time, so that their texts go through together."""
    some: dict[str, list[Passage] | str] = {}
    for file in files:
        try:
            some[file] = passages_of(Path(file), layout)
        except DataError as error:
            some[file] = str(error)
        if sum(len(each) for each in some.values() if isinstance(each, list)) >= TOGETHER:
            yield some
            some = {}
    yield some


def _embedded(
    some: dict[str, list[Passage]],
    hashes: dict[str, str],
    model: Model,
    progress: Callable[[int], None],
    *,
    windows: bool,
) -> dict[str, _Known]:
    """`progress` gets how many of these passages are done."""
    texts = [passage.text for each in some.values() for passage in each]
    made = [torch.empty(0, model.spec.width)]
    for portion in portions(texts, first=FIRST):
        made.append(_vectors(portion, model, windows=windows))
        progress(sum(map(len, made)))
    vectors = torch.cat(made)
    parts = torch.split(vectors, [len(each) for each in some.values()])
    return {file: _Known(hashes[file], each, part) for (file, each), part in zip(some.items(), parts, strict=True)}


def _vectors(texts: Sequence[str], model: Model, *, windows: bool) -> Tensor:
    return F.normalize(EmbedTask().vectors(texts, model=model, windows=windows, role="document").float(), dim=-1)


def _joined(done: dict[str, _Known], note: Note) -> Index:
    ordered = sorted(done.items())
    files = {file: File(known.sha256, len(known.passages)) for file, known in ordered}
    return Index(
        msgspec.structs.replace(note, files=files),
        [passage for _, known in ordered for passage in known.passages],
        torch.cat([known.vectors for _, known in ordered]),
    )


# --- the folder -----------------------------------------------------------------------------------------------------


def _write(folder: Path, index: Index, *, graph: bool) -> None:
    with appearing(folder) as draft:
        (draft / NOTE).write_bytes(encode_json(index.note))
        encode = msgspec.json.Encoder().encode
        with (draft / PASSAGES).open("wb") as lines:
            lines.writelines(encode(passage) + b"\n" for passage in index.passages)
        write_tensors(draft / VECTORS, {"vectors": index.vectors})
        if graph:
            made = usearch().Index(ndim=index.note.width, metric="cos", dtype="f32")
            made.add(np.arange(len(index.passages)), index.vectors.numpy())
            made.save(str(draft / GRAPH))
        manifest.write(draft)


def read(folder: str | Path) -> Index:
    """The index in a folder, compared with what its manifest says before anything of it is believed. It is all in
    memory then: what becomes of the files afterwards changes nothing."""
    return read_steadily(folder, lambda: _read(Box(folder)))


def _read(box: Box) -> Index:
    known = manifest.read(box)
    if known is None or NOTE not in known.files:
        raise BadIndex(f"{box.root} holds no index; make one with: {Hint.INDEX.format(folder=box.root)}")
    seen = manifest.watch(box, known.files)
    if wrong := manifest.damaged(box, known):
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


def read_note(box: Box) -> Note:
    """What an index says of itself, however many files it was made of."""
    with box.open(NOTE) as file:
        data = file.read()
    check_format(data, what=box.root / NOTE, otherwise="make the index again in another folder")
    return parse_json(data, type=Note, what=NOTE, unique_keys=True)


def _stored_vectors(box: Box) -> Tensor:
    place = read_header(box, VECTORS).get("vectors")
    if place is None or place.dtype != "F32":
        raise BadIndex(f"the index {box.root} is damaged: {VECTORS} holds no float32 vectors; make it again")
    return TensorFile(box, VECTORS).tensor(place)


def _graph(box: Box) -> Any:
    return usearch().Index.restore(str(box.root / GRAPH))


def usearch() -> Any:
    try:
        from usearch import index
    except ImportError:
        raise BadIndex("an HNSW graph needs the usearch package: pip install usearch") from None
    return index


def opened(folder: str | Path, *, model: Model) -> Index:
    """The index in a folder, to be searched with this model."""
    index = read(folder)
    check_model(index, model, place=folder)
    return index


def check_model(index: Index, model: Model, *, place: str | Path) -> None:
    if index.note.width != model.spec.width or index.note.numbers != numbers_of(model):
        raise InputError(
            f"the index {place} was made with another model ({index.note.model or 'unnamed'}); "
            "use that one, or make a new index in another folder"
        )


def numbers_of(model: Model) -> str:
    """SHA-256 of what decides a vector: weights, pooling, prompts."""
    made = hashlib.sha256(said_of_vectors(model).encode())
    for path, p in sorted(model.network.named_parameters()):
        if not path.startswith("readout."):
            made.update(path.encode())
            made.update(p.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return made.hexdigest()


def said_of_vectors(model: Model) -> str:
    """The folder's words on vectors; without prompts as indexes have always hashed them."""
    pooling = model.pooling
    if pooling is None:
        return "None"
    said = f"Pooling(kind={pooling.kind!r}, normalise={pooling.normalise!r}, longest={pooling.longest!r})"
    return said + (
        f" {pooling.prompts!r} {pooling.default_prompt!r}" if any(text for _, text in pooling.prompts) else ""
    )
