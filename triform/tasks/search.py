"""Search: the passages of an index that are nearest to a query. Trained from queries and their passages."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Required, TypeAlias, TypedDict

import msgspec
import numpy as np
from msgspec import Meta

from triform.data.chunks import split_chunks
from triform.data.frames import make_frame
from triform.data.line_reader import Unit, name_place
from triform.data.rows import PairRow
from triform.errors import InputError
from triform.hints import Hint
from triform.metrics import ndcg, recall
from triform.model import Model
from triform.spec import Form, ModelSpec
from triform.tasks import vector_index as indexes
from triform.tasks.bm25 import BM25, find_keywords
from triform.tasks.embed import (
    EmbedTask,
    Similarity,
    add_pooling,
    check_trainable,
    compare_texts,
    make_pair_examples,
    make_pairs_recipe,
)
from triform.tasks.options import Lines, TaskOptions
from triform.tasks.passage_filter import PassageFilter
from triform.tasks.passage_splitter import Passage
from triform.tasks.rerank import RerankQuestion, RerankTask
from triform.tasks.search_ranking import RankedHit, SearchMode, rank_passages
from triform.tasks.task import Reply, Scores, Task
from triform.tasks.vector_index import Index
from triform.train.examples import Examples, TwoTexts
from triform.train.objectives import Objective
from triform.train.pair_objectives import InBatchNegatives
from triform.train.run_config import Config

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

Condition: TypeAlias = Annotated[str, Meta(pattern="^[^=]+=")]
BASELINE_HITS = 10
RERANKED = 50  # passages that a reranker orders again


class Hit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A passage: its file, the line (or item, row, page) and the character it begins at, and the score it is ranked by.

    `cosine` is the similarity of query and passage where `score` is another; `marks` are the words (from, to) that the
    query has too; `fields` are columns that the index keeps.
    """

    file: str
    line: int
    start: int
    text: str
    score: float
    unit: Unit = "line"
    cosine: float | None = None
    marks: tuple[tuple[int, int], ...] = ()
    fields: dict[str, str] = {}

    @property
    def place(self) -> str:
        return name_place(self.file, self.line, self.unit)


class SearchHits(Reply, frozen=True):
    """Nearest first."""

    hits: tuple[Hit, ...]

    @property
    def numbers(self) -> list[float]:
        """The scores."""
        return [hit.score for hit in self.hits]

    def to_pandas(self) -> Any:
        """A DataFrame with one row per hit."""
        return make_frame([msgspec.to_builtins(hit) for hit in self.hits])

    def __str__(self) -> str:
        return "\n".join(f"{hit.score:.3f}  {hit.place}  {' '.join(hit.text.split())}" for hit in self.hits)


class SearchSettings(TypedDict, total=False):
    """The options of a search in Python; `index` is an `Index` or its folder, `reranker` a model."""

    index: Required["Index | str | Path"]
    k: int
    mode: SearchMode
    files: tuple[str, ...]
    where: tuple[str, ...]
    reranker: "Model | None"


class SearchInput(msgspec.Struct, frozen=True, kw_only=True):
    """Each text is a query; `index` is one that the service was started with."""

    text: Lines
    index: str


