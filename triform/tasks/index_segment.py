"""A segment of an index: passages, their vectors and their words in flat arrays, in memory or mapped from a file.

A segment is never written to: passages are deleted by naming their files, and compaction writes another segment.
Vectors may have short codes beside them (float16, or int8 with a scale per vector). Then a search reads the codes, and
only the candidates are read in float32: all those that could be among the k best, by the distance between each vector
and its code. So the result is that of the exact search, always.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from triform.pooling import SimilarityName, compare_vectors
from triform.tasks.bm25 import Numbers, WordTable, build_word_table
from triform.tasks.passage_splitter import Passage

VectorKind: TypeAlias = Literal["float32", "float16", "int8"]
SCAN_ROWS = 16_384  # compared with the queries at once
RESCORED_ROWS = 4096
ROUNDING = 1e-5  # of a float32 sum, relative to the lengths of both vectors: far more than it ever is


class IndexedFile(msgspec.Struct, frozen=True):
    """Hash of a file in the index, and its number of passages."""

    sha256: str
    passages: int


class VectorCodes(NamedTuple):
    """Short codes of vectors, and how far each lies from its vector."""

    codes: Tensor
    scales: Tensor | None
    errors: Tensor

    def decode(self, start: int, end: int) -> Tensor:
        numbers = self.codes[start:end].float()
        return numbers if self.scales is None else numbers.mul_(self.scales[start:end, None])


def encode_vectors(vectors: Tensor, kind: VectorKind) -> VectorCodes:
    """Codes of float32 vectors, [N, D]."""
    scales = None
    if kind == "float16":
        codes = vectors.clamp(-65504, 65504).half()
        decoded = codes.float()
    else:
        largest = vectors.abs().amax(dim=-1) if vectors.shape[-1] else vectors.new_zeros(len(vectors))
        scales = torch.where(largest > 0, largest / 127, torch.ones_like(largest))
        codes = (vectors / scales[:, None]).round().clamp(-127, 127).to(torch.int8)
        decoded = codes.float() * scales[:, None]
    return VectorCodes(codes, scales, torch.linalg.vector_norm(vectors - decoded, dim=-1) * (1 + 1e-5))


class Near(NamedTuple):
    """The passages nearest to one query, best first: rows and their similarities."""

    rows: Numbers
    scores: npt.NDArray[np.float32]

    def take(self, k: int) -> "Near":
        return Near(self.rows[:k], self.scores[:k])


class Segment:
    """Passages as lines of JSON, their vectors, [N, D], and the files they are of, in order."""

    def __init__(
        self,
        lines: Any,
        line_starts: Numbers,
        vectors: Tensor,
        files: dict[str, IndexedFile],
        *,
        codes: VectorCodes | None = None,
        words: WordTable | None = None,
        graph: Any = None,
        deleted: frozenset[str] = frozenset(),
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`check` raises where a file that is mapped was changed."""
        self.lines, self.line_starts, self.vectors, self.files = memoryview(lines), line_starts, vectors, files
        self.codes, self.own_words, self.graph, self.deleted, self.check = codes, words, graph, deleted, check

    @property
    def rows(self) -> int:
        """Passages, the deleted ones too."""
        return len(self.line_starts) - 1

    def __len__(self) -> int:
        return self.rows if self.kept is None else len(self.kept)

    def delete(self, files: frozenset[str]) -> "Segment":
        """The segment without the passages of these files."""
        return Segment(
            self.lines,
            self.line_starts,
            self.vectors,
            self.files,
            codes=self.codes,
            words=self.own_words,
            graph=self.graph,
            deleted=self.deleted | (files & self.files.keys()),
            check=self.check,
        )

    @cached_property
    def kept(self) -> Numbers | None:
        """The rows that are not deleted; None for all."""
        if not self.deleted:
            return None
        return self.mark_files(lambda file: file not in self.deleted).nonzero()[0]

    @property
    def kept_files(self) -> dict[str, IndexedFile]:
        return {file: known for file, known in self.files.items() if file not in self.deleted}

    def mark_files(self, chosen: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """Which rows are of the chosen files."""
        marks = [chosen(file) for file in self.files]
        return np.repeat(np.array(marks, np.bool_), [known.passages for known in self.files.values()])

    def get_line(self, row: int) -> memoryview:
        return self.lines[self.line_starts[row] : self.line_starts[row + 1]]

    def get_passage(self, row: int) -> Passage:
        return PASSAGE.decode(self.get_line(row))

    @cached_property
    def words(self) -> WordTable:
        """Made when first asked for, where the segment has none."""
        if self.own_words is not None:
            return self.own_words
        return build_word_table(PASSAGE.decode(self.get_line(row)).text for row in range(self.rows))

    # --- nearest ----------------------------------------------------------------------------------------------------

    def find_nearest(
        self, queries: Tensor, *, k: int, similarity: SimilarityName, allowed: npt.NDArray[np.bool_] | None
    ) -> list[Near]:
        """For each query its k nearest rows; `allowed`: of those rows alone."""
        self.check()
        if allowed is None and self.kept is not None:
            allowed = np.zeros(self.rows, np.bool_)
            allowed[self.kept] = True
        candidates = scan_vectors(self, queries, k=k, similarity=similarity, allowed=allowed)
        near = zip(queries, candidates, strict=True)
        return [self.sort_rows(query, rows, similarity).take(k) for query, rows in near]

    def find_in_graph(self, queries: Tensor, *, k: int, similarity: SimilarityName) -> list[Near]:
        """The same through the HNSW graph: nearly exact."""
        self.check()
        near = []
        for query in queries:
            wanted = min(k, self.rows)
            while True:
                rows = np.atleast_1d(self.graph.search(query.numpy(), wanted).keys).astype(np.int64)
                found = rows if self.kept is None else rows[np.isin(rows, self.kept)]
                if len(found) >= min(k, len(self)) or wanted >= self.rows:
                    break
                wanted = min(2 * wanted, self.rows)
            near.append(self.sort_rows(query, np.sort(found), similarity).take(k))
        return near

    def score_rows(self, query: Tensor, rows: Numbers, similarity: SimilarityName) -> npt.NDArray[np.float32]:
        """Similarities of some rows with a query."""
        portions = np.split(rows, range(RESCORED_ROWS, len(rows), RESCORED_ROWS))
        return np.concatenate(
            [score_vectors(query, self.vectors[torch.from_numpy(some)], similarity) for some in portions]
        )

    def sort_rows(self, query: Tensor, rows: Numbers, similarity: SimilarityName) -> Near:
        """Best first, of equal ones the first."""
        scores = self.score_rows(query, rows, similarity)
        order = np.lexsort((rows, -scores))
        return Near(rows[order], scores[order])


def score_vectors(query: Tensor, vectors: Tensor, similarity: SimilarityName) -> npt.NDArray[np.float32]:
    """Similarities with a query, summed in float64: the score of a passage wherever its vector is kept."""
    scores: npt.NDArray[np.float32] = _compare(query[None].double(), vectors.double(), similarity)[0].float().numpy()
    return scores


def scan_vectors(
    segment: Segment, queries: Tensor, *, k: int, similarity: SimilarityName, allowed: npt.NDArray[np.bool_] | None
) -> list[Numbers]:
    """For each query the rows that could be among its k nearest: those whose greatest possible similarity is not below
    the k-th best of the least possible ones."""
    lengths = torch.linalg.vector_norm(queries, dim=-1, keepdim=True)
    best = torch.full((len(queries), 0), -torch.inf)
    least = torch.full((len(queries), 1), -torch.inf)
    kept: list[list[tuple[Numbers, npt.NDArray[np.float32]]]] = [[] for _ in queries]
    for start in range(0, segment.rows, SCAN_ROWS):
        end = min(start + SCAN_ROWS, segment.rows)
        some = None if allowed is None else torch.from_numpy(allowed[start:end])
        if some is not None and not some.any():
            continue
        vectors = segment.vectors[start:end] if segment.codes is None else segment.codes.decode(start, end)
        scores = _compare(queries, vectors, similarity)
        slack = _bound_error(segment.codes, vectors, lengths, similarity, start, end)
        if some is not None:
            scores = scores.masked_fill(~some, -torch.inf)
        lower = torch.cat((best, scores - slack), dim=-1)
        best = lower.topk(min(k, lower.shape[-1]), dim=-1).values
        if best.shape[-1] == k:
            least = best[:, -1:]
        upper = scores + slack
        for query, (row, bound) in enumerate(zip(upper, least, strict=True)):
            (at,) = ((row >= bound) & (row > -torch.inf)).nonzero(as_tuple=True)
            kept[query].append(((at + start).numpy(), row[at].numpy()))
    found = []
    for parts, bound in zip(kept, least[:, 0].tolist(), strict=True):
        rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in parts)])
        tops = np.concatenate([np.empty(0, np.float32), *(tops for _, tops in parts)])
        found.append(rows[tops >= bound])
    return found


