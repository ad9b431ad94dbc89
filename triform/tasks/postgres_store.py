"""Indexes in PostgreSQL with pgvector, for several writers and readers at once (extra `postgres`).

    triform_indexes    name, note
    triform_files      the files of an index, with their hashes
    triform_passages   text, place, kept columns and vector of each passage
    triform_words      which passages have a word, and how often

Each step of a writer is one transaction, which locks the index's row. A search sees one state from beginning to end.
PostgreSQL orders the vectors, in float32; all candidates that could be among the best are compared again as in a
folder's index, so that the results are the same.
"""

import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from triform.errors import InputError, StoreUnavailable
from triform.files.format_version import INDEX_FORMAT, check_format
from triform.pooling import SimilarityName
from triform.tasks.bm25 import compute_gains, compute_idf, compute_saturation, list_keywords
from triform.tasks.index_folder import BadIndex, IndexNote
from triform.tasks.index_segment import ROUNDING, IndexedFile, Segment, score_vectors
from triform.tasks.passage_filter import ALL_PASSAGES, PassageFilter
from triform.tasks.passage_splitter import Passage
from triform.tasks.vector_index import Index, IndexStore, scale_vectors

OPERATORS: dict[SimilarityName, tuple[str, str]] = {  # pgvector's distance, and its class of an HNSW index
    "cosine": ("<=>", "vector_cosine_ops"),
    "dot": ("<#>", "vector_ip_ops"),
    "euclidean": ("<->", "vector_l2_ops"),
    "manhattan": ("<+>", "vector_l1_ops"),
}
MAX_HNSW_WIDTH = 2000  # pgvector's
MAX_CANDIDATES, MORE_CANDIDATES = 1000, 32
TIMEOUT_SECONDS = 10  # to connect
SCHEMA_LOCK = 0x74726966  # of the transaction that makes the tables
SCHEMA = """
CREATE EXTENSION IF NOT EXISTS vector;
CREATE TABLE IF NOT EXISTS triform_indexes (
    id bigserial PRIMARY KEY, name text NOT NULL UNIQUE, note text NOT NULL);
CREATE TABLE IF NOT EXISTS triform_files (
    index_id bigint NOT NULL REFERENCES triform_indexes ON DELETE CASCADE, file text NOT NULL, sha256 text NOT NULL,
    passages int NOT NULL, PRIMARY KEY (index_id, file));
CREATE TABLE IF NOT EXISTS triform_passages (
    id bigserial PRIMARY KEY, index_id bigint NOT NULL, file text NOT NULL, line int NOT NULL, start int NOT NULL,
    text text NOT NULL, unit text NOT NULL, fields jsonb NOT NULL, words int NOT NULL, embedding vector NOT NULL,
    FOREIGN KEY (index_id, file) REFERENCES triform_files ON DELETE CASCADE);
CREATE INDEX IF NOT EXISTS triform_passages_of_file ON triform_passages (index_id, file);
CREATE TABLE IF NOT EXISTS triform_words (
    index_id bigint NOT NULL, word text NOT NULL, times int NOT NULL,
    passage_id bigint NOT NULL REFERENCES triform_passages ON DELETE CASCADE,
    PRIMARY KEY (index_id, word, passage_id));
CREATE INDEX IF NOT EXISTS triform_words_of_passage ON triform_words (passage_id);
"""


def import_psycopg() -> Any:
    """The psycopg package, with pgvector; their absence is an error that says how to install them."""
    try:
        import psycopg
        from pgvector.psycopg import register_vector as register_vector
    except ImportError:
        raise BadIndex("a store in PostgreSQL needs psycopg and pgvector: pip install '.[postgres]'") from None
    return psycopg


class Connections:
    """Connections to one database, used again; a thread that needs one takes it alone."""

    def __init__(self, url: str) -> None:
        if not re.match(r"postgres(ql)?://", url):
            raise BadIndex(f"--store {hide_password(url)} is no store; use postgresql://USER@HOST/DATABASE")
        self.psycopg, self.url, self.shown = import_psycopg(), url, hide_password(url)
        self.idle: list[Any] = []
        self.guard = threading.Lock()

    @contextmanager
    def transaction(self, *, reads: bool = False) -> Iterator[Any]:
        """A connection in a transaction: whole, or nothing of it."""
        connection = self._take()
        try:
            connection.read_only = reads
            level = self.psycopg.IsolationLevel
            connection.isolation_level = level.REPEATABLE_READ if reads else level.READ_COMMITTED
            with connection.transaction():
                yield connection
        except self.psycopg.OperationalError as error:
            raise StoreUnavailable(f"the store {self.shown} has failed: {to_one_line(error)}") from error
        finally:
            if connection.closed or connection.broken:
                connection.close()
            else:
                with self.guard:
                    self.idle.append(connection)

    def _take(self) -> Any:
        """An idle connection that still answers, or a new one."""
        while True:
            with self.guard:
                connection = self.idle.pop() if self.idle else None
            if connection is None:
                return self._connect()
            try:
                connection.autocommit = True
                connection.execute("SELECT 1")
                connection.autocommit = False
                return connection
            except self.psycopg.Error:
                connection.close()

    def _connect(self) -> Any:
        try:
            return self.psycopg.connect(self.url, connect_timeout=TIMEOUT_SECONDS)
        except self.psycopg.Error as error:
            why = to_one_line(error)
            raise StoreUnavailable(
                f"the store {self.shown} cannot be reached: {why}; check the address, and that PostgreSQL runs there"
            ) from None

    def close(self) -> None:
        """Closes the idle connections."""
        with self.guard:
            while self.idle:
                self.idle.pop().close()


