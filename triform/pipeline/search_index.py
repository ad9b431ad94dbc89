"""A search index in Python: `triform index` and `triform search`, with the model beside the index.

notes = index("notes", model="minilm", out="notes.index")
notes.search("Who digs holes?", k=3)
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from triform.data.columns import Layout
from triform.data.input_paths import Paths
from triform.errors import InputError, find_closest
from triform.model import Model
from triform.tasks import vector_index
from triform.tasks.answer_list import AnswerList
from triform.tasks.search import SearchHits
from triform.tasks.search_ranking import SearchMode
from triform.weights import model_folder


class SearchIndex:
    """An index in a folder, with the model that reads passages and queries; made by `triform.index`.

    `len` counts passages; `numpy.asarray` gives their vectors, one row each."""

    def __init__(self, folder: Path, *, model: Model, name: str) -> None:
        self.folder, self.model, self.name = folder, model, name
        self.skipped: dict[str, str] = {}  # files that were not read at the last change, and why
        self._index: vector_index.SegmentIndex | None = None

    @property
    def index(self) -> vector_index.SegmentIndex:
        """The passages and their vectors, as they were at the last change."""
        if self._index is None:
            self._index = vector_index.open_index(self.folder, model=self.model)
        return self._index

    @property
    def files(self) -> tuple[str, ...]:
        """The files in it."""
        return tuple(sorted(self.index.list_files()))

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        maker = self.name or "a model in memory"
        return f"SearchIndex({self.folder}: {len(self):,} passages of {len(self.files):,} files, by {maker})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.index.read_vectors().numpy().astype(dtype or "float32", copy=bool(copy))

    @overload
    def search(
        self,
        queries: str,
        *,
        k: int = 10,
        mode: SearchMode = "hybrid",
        files: Sequence[str] = (),
        where: Mapping[str, str] | None = None,
        reranker: Model | str | Path | None = None,
    ) -> SearchHits: ...
    @overload
    def search(
        self,
        queries: list[str] | tuple[str, ...],
        *,
        k: int = 10,
        mode: SearchMode = "hybrid",
        files: Sequence[str] = (),
        where: Mapping[str, str] | None = None,
        reranker: Model | str | Path | None = None,
    ) -> AnswerList[SearchHits]: ...
    def search(
        self,
        queries: str | list[str] | tuple[str, ...],
        *,
        k: int = 10,
        mode: SearchMode = "hybrid",
        files: Sequence[str] = (),
        where: Mapping[str, str] | None = None,
        reranker: Model | str | Path | None = None,
    ) -> SearchHits | AnswerList[SearchHits]:
        """The `k` best passages of a query, or of each of several.

        `mode`: by vectors and keywords together ("hybrid"), or by "vector" or "keyword" alone. `files` are names or
        paths, * for anything; `where` are values of kept columns. A `reranker` orders the best passages again.
        """
        again = reranker if reranker is None or isinstance(reranker, Model) else model_folder.load(reranker)
        conditions = tuple(f"{name}={value}" for name, value in (where or {}).items())
        return self.model.search(
            queries, index=self.index, k=k, mode=mode, files=tuple(files), where=conditions, reranker=again
        )

    def add(self, places: Paths) -> "SearchIndex":
        """Takes these files and folders in too; only what is new is embedded."""
        return self._change([*self._list_standing(), *_list_places(places)])

    def remove(self, places: Paths) -> "SearchIndex":
        """Takes the passages of these files, or of all files in these folders, out."""
        given = [Path(place) for place in _list_places(places)]
        for place in given:
            if not any(Path(file).is_relative_to(place) for file in self.files):
                near = find_closest(str(place), self.files)
                hint = "" if near is None else f"; did you mean {near}?"
                raise InputError(f"{place} is not in the index {self.folder}{hint}")
        left = [file for file in self._list_standing() if not any(Path(file).is_relative_to(one) for one in given)]
        if not left:
            raise InputError(f"nothing would be left of the index {self.folder}; delete the folder instead")
        return self._change(left)

    def _list_standing(self) -> list[str | Path]:
        """The indexed files that are still there."""
        return [file for file in self.files if Path(file).exists()]

    def _change(self, places: Sequence[str | Path], **options: Any) -> "SearchIndex":
        done = vector_index.build_index(places, model=self.model, name=self.name, out=self.folder, **options)
        self._index, self.skipped = None, done.skipped
        return self


def _list_places(places: Paths) -> list[str | Path]:
    return [places] if isinstance(places, str | Path) else list(places)


def index(
    places: Paths = (),
    *,
    model: Model | str | Path,
    out: str | Path,
    columns: Mapping[str, str | int] | None = None,
    format: str | None = None,
    keep: Sequence[str] = (),
    longest: int | None = None,
    windows: bool | None = None,
    dimensions: int | None = None,
    hnsw: bool = False,
) -> SearchIndex:
    """An index of files and folders at `out`, made or brought up to date, as `triform index` does; without any, the
    index that is there is opened.

    `model` makes the vectors. `columns` names unusual columns: {"text": "body"}; `keep` are columns to keep beside the
    text, for `where`. `longest` bounds a passage in characters (default: 700). `windows` reads passages longer than the
    model reads whole; `dimensions` shortens each vector. `hnsw` adds a graph for very large indexes (needs usearch).
    """
    loaded = model if isinstance(model, Model) else model_folder.load(model)
    made = SearchIndex(Path(out), model=loaded, name="" if isinstance(model, Model) else str(model))
    if not (listed := _list_places(places)):
        made.name = made.name or made.index.note.model
        return made
    layout = Layout(dict(columns or {}), format, tuple(keep), longest)
    return made._change(listed, graph=hnsw, layout=layout, windows=windows, dimensions=dimensions)