def _bound_error(
    codes: VectorCodes | None, vectors: Tensor, lengths: Tensor, similarity: SimilarityName, start: int, end: int
) -> Tensor:
    """[Q, N]: by how much a similarity may differ from that of the vectors in float32."""
    if similarity == "cosine":
        rounding = ROUNDING * lengths
    else:
        sizes = torch.linalg.vector_norm(vectors, dim=-1)[None]
        rounding = ROUNDING * (lengths * sizes if similarity == "dot" else lengths + sizes)
    if similarity == "manhattan":
        rounding = rounding * vectors.shape[-1] ** 0.5
    if codes is None:
        return rounding
    errors = codes.errors[None, start:end]
    match similarity:
        case "cosine" | "dot":
            return rounding + lengths * errors
        case "euclidean":
            return rounding + errors
        case "manhattan":
            return rounding + errors * vectors.shape[-1] ** 0.5


def _compare(queries: Tensor, vectors: Tensor, similarity: SimilarityName) -> Tensor:
    """Vectors of length 1 where the cosine is the similarity."""
    return compare_vectors(queries, vectors, "dot" if similarity == "cosine" else similarity)


# --- from passages in memory ------------------------------------------------------------------------------------------

PASSAGE = msgspec.json.Decoder(Passage)


def make_segment(passages: Sequence[Passage], vectors: Tensor, files: dict[str, IndexedFile]) -> Segment:
    """A segment in memory."""
    encode = msgspec.json.Encoder().encode
    lines = [encode(passage) + b"\n" for passage in passages]
    starts = np.cumsum([0, *map(len, lines)], dtype=np.int64)
    return Segment(b"".join(lines), starts, vectors, files)


def iterate_lines(segment: Segment) -> Iterator[memoryview]:
    """The lines of the passages that are not deleted."""
    if segment.kept is None:
        yield segment.lines[: segment.line_starts[-1]]
    else:
        yield from (segment.get_line(row) for row in segment.kept.tolist())


def iterate_vectors(segment: Segment) -> Iterator[Tensor]:
    """The vectors of the passages that are not deleted, some at a time."""
    if segment.kept is None:
        yield from torch.split(segment.vectors, SCAN_ROWS)
    else:
        for some in torch.split(torch.from_numpy(segment.kept), SCAN_ROWS):
            yield segment.vectors[some]
