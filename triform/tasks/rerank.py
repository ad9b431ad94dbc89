"""Rerank: passages ordered by how well they answer a query.

A cross-encoder (an encoder with one output) reads query and passage together, as two segments, and its output is the
score, through the sigmoid where its folder says so. Every embedding model works too: the score is the cosine of query
and passage, with the folder's prompts.

A sentence encoder stays one when it is trained: it begins with its cosines, and learns that a relevant passage is
nearer than the others. Every other base becomes a cross-encoder, which reads the mean over tokens and learns with
binary cross-entropy.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import torch
from msgspec import Meta

from triform.data.chunks import split_chunks
from triform.data.rows import RelevanceRow
from triform.errors import InputError
from triform.hints import Hint
from triform.metrics import ndcg
from triform.model import Model
from triform.pooling import Role, compare_vectors
from triform.spec import Classify as Head
from triform.spec import Form, ModelSpec, replace
from triform.tasks import initial_head
from triform.tasks.answer_spans import ContextQuestion, encode_questions
from triform.tasks.bm25 import BM25
from triform.tasks.embed import EmbedTask, add_prompt, find_prompt
from triform.tasks.encoder_batches import check_texts, cut_texts, run_batches
from triform.tasks.options import Line, TaskOptions
from triform.tasks.task import Reply, Scores, Task, Usage
from triform.tasks.text_vectors import get_pooling
from triform.text.tokenizer import Encoding
from triform.train.examples import ExampleList, Examples, LabelExample, RankedTexts, texts_of
from triform.train.label_objectives import SeveralLabels
from triform.train.objectives import Objective
from triform.train.pair_objectives import RankedPassages
from triform.train.run_config import Config
from triform.weights.label_scores import compute_number

if TYPE_CHECKING:
    from rich.console import RenderableType

NEGATIVES = 2  # passages that are not relevant, beside each that is
SIGMOID = {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}  # in config.json


class RerankQuestion(msgspec.Struct, frozen=True):
    """A query and the passages to order."""

    query: str
    documents: tuple[str, ...]


class RankedPassage(msgspec.Struct, frozen=True):
    """`index` is the passage's place among those that were given, from 0."""

    index: int
    score: float
    passage: str


class Reranking(Reply, frozen=True, kw_only=True):
    """The passages, highest score first."""

    ranked: tuple[RankedPassage, ...]

    @property
    def numbers(self) -> list[float]:
        """The scores, in the order of the passages as they were given."""
        return [one.score for one in sorted(self.ranked, key=lambda one: one.index)]

    def __str__(self) -> str:
        return "  ".join(f"{one.index + 1}: {one.score:.3f}" for one in self.ranked)

    def columns(self) -> dict[str, object]:
        best = self.ranked[0]
        return {"best": best.passage, "score": best.score, "order": [one.index + 1 for one in self.ranked]}


class RerankDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A passage of a response."""

    text: Line


class RerankInput(msgspec.Struct, frozen=True, kw_only=True):
    """A query, and the documents that are to be ordered; the fields of Jina's and Cohere's APIs."""

    query: Line
    documents: Annotated[list[Line | RerankDocument], Meta(min_length=1)]
    return_documents: bool = False


class RerankResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A passage's place in the request, and its relevance."""

    index: int
    relevance_score: float
    document: RerankDocument | None = None


class RerankResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The response of `/v1/rerank`, as Jina's and Cohere's clients read it."""

    id: str
    model: str
    results: tuple[RerankResult, ...]
    usage: Usage


Top: TypeAlias = Annotated[
    int, Meta(ge=1, lt=2**31, title="max passages", description="How many; default: all.", extra={"http": "top_n"})
]


class RerankTask(Task[RelevanceRow, RerankQuestion, Reranking]):
    """Order passages by how well they answer QUERY: with a cross-encoder, or with the cosine of an embedding model.

    The passages are the texts behind QUERY, or the lines (or rows) of --file.

    \b
    Examples:
      triform rerank minilm "Who digs holes?" "A cat sat on a mat." "A mole dug a hole."
      triform rerank models/cross-encoder "How do I save a model?" --file passages.txt --top 3
      triform rerank minilm "Who digs holes?" --file passages.jsonl --json
    """

    name = "rerank"
    forms = ("encoder",)
    kind = RelevanceRow  # first is the query, second the passage, score how relevant it is: 0 is not
    needs = "pooled vectors or one output"
    answer_type = Reranking
    input = RerankInput
    response_type = RerankResponse
    texts_are = "passages"
    run_hint = f"this model orders passages: {Hint.RERANK}"
    example = {"query": "Who digs holes?", "documents": "A cat sat on a mat.\nA mole dug a hole."}  # noqa: RUF012
    cuts = True

    class Options(TaskOptions, frozen=True, kw_only=True):
        top: Top | None = None

    # --- questions and answers --------------------------------------------------------------------------------------

    def questions_in(self, body: RerankInput) -> list[RerankQuestion]:
        texts = (one if isinstance(one, str) else one.text for one in body.documents)
        return [RerankQuestion(body.query, tuple(texts))]

    def bodies_of(self, questions: Sequence[RerankQuestion]) -> Iterator[dict[str, Any]]:
        for one in questions:
            yield {"query": one.query, "documents": one.documents, "return_documents": True}

    def response(
        self, answers: Sequence[Reranking], *, body: RerankInput, model: str, id: str, usage: Usage
    ) -> RerankResponse:
        results = tuple(
            RerankResult(
                index=one.index,
                relevance_score=one.score,
                document=RerankDocument(one.passage) if body.return_documents else None,
            )
            for one in answers[0].ranked
        )
        return RerankResponse(id=id, model=model, results=results, usage=usage)

    def answers_in(self, response: RerankResponse) -> Iterator[Reranking]:
        found = ((one.index, one.relevance_score, one.document) for one in response.results)
        ranked = (RankedPassage(index, score, text.text if text else "") for index, score, text in found)
        yield Reranking(ranked=tuple(ranked))

    def question_about(self, text: str, others: Sequence[str]) -> RerankQuestion:
        return RerankQuestion(text, tuple(others))

    def render(self, answer: Reranking, *, chosen: Collection[str] = ()) -> "Sequence[RenderableType]":
        return [f"{one.score:.3f}  {one.index + 1}  {' '.join(one.passage.split())}" for one in answer.ranked]

    # --- training ---------------------------------------------------------------------------------------------------

    def labels(self, rows: Any) -> tuple[str, ...]:
        return ("relevance",)

    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        return replace(base, head=Head(labels=1, pick="first", act="tanh"))

    def recipe(self, form: Form, *, fresh: bool) -> Config:
        shared = Config(schedule="linear", warmup=0.1, weight_decay=0.01, beta2=0.999, dropout=0.1, held_out=0.1)
        if fresh:
            return shared.replace(batch_tokens=2048, epochs=8, learning_rate=1e-3, eval_every=100, patience=8)
        return shared.replace(batch_tokens=8192, epochs=2, learning_rate=5e-5, eval_every=50)

    def prepare_head(self, model: Model, *, base: Model, seed: int) -> Model:
        if makes_mean_vectors(base):
            return model.replace(spec=base.spec, network=base.network, labels=())
        return initial_head.prepare_head(model, base=base, seed=seed)

    def examples(self, rows: Sequence[RelevanceRow], *, model: Model) -> Examples[Any]:
        """A passage whose score is above 0 is relevant."""
        if not isinstance(model.spec.head, Head):
            return make_ranked_examples(rows, model=model)
        found: list[LabelExample] = []
        for some in split_chunks(rows):
            pairs, _, _ = encode_pairs([(row.first, row.second) for row in some], model=model)
            for row, pair in zip(some, pairs, strict=True):
                ids, kinds = np.asarray(pair.ids, np.int32), np.asarray(pair.segment_ids, np.int32)
                found.append(LabelExample(ids, [0] if row.score > 0 else [], kinds))
        return ExampleList(found, lengths=[len(each.ids) for each in found])

    def objective(self, *, model: Model, config: Config) -> Objective[Any, Any]:
        return SeveralLabels(labels=1) if isinstance(model.spec.head, Head) else RankedPassages()

    def finish_model(self, rows: Sequence[RelevanceRow], *, model: Model) -> Model:
        """The folder says that a sigmoid belongs behind the head, where every other program looks for it."""
        if not isinstance(model.spec.head, Head):
            return model
        return model.replace(config=dict(model.config) | SIGMOID)

    # --- running and scoring ----------------------------------------------------------------------------------------

    def question(self, row: RelevanceRow) -> RerankQuestion:
        return RerankQuestion(row.first, (row.second,))

    def run(
        self, questions: Sequence[RerankQuestion], *, model: Model, options: Options | None = None
    ) -> Iterator[Reranking]:
        self.check(model)
        top = (options or self.Options()).top
        score = score_pairs if isinstance(model.spec.head, Head) else score_similarities
        for question in questions:
            if not question.documents:
                raise InputError("there are no passages to order; give at least one", field="documents")
            scores, cut, unknown = score(question, model=model)
            order = sorted(range(len(scores)), key=lambda at: -scores[at])[:top]
            ranked = tuple(RankedPassage(at, scores[at], question.documents[at]) for at in order)
            yield Reranking(ranked=ranked, cut=cut, unknown=unknown)

    def evaluate(self, rows: Sequence[RelevanceRow], *, model: Model, options: Any = None) -> Scores:
        """The rows of one query are one question."""
        questions = [RerankQuestion(query, tuple(known)) for query, known in group_rows(rows).items()]
        return self.score(list(self.run(questions, model=model)), rows)

    def score(self, answers: Sequence[Reranking], rows: Sequence[RelevanceRow]) -> Scores:
        """One answer per query, in the order of their first rows; queries without a relevant passage do not count."""
        found = []
        for answer, known in zip(answers, group_rows(rows).values(), strict=True):
            gains = [known[one.passage] for one in answer.ranked]
            if any(gain > 0 for gain in gains):
                first = next(place for place, gain in enumerate(gains, start=1) if gain > 0)
                found.append((ndcg(gains, every=list(known.values())), 100 / first))
        means = np.mean(found, axis=0).tolist() if found else [0.0, 0.0]
        signature = f"{len(found):,} queries with a relevant passage, ×100"
        return Scores(
            main="ndcg@10", values={"ndcg@10": means[0], "mrr": means[1]}, rows=len(rows), signature=signature
        )

    def baselines(self, rows: Sequence[RelevanceRow], *, train: Sequence[RelevanceRow]) -> Mapping[str, Scores]:
        answers = []
        for query, known in group_rows(rows).items():
            scores = BM25(list(known)).scores(query)
            order = np.argsort(-scores, kind="stable").tolist()
            ranked = (RankedPassage(at, float(scores[at]), list(known)[at]) for at in order)
            answers.append(Reranking(ranked=tuple(ranked)))
        return {"BM25": self.score(answers, rows)}


def makes_mean_vectors(model: Model) -> bool:
    """A sentence encoder of the kind that training makes vectors as: by the mean over tokens."""
    pooling = model.pooling
    return pooling is not None and pooling.kind == "mean" and not pooling.further_kinds and not pooling.layers


def make_ranked_examples(rows: Sequence[RelevanceRow], *, model: Model) -> Examples[RankedTexts]:
    """One per relevant passage, beside some of the same query that are not: each of them in its turn."""
    ids: dict[tuple[Role, str], list[int]] = {}
    sides: dict[Role, list[str]] = {"query": [row.first for row in rows], "document": [row.second for row in rows]}
    for role, texts in sides.items():
        known = list(dict.fromkeys(texts))
        for some in split_chunks(known):
            read = cut_texts(add_prompt(some, find_prompt(model, role=role)), model=model)
            ids |= {(role, text): list(one.ids[0]) for text, one in zip(some, read, strict=True)}
    found: list[RankedTexts] = []
    groups = group_rows(rows)
    wrong = {query: [text for text, score in known.items() if score <= 0] for query, known in groups.items()}
    turns = {query: cycle(texts) for query, texts in wrong.items()}
    for row in rows:
        if row.score > 0:
            count = min(NEGATIVES, len(wrong[row.first]))
            others = [ids["document", text] for text in islice(turns[row.first], count)]
            joined, lengths = [token for one in others for token in one], [len(one) for one in others]
            found.append(RankedTexts(ids["query", row.first], ids["document", row.second], joined, lengths))
    return ExampleList(found, lengths=[sum(map(len, texts_of(each))) for each in found])


def group_rows(rows: Sequence[RelevanceRow]) -> dict[str, dict[str, float]]:
    """query → passage → score, the highest where a passage comes twice."""
    groups: dict[str, dict[str, float]] = {}
    for row in rows:
        known = groups.setdefault(row.first, {})
        known[row.second] = max(row.score, known.get(row.second, row.score))
    return groups


def encode_pairs(pairs: Sequence[tuple[str, str]], *, model: Model) -> tuple[list[Encoding], int, int]:
    """Query and passage as two segments, of a long passage the beginning; how many tokens were cut off or unknown."""
    found = encode_questions([ContextQuestion(query, passage) for query, passage in pairs], model=model)
    cut = sum(each.cut + count_unread(each.windows) for each in found)
    return [each.windows[0] for each in found], cut, sum(each.unknown for each in found)


def count_unread(windows: Sequence[Encoding]) -> int:
    """Tokens of a passage that are not in its first window."""
    places = [{at for at, part in zip(one.offsets, one.parts, strict=True) if part == 1} for one in windows]
    return len(set.union(*places)) - len(places[0])


class PairScore(NamedTuple):
    """How well a passage fits a query; how many tokens were cut off or unknown."""

    score: float
    cut: int
    unknown: int


def score_text_pairs(pairs: Sequence[tuple[str, str]], *, model: Model) -> list[PairScore]:
    """What a cross-encoder says of each pair; else how similar an embedding model finds its texts."""
    if isinstance(model.spec.head, Head):
        found = encode_questions([ContextQuestion(query, passage) for query, passage in pairs], model=model)
        windows = [each.windows[0] for each in found]
        ids, segments = [one.ids for one in windows], [one.segment_ids for one in windows]
        values = run_batches(ids, model=model, kinds=segments)
        return [
            PairScore(compute_number(value, model.config), each.cut + count_unread(each.windows), each.unknown)
            for value, each in zip(values, found, strict=True)
        ]
    task, similarity = EmbedTask(), get_pooling(model).similarity
    queries, asked = task.read([query for query, _ in pairs], model=model, options=task.Options(role="query"))
    passages, read = task.read([text for _, text in pairs], model=model, options=task.Options(role="document"))
    sides = zip(queries.double(), passages.double(), asked, read, strict=True)
    return [
        PairScore(float(compare_vectors(q[None], p[None], similarity)), one.cut + two.cut, one.unknown + two.unknown)
        for q, p, one, two in sides
    ]


def score_pairs(question: RerankQuestion, *, model: Model) -> tuple[list[float], int, int]:
    """What a cross-encoder says of each passage."""
    found = score_text_pairs([(question.query, text) for text in question.documents], model=model)
    return [one.score for one in found], sum(one.cut for one in found), sum(one.unknown for one in found)


def score_similarities(question: RerankQuestion, *, model: Model) -> tuple[list[float], int, int]:
    """How similar the query is to each passage, as the model's folder measures it: else by the cosine."""
    check_texts([question.query, *question.documents])
    task = EmbedTask()
    query, read = task.read([question.query], model=model, options=task.Options(role="query"))
    of_documents = task.Options(role="document")
    documents = [task.read(some, model=model, options=of_documents) for some in split_chunks(question.documents)]
    vectors = torch.cat([vector for vector, _ in documents]).double()
    scores = compare_vectors(query.double(), vectors, get_pooling(model).similarity)[0]
    every = [*read, *(each for _, some in documents for each in some)]
    return scores.tolist(), sum(each.cut for each in every), sum(each.unknown for each in every)
