"""Search: the passages that answer a query, nearest vectors first. Learned from queries and their passages."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

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
from triform.tasks.embed import Alike, Embed, alike, check_trainable, pair_examples, pairs_recipe, with_pooling
from triform.tasks.task import Reply, Scores, Task
from triform.tasks.vector_index import Index
from triform.train.examples import Examples, TwoTexts
from triform.train.objectives import Objective
from triform.train.pair_objectives import InBatchNegatives
from triform.train.run_config import Config

SHOWN = 10


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


class Hits(Reply, frozen=True):
    """Nearest first."""

    hits: tuple[Hit, ...]

    def __str__(self) -> str:
        return "\n".join(f"{hit.score:.3f}  {hit.place}  {' '.join(hit.text.split())}" for hit in self.hits)


class Search(Task[Pair, str, Hits]):
    """A row's source is a query, its target the passage that should be found, `others` further right ones."""

    name = "search"
    forms = ("encoder",)
    kind = Pair
    cuts = True

    # --- made for it, trained ---------------------------------------------------------------------------------------

    def can(self, spec: ModelSpec) -> bool:
        return Embed().can(spec)

    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        return Embed().spec(base, labels=labels)

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

    # --- run and judged ---------------------------------------------------------------------------------------------

    def question(self, row: Pair) -> str:
        return row.source

    def tried(self, row: Pair, *, model: Model) -> tuple[str, Alike]:
        """There is no index to search in yet: how near a query and its passage lie."""
        return alike(row.source, row.target, model=model)

    def run(self, questions: Sequence[str], *, model: Model, **settings: Any) -> Iterator[Hits]:
        """`index`: where to search; `k`: how many passages."""
        self.check(model)
        index, k = settings.pop("index", None), settings.pop("k", SHOWN)
        if settings or not isinstance(index, Index) or not isinstance(k, int) or k < 1:
            raise InputError(
                f"search needs an index and k from 1 up; make one with: {Hint.INDEX.format(folder='INDEX')}"
            )
        for some in portions(questions):
            vectors, read = Embed().read(some, model=model, windows=index.note.windows, role="query")
            for found, text in zip(index.nearest(vectors, k=k), read, strict=True):
                hits = tuple(_hit(index, at, score) for at, score in found)
                yield Hits(hits=hits, unknown=text.unknown, cut=text.cut)

    def score(self, answers: Sequence[Hits], rows: Sequence[Pair]) -> Scores:
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

    def evaluate(self, rows: Sequence[Pair], *, model: Model, **settings: Any) -> Scores:
        """Searched is among the passages of all rows, each once."""
        index = indexes.of_passages(passages_in(rows), model=model)
        return super().evaluate(rows, model=model, index=index, **settings)

    def baselines(self, rows: Sequence[Pair], *, train: Sequence[Pair]) -> Mapping[str, Scores]:
        texts = passages_in(rows)
        ranked = BM25(texts)
        answers = []
        for row in rows:
            scores = ranked.scores(row.source)
            order = np.argsort(-scores, kind="stable")[:SHOWN].tolist()
            answers.append(Hits(tuple(Hit("", at + 1, 0, texts[at], float(scores[at])) for at in order)))
        return {"BM25": self.score(answers, rows)}


def passages_in(rows: Sequence[Pair]) -> list[str]:
    return list(dict.fromkeys(text for row in rows for text in (row.target, *row.others)))


def _gains(texts: Sequence[str], row: Pair) -> list[float]:
    right = {row.target, *row.others}
    return [float(text in right) for text in texts]


def _hit(index: Index, at: int, score: float) -> Hit:
    passage = index.passages[at]
    return Hit(passage.file, passage.line, passage.start, passage.text, score, passage.unit)