def hide_password(url: str) -> str:
    """The address without what must not be shown."""
    return re.sub(r"(//[^:/@]*):[^@]*@", r"\1:…@", re.sub(r"(password=)[^&]*", r"\1…", url))


def to_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


# --- writing ----------------------------------------------------------------------------------------------------------


class PostgresStore(IndexStore):
    """An index by name in a database; several writers at once."""

    is_shared = True

    def __init__(self, url: str, name: str) -> None:
        self.connections, self.name = Connections(url), name

    def __str__(self) -> str:
        return f"{self.name} in {self.connections.shown}"

    def lock(self) -> AbstractContextManager[object]:
        return nullcontext()

    def read(self) -> "PostgresIndex | None":
        with self.connections.transaction(reads=True) as connection:
            if connection.execute("SELECT to_regclass('triform_indexes')").fetchone() == (None,):
                return None
            found = connection.execute("SELECT id, note FROM triform_indexes WHERE name = %s", (self.name,)).fetchone()
        return None if found is None else PostgresIndex(self.connections, *self._parse(*found))

    def open(self) -> "PostgresIndex":
        """The index, which must be there."""
        found = self.read()
        if found is None:
            raise BadIndex(f"there is no index {self.name!r} in the store {self.connections.shown}")
        return found

    def _parse(self, id: int, note: str) -> tuple[int, IndexNote]:
        otherwise = "make the index again under another name"
        check_format(note.encode(), what=f"the index {self}", otherwise=otherwise, newest=INDEX_FORMAT)
        return id, msgspec.json.decode(note, type=IndexNote)

    def change(
        self, before: Index | None, note: IndexNote, *, removed: frozenset[str], added: list[Segment]
    ) -> "PostgresIndex":
        check_note(note)
        stored = msgspec.structs.replace(note, format_version=INDEX_FORMAT)
        with self.connections.transaction() as connection:
            self._make_tables(connection)
            text = msgspec.json.encode(stored).decode()
            connection.execute(
                "INSERT INTO triform_indexes (name, note) VALUES (%s, %s) ON CONFLICT DO NOTHING", (self.name, text)
            )
            query = "SELECT id, note FROM triform_indexes WHERE name = %s FOR UPDATE"
            id, present = self._parse(*connection.execute(query, (self.name,)).fetchone())
            if (present.numbers, present.width) != (note.numbers, note.width):
                raise InputError(f"the index {self} was made with another model meanwhile ({present.model})")
            connection.execute("UPDATE triform_indexes SET note = %s WHERE id = %s", (text, id))
            files = [*removed, *(file for segment in added for file in segment.kept_files)]
            connection.execute("DELETE FROM triform_files WHERE index_id = %s AND file = ANY(%s)", (id, files))
            for segment in added:
                insert_segment(connection, id, segment)
            if note.hnsw:
                operators = OPERATORS[note.similarity][1]
                connection.execute(
                    f"CREATE INDEX IF NOT EXISTS triform_hnsw_{id} ON triform_passages "
                    f"USING hnsw ((embedding::vector({note.width})) {operators}) WHERE index_id = {id}"
                )
        return PostgresIndex(self.connections, id, stored)

    def _make_tables(self, connection: Any) -> None:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
        if connection.execute("SELECT to_regclass('triform_words')").fetchone() != (None,):
            return
        try:
            connection.execute(SCHEMA)
        except self.connections.psycopg.Error as error:
            raise StoreUnavailable(
                f"the store {self.connections.shown} cannot hold indexes: {to_one_line(error)}; "
                "it needs the extension pgvector (CREATE EXTENSION vector) and the right to make tables"
            ) from error