class SearchTask(Task[PairRow, str, SearchHits]):
    """Search INDEX for the passages that are nearest to a query; make an index with `triform index`.

    \b
    Examples:
      triform search docs.index "How do I save a model?"
      triform search docs.index --file queries.txt --json -k 10
    """

    # of a training row: source is the query, target the passage to find, `others` further right ones
    name = "search"
    forms = ("encoder",)
    kind = PairRow
    needs = "pooled vectors"
    answer_type = SearchHits
    input = SearchInput
    example = {"text": "Who digs holes?"}  # noqa: RUF012
    run_hint = f"this model searches an index: {Hint.INDEX.format(folder='INDEX')}; then {Hint.SEARCH}"
    cuts = True

    class Options(TaskOptions, frozen=True, kw_only=True):
        k: Annotated[
            int,
            Meta(
                ge=1,
                lt=2**31,
                title="max passages",
                description="How many passages; default: 5 on the command line.",
                extra={"flags": ["-k"], "form": 5},
            ),
        ] = 10
        mode: Annotated[
            SearchMode, Meta(description="By vectors, by keywords (BM25), or both joined by reciprocal rank: hybrid.")
        ] = "hybrid"
        files: Annotated[
            tuple[str, ...],
            Meta(description="Only in these files: a name or path, * for anything.", extra={"flags": ["--in"]}),
        ] = ()
        where: Annotated[
            tuple[Condition, ...], Meta(description="Only where a kept column has this value: name=value.")
        ] = ()
        index: Annotated[Any, Meta(extra={"only": "python"})] = None  # an `Index`, or its folder
        reranker: Annotated[Any, Meta(extra={"only": "python"})] = None  # a model that orders the best ones again

    def render(self, answer: SearchHits, *, chosen: Collection[str] = ()) -> "Sequence[RenderableType]":
        from rich.text import Text

        parts: list[RenderableType] = []
        for hit in answer.hits:
            parts += [Text(f"{hit.score:.3f}  {hit.place}", style="bold"), highlight(hit)]
        return parts

    # --- training ---------------------------------------------------------------------------------------------------

    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        return EmbedTask().spec(base, labels=labels)

    def recipe(self, form: Form, *, fresh: bool) -> Config:
        return make_pairs_recipe(fresh=fresh)

    def examples(self, rows: Sequence[PairRow], *, model: Model) -> Examples[TwoTexts]:
        texts = [(row.source, row.target) for row in rows]
        return make_pair_examples(texts, scores=[1.0] * len(rows), model=model, roles=("query", "document"))

    def objective(self, *, model: Model, config: Config) -> Objective[Any, Any]:
        check_trainable(model)
        return InBatchNegatives()

    def finish_model(self, rows: Sequence[PairRow], *, model: Model) -> Model:
        return add_pooling(model)

    # --- running and scoring ------------------------------------------------------------------------------------------

    def question(self, row: PairRow) -> str:
        return row.source

    def try_sample(self, row: PairRow, *, model: Model) -> tuple[str, Similarity]:
        """There is no index to search in yet: how near a query and its passage lie."""
        return compare_texts(row.source, row.target, model=model)

    def run(self, questions: Sequence[str], *, model: Model, options: Options | None = None) -> Iterator[SearchHits]:
        self.check(model)
        chosen = options or self.Options()
        index, k = chosen.index, chosen.k
        if isinstance(index, str | Path):
            index = indexes.open_index(index, model=model)
        if not isinstance(index, Index):
            raise InputError(f"search needs an index; make one with: {Hint.INDEX.format(folder='INDEX')}")
        only = PassageFilter(chosen.files, tuple(map(split_condition, chosen.where)))
        candidates = k if chosen.reranker is None else max(k, RERANKED)
        for some in split_chunks(questions):
            reading = EmbedTask.Options(windows=index.note.windows, role="query", dimensions=index.note.width)
            vectors, read = EmbedTask().read(some, model=model, options=reading)
            with index.hold() as held:
                ranked = rank_passages(held, some, vectors, k=candidates, mode=chosen.mode, only=only)
                for query, found, text in zip(some, ranked, read, strict=True):
                    best = found if chosen.reranker is None else order_again(held, query, found, chosen.reranker, k=k)
                    passages = held.get_passages([one.at for one in best])
                    hits = tuple(_hit(passage, one, query) for passage, one in zip(passages, best, strict=True))
                    yield SearchHits(hits=hits, unknown=text.unknown, cut=text.cut)

    def score(self, answers: Sequence[SearchHits], rows: Sequence[PairRow]) -> Scores:
        """A passage is right if it is the row's, or has the same text."""
        found = [_gains([hit.text for hit in answer.hits], row) for answer, row in zip(answers, rows, strict=True)]
        wanted = [[1.0] * len({row.target, *row.others}) for row in rows]
        values = {
            "ndcg@10": [ndcg(gains, every=every) for gains, every in zip(found, wanted, strict=True)],
            "recall@1": [recall(gains, every=every, k=1) for gains, every in zip(found, wanted, strict=True)],
            "recall@10": [recall(gains, every=every) for gains, every in zip(found, wanted, strict=True)],
        }
        return Scores(
            main="ndcg@10",
            values={name: sum(each) / max(1, len(rows)) for name, each in values.items()},
            rows=len(rows),
            signature=f"among the {len(list_passages(rows)):,} passages of the rows",
        )

    def evaluate(self, rows: Sequence[PairRow], *, model: Model, options: Any = None) -> Scores:
        """Searches the passages of all rows, each once."""
        index = indexes.index_passages(list_passages(rows), model=model)
        return super().evaluate(rows, model=model, options=self.Options(index=index, mode="vector"))

    def baselines(self, rows: Sequence[PairRow], *, train: Sequence[PairRow]) -> Mapping[str, Scores]:
        texts = list_passages(rows)
        ranked = BM25(texts)
        answers = []
        for row in rows:
            scores = ranked.scores(row.source)
            order = np.argsort(-scores, kind="stable")[:BASELINE_HITS].tolist()
            answers.append(SearchHits(tuple(Hit("", at + 1, 0, texts[at], float(scores[at])) for at in order)))
        return {"BM25": self.score(answers, rows)}


def list_passages(rows: Sequence[PairRow]) -> list[str]:
    return list(dict.fromkeys(text for row in rows for text in (row.target, *row.others)))


def _gains(texts: Sequence[str], row: PairRow) -> list[float]:
    right = {row.target, *row.others}
    return [float(text in right) for text in texts]


def highlight(hit: Hit) -> "Text":
    """The passage on one line, with the words that the query has too in bold."""
    from rich.text import Text

    marked = Text(hit.text)
    for start, end in hit.marks:
        marked.stylize("bold green", start, end)
    pieces = [marked[found.start() : found.end()] for found in re.finditer(r"\S+", hit.text)]
    return Text("       ") + Text(" ").join(pieces)


def _hit(passage: Passage, found: RankedHit, query: str) -> Hit:
    return Hit(
        passage.file,
        passage.line,
        passage.start,
        passage.text,
        found.score,
        passage.unit,
        cosine=None if found.score == found.cosine else found.cosine,
        marks=tuple(find_keywords(passage.text, query)),
        fields=passage.fields,
    )


def split_condition(given: str) -> tuple[str, str]:
    """`name=value` as a pair."""
    name, equals, value = given.partition("=")
    if not equals or not name:
        raise InputError(f"where {given[:80]!r} is no condition; use name=value", field="where")
    return name, value


def order_again(index: Index, query: str, found: Sequence[RankedHit], reranker: Model, *, k: int) -> list[RankedHit]:
    """The k best by a reranker, which reads query and passage together."""
    question = RerankQuestion(query, tuple(one.text for one in index.get_passages([one.at for one in found])))
    task = RerankTask()
    if not found:
        return []
    (answer,) = task.run([question], model=reranker, options=task.Options(top=k))
    return [found[one.index]._replace(score=one.score) for one in answer.ranked]
