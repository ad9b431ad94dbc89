"""Search: the passages of an index that are nearest to a query. Trained from queries and their passages."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from triform.data.chunks import portions
from triform.data.line_reader import Unit, name_place
from triform.data.rows import Pair
from triform.errors import InputError
from triform.hints import Hint
from triform.metrics import ndcg, recall
from triform.model import Model
from triform.spec import Form, ModelSpec
from triform.tasks import vector_index as indexes
from triform.tasks.bm25 import BM25
from triform.tasks.embed import EmbedTask, Similarity, alike, check_trainable, pair_examples, pairs_recipe, with_pooling
from triform.tasks.options import Lines, TaskOptions
from triform.tasks.task import Reply, Scores, Task
from triform.tasks.vector_index import Index
from triform.train.examples import Examples, TwoTexts
from triform.train.objectives import Objective
from triform.train.pair_objectives import InBatchNegatives
from triform.train.run_config import Config

if TYPE_CHECKING:
    from rich.console import RenderableType

BASELINE_HITS = 10


class Hit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A passage: its file, the line (or item, or row) and the character it begins at, and its cosine with the query."""

    file: str
    line: int
    start: int
    text: str
    score: float
    unit: Unit = "line"

    @property
    def place(self) -> str:
        return name_place(self.file, self.line, self.unit)


class SearchHits(Reply, frozen=True):
    """Nearest first."""

    hits: tuple[Hit, ...]

    def __str__(self) -> str:
        return "\n".join(f"{hit.score:.3f}  {hit.place}  {' '.join(hit.text.split())}" for hit in self.hits)


class SearchInput(msgspec.Struct, frozen=True, kw_only=True):
    """Each text is a query; `index` is one that the service was started with."""

    text: Lines
    index: str


class SearchTask(Task[Pair, str, SearchHits]):
    """Search INDEX for the passages that are nearest to a query; make an index with `triform index`.

    \b
    Examples:
      triform search docs.index "How do I save a model?"
      triform search docs.index --file queries.txt --json -k 10
    """

    # of a training row: source is the query, target the passage to find, `others` further right ones
    name = "search"
    forms = ("encoder",)
    kind = Pair
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
        index: Annotated[Any, Meta(extra={"only": "python"})] = None  # an `Index`, or its folder

    def render(self, answer: SearchHits, *, chosen: Collection[str] = ()) -> "Sequence[RenderableType]":
        from rich.text import Text

        parts: list[RenderableType] = []
        for hit in answer.hits:
            parts += [Text(f"{hit.score:.3f}  {hit.place}", style="bold"), f"       {' '.join(hit.text.split())}"]
        return parts

    # --- training ---------------------------------------------------------------------------------------------------

    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        return EmbedTask().spec(base, labels=labels)

    def recipe(self, form: Form, *, fresh: bool) -> Config:
        return pairs_recipe(fresh=fresh)

    def examples(self, rows: Sequence[Pair], *, model: Model) -> Examples[TwoTexts]:
        texts = [(row.source, row.target) for row in rows]
        return pair_examples(texts, scores=[1.0] * len(rows), model=model, roles=("query", "document"))

    def objective(self, *, model: Model, config: Config) -> Objective[Any, Any]:
        check_trainable(model)
        return InBatchNegatives()

    def finished(self, rows: Sequence[Pair], *, model: Model) -> Model:
        return with_pooling(model)

    # --- running and scoring ------------------------------------------------------------------------------------------

    def question(self, row: Pair) -> str:
        return row.source

    def tried(self, row: Pair, *, model: Model) -> tuple[str, Similarity]:
        """There is no index to search in yet: how near a query and its passage lie."""
        return alike(row.source, row.target, model=model)

    def run(self, questions: Sequence[str], *, model: Model, options: Options | None = None) -> Iterator[SearchHits]:
        self.check(model)
        chosen = options or self.Options()
        index, k = chosen.index, chosen.k
        if isinstance(index, str | Path):
            index = indexes.opened(index, model=model)
        if not isinstance(index, Index):
            raise InputError(f"search needs an index; make one with: {Hint.INDEX.format(folder='INDEX')}")
        for some in portions(questions):
            vectors, read = EmbedTask().read(some, model=model, windows=index.note.windows, role="query")
            for found, text in zip(index.nearest(vectors, k=k), read, strict=True):
                hits = tuple(_hit(index, at, score) for at, score in found)
                yield SearchHits(hits=hits, unknown=text.unknown, cut=text.cut)

    def score(self, answers: Sequence[SearchHits], rows: Sequence[Pair]) -> Scores:
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
            signature=f"among the {len(passages_in(rows)):,} passages of the rows",
        )

    def evaluate(self, rows: Sequence[Pair], *, model: Model, options: Any = None) -> Scores:
        """Searches the passages of all rows, each once."""
        index = indexes.of_passages(passages_in(rows), model=model)
        return super().evaluate(rows, model=model, options=self.Options(index=index))

    def baselines(self, rows: Sequence[Pair], *, train: Sequence[Pair]) -> Mapping[str, Scores]:
        texts = passages_in(rows)
        ranked = BM25(texts)
        answers = []
        for row in rows:
            scores = ranked.scores(row.source)
            order = np.argsort(-scores, kind="stable")[:BASELINE_HITS].tolist()
            answers.append(SearchHits(tuple(Hit("", at + 1, 0, texts[at], float(scores[at])) for at in order)))
        return {"BM25": self.score(answers, rows)}


def passages_in(rows: Sequence[Pair]) -> list[str]:
    return list(dict.fromkeys(text for row in rows for text in (row.target, *row.others)))


def _gains(texts: Sequence[str], row: Pair) -> list[float]:
    right = {row.target, *row.others}
    return [float(text in right) for text in texts]


def _hit(index: Index, at: int, score: float) -> Hit:
    passage = index.passages[at]
    return Hit(passage.file, passage.line, passage.start, passage.text, score, passage.unit)