def check_note(note: IndexNote) -> None:
    """Refuses what a folder can and PostgreSQL cannot."""
    if note.vectors != "float32":
        raise InputError(f"--vectors {note.vectors} is for indexes in folders; a store keeps float32")
    if note.hnsw and note.width > MAX_HNSW_WIDTH:
        raise InputError(
            f"pgvector's HNSW takes at most {MAX_HNSW_WIDTH:,} dimensions, not {note.width:,}; use --dimensions"
        )


def insert_segment(connection: Any, index: int, segment: Segment) -> None:
    """The files, passages and words of a segment in memory."""
    from pgvector.psycopg import register_vector

    register_vector(connection)
    cursor = connection.cursor()
    ids = [
        id
        for (id,) in cursor.execute(
            "SELECT nextval('triform_passages_id_seq') FROM generate_series(1, %s)", (segment.rows,)
        )
    ]
    with cursor.copy("COPY triform_files (index_id, file, sha256, passages) FROM STDIN") as copy:
        for file, known in segment.files.items():
            copy.write_row((index, file, known.sha256, known.passages))
    columns = "id, index_id, file, line, start, text, unit, fields, words, embedding"
    lengths, vectors = segment.words.lengths.tolist(), segment.vectors.numpy()
    with cursor.copy(f"COPY triform_passages ({columns}) FROM STDIN") as copy:
        for row, (id, words) in enumerate(zip(ids, lengths, strict=True)):
            one = segment.get_passage(row)
            fields = msgspec.json.encode(one.fields).decode()
            place = (id, index, one.file, one.line, one.start, one.text, one.unit, fields, words)
            copy.write_row((*place, vectors[row]))
    table = segment.words
    with cursor.copy("COPY triform_words (index_id, word, times, passage_id) FROM STDIN") as copy:
        starts = table.posting_starts.tolist()
        for at, word in enumerate(table.list_words()):
            some = slice(starts[at], starts[at + 1])
            for place, times in zip(table.places[some].tolist(), table.times[some].tolist(), strict=True):
                copy.write_row((index, word.decode(), times, ids[place]))


# --- searching --------------------------------------------------------------------------------------------------------


class PostgresIndex(Index):
    """An index of a database; `held` is the transaction of a search."""

    def __init__(self, connections: Connections, id: int, note: IndexNote, *, held: Any = None) -> None:
        self.connections, self.id, self.note, self.held = connections, id, note, held

    @contextmanager
    def hold(self) -> Iterator["PostgresIndex"]:
        """The index as it is now, whatever others change meanwhile."""
        with self.connections.transaction(reads=True) as connection:
            yield PostgresIndex(self.connections, self.id, self.note, held=connection)

    def _fetch(self, query: str, *values: Any) -> list[Any]:
        if self.held is None:
            with self.hold() as held:
                return held._fetch(query, *values)
        found: list[Any] = self.held.execute(query, values).fetchall()
        return found

    def __len__(self) -> int:
        ((count,),) = self._fetch("SELECT count(*) FROM triform_passages WHERE index_id = %s", self.id)
        return int(count)

    def list_files(self) -> dict[str, IndexedFile]:
        query = "SELECT file, sha256, passages FROM triform_files WHERE index_id = %s ORDER BY file"
        return {file: IndexedFile(sha256, passages) for file, sha256, passages in self._fetch(query, self.id)}

    def get_passages(self, numbers: Sequence[int]) -> list[Passage]:
        query = "SELECT id, file, line, start, text, unit, fields FROM triform_passages WHERE id = ANY(%s)"
        found = {row[0]: Passage(*row[1:]) for row in self._fetch(query, list(numbers))}
        return [found[number] for number in numbers]

    # --- filters ------------------------------------------------------------------------------------------------------

    def _write_condition(self, only: PassageFilter) -> tuple[str, list[Any]]:
        """SQL that is true for the passages a filter allows."""
        said, values = "p.index_id = %s", [self.id]
        if only.files:
            said += " AND p.file = ANY(%s)"
            values.append([file for file in self.list_files() if only.allows_file(file)])  # type: ignore[arg-type]
        if only.values:
            said += " AND p.fields @> %s::jsonb"
            values.append(msgspec.json.encode(dict(only.values)).decode())  # type: ignore[arg-type]
        return said, values

    def check_filter(self, only: PassageFilter) -> None:
        if only == ALL_PASSAGES:
            return
        condition, values = self._write_condition(only)
        contradicts = len(dict(only.values)) < len(set(only.values))  # one name, two values
        if contradicts or not self._fetch(f"SELECT 1 FROM triform_passages p WHERE {condition} LIMIT 1", *values):
            query = "SELECT DISTINCT jsonb_object_keys(fields) FROM triform_passages WHERE index_id = %s"
            raise only.make_empty_error(name for (name,) in self._fetch(query, self.id))

    # --- vectors ------------------------------------------------------------------------------------------------------

    def nearest(
        self, queries: Tensor, *, k: int, only: PassageFilter = ALL_PASSAGES
    ) -> Iterator[list[tuple[int, float]]]:
        for query in scale_vectors(queries.float(), self.note.similarity):
            with self.hold() if self.held is None else nullcontext(self) as held:
                ids = held._find_candidates(query, k, only)
                scores = held._score(query, ids)
            yield sorted(zip(ids, scores, strict=True), key=lambda pair: (-pair[1], pair[0]))[:k]

    def _find_candidates(self, query: Tensor, k: int, only: PassageFilter) -> list[int]:
        """The nearest passages, and those that the rounding of a distance may have put behind them."""
        through_graph = self.note.hnsw and only == ALL_PASSAGES
        self.held.execute(f"SET LOCAL enable_indexscan = {'on' if through_graph else 'off'}")
        condition, values = self._write_condition(only)
        operator = OPERATORS[self.note.similarity][0]
        said, column = format_vector(query), "p.embedding"
        if through_graph:
            column = f"(p.embedding::vector({self.note.width}))"
            condition, values = f"p.index_id = {self.id}", []  # as the index says it
            self.held.execute(f"SET LOCAL hnsw.ef_search = {min(MAX_CANDIDATES, max(100, k + MORE_CANDIDATES))}")
            self.held.execute("SET LOCAL hnsw.iterative_scan = strict_order")
            self.held.execute("SET LOCAL enable_seqscan = off")
        slack = ROUNDING * float(1 + torch.linalg.vector_norm(query)) * self.note.width**0.5
        wanted = k + MORE_CANDIDATES
        while True:
            sql = f"SELECT p.id, {column} {operator} %s::vector({self.note.width}) AS far FROM triform_passages p "
            sql += f"WHERE {condition} ORDER BY far LIMIT %s"
            found = self._fetch(sql, said, *values, wanted)
            if len(found) < wanted or through_graph or found[-1][1] > found[k - 1][1] + slack:
                return [id for id, far in found]
            wanted *= 4

    def compare(self, query: Tensor, numbers: Sequence[int]) -> list[float]:
        return self._score(scale_vectors(query.float(), self.note.similarity), numbers)

    def _score(self, scaled: Tensor, numbers: Sequence[int]) -> list[float]:
        query_sql = "SELECT id, embedding::text FROM triform_passages WHERE id = ANY(%s)"
        found = {id: parse_vector(text) for id, text in self._fetch(query_sql, list(numbers))}
        if not numbers:
            return []
        vectors = torch.stack([found[number] for number in numbers])
        return [float(score) for score in score_vectors(scaled, vectors, self.note.similarity)]

    # --- words --------------------------------------------------------------------------------------------------------

    def match_words(self, query: str, *, k: int, only: PassageFilter = ALL_PASSAGES) -> list[tuple[int, float]]:
        repeats = Counter(list_keywords(query))
        if not repeats:
            return []
        sums = "SELECT count(*), coalesce(sum(words), 0) FROM triform_passages WHERE index_id = %s"
        ((size, total),) = self._fetch(sums, self.id)
        condition, values = self._write_condition(only)
        sql = f"SELECT w.word, p.id, w.times, p.words, {condition} FROM triform_words w "
        sql += "JOIN triform_passages p ON p.id = w.passage_id WHERE w.index_id = %s AND w.word = ANY(%s) ORDER BY p.id"
        rows = self._fetch(sql, *values, self.id, list(repeats))
        ids = np.unique(np.array([row[1] for row in rows], np.int64))
        scores, allowed = np.zeros(len(ids), np.float32), np.zeros(len(ids), np.bool_)
        for word, times in repeats.items():
            own = [row for row in rows if row[0] == word]
            places = np.searchsorted(ids, [row[1] for row in own])
            saturation = compute_saturation(np.array([row[3] for row in own], np.int32), int(total) / max(1, size))
            gains = compute_gains(compute_idf(size, len(own)), np.array([row[2] for row in own], np.int32), saturation)
            scores[places] += times * gains
            allowed[places] = [row[4] for row in own]
        order = np.lexsort((ids, -scores))
        return [(int(ids[at]), float(scores[at])) for at in order if allowed[at] and scores[at] > 0][:k]


def format_vector(vector: Tensor) -> str:
    """As pgvector reads it; nine digits say a float32 exactly."""
    return "[" + ",".join(f"{number:.9g}" for number in vector.tolist()) + "]"


def parse_vector(text: str) -> Tensor:
    return torch.from_numpy(np.array(text[1:-1].split(","), np.float64).astype(np.float32))
