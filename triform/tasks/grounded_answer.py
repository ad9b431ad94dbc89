"""Answers a question from the passages of an index, with citations, or says that nothing was found.

Passages are searched, then a second model answers: a chat model writes from the numbered passages, a model that
extracts answers takes one from them. Where the best passage is far from the question, no model is asked.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from triform.data.line_reader import Unit
from triform.errors import InputError
from triform.hints import Hint
from triform.model import Model
from triform.tasks import get_task, tasks_of
from triform.tasks.answer_spans import ContextQuestion
from triform.tasks.bm25 import list_keywords
from triform.tasks.search import Hit, SearchTask
from triform.tasks.task import Reply
from triform.tasks.vector_index import Index

MIN_COSINE = 0.35  # of the best passage with the question; below it nothing was found
MIN_SUPPORT = 0.5  # share of an answer's words that the passages have; below it a warning
MAX_ANSWER_TOKENS = 200
NOT_FOUND = "not found"
CITED = re.compile(r"\[(\d{1,3})\]")
INSTRUCTION = (
    "Answer the question from the passages alone, in one or two sentences. Name the passage that you used by its "
    f'number, like this: [1]. If the passages do not answer the question, write "{NOT_FOUND}".'
)


class CitedPassage(Reply, frozen=True, kw_only=True, omit_defaults=True):
    """A passage that the answer rests on; `number` is the one in the answer."""

    number: int
    file: str
    line: int
    text: str
    score: float
    unit: Unit = "line"
    marks: tuple[tuple[int, int], ...] = ()


class GroundedAnswer(Reply, frozen=True, kw_only=True):
    """`found` is False where the passages do not answer; `support` is the share of the answer's words they have."""

    text: str
    found: bool
    cosine: float  # of the best passage with the question
    support: float = 0.0
    citations: tuple[CitedPassage, ...] = ()

    def __str__(self) -> str:
        return self.text


class AskSettings(NamedTuple):
    """How passages are found, and what counts as found."""

    k: int = 4
    mode: str = "hybrid"
    files: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    min_cosine: float = MIN_COSINE
    max_tokens: int = MAX_ANSWER_TOKENS


DEFAULT_SETTINGS = AskSettings()


def answer_from_index(
    question: str,
    *,
    index: Index,
    embedder: Model,
    writer: Model,
    reranker: Model | None = None,
    settings: AskSettings = DEFAULT_SETTINGS,
) -> GroundedAnswer:
    """Searches the index, and answers from what was found."""
    if not question.strip():
        raise InputError("the question is blank")
    task = SearchTask()
    options = task.options(
        index=index, k=settings.k, mode=settings.mode, files=settings.files, where=settings.where, reranker=reranker
    )
    (found,) = task.run([question], model=embedder, options=options)
    best = max((hit.score if hit.cosine is None else hit.cosine for hit in found.hits), default=0.0)
    if best < settings.min_cosine:
        return GroundedAnswer(text=NOT_FOUND, found=False, cosine=best)
    if "answer" in tasks_of(writer):
        return extract_answer(question, found.hits, writer, best=best)
    if "chat" not in tasks_of(writer):
        raise InputError(
            f"this model can neither chat nor answer questions; get one with: {Hint.PULL.format(name='smollm2')}"
        )
    return write_answer(question, found.hits, writer, best=best, max_tokens=settings.max_tokens)


def extract_answer(question: str, hits: Sequence[Hit], model: Model, *, best: float) -> GroundedAnswer:
    """The most probable span of any passage."""
    answers = list(get_task("answer").run([ContextQuestion(question, hit.text) for hit in hits], model=model))
    at, answer = max(enumerate(answers), key=lambda pair: (bool(pair[1].text), pair[1].score))
    if not answer.text:
        return GroundedAnswer(text=NOT_FOUND, found=False, cosine=best)
    return GroundedAnswer(
        text=f"{answer.text} [{at + 1}]", found=True, cosine=best, support=1.0, citations=(cite(at + 1, hits[at]),)
    )


def write_answer(question: str, hits: Sequence[Hit], model: Model, *, best: float, max_tokens: int) -> GroundedAnswer:
    """What a chat model writes from the numbered passages."""
    hits = fit_passages(question, hits, model, max_tokens=max_tokens)
    task = get_task("chat")
    options = task.options(temperature=0.0, max_tokens=max_tokens)
    (reply,) = task.run([task.question_of(make_prompt(question, hits))], model=model, options=options)
    text = " ".join(reply.message.content.split())
    if not text or text.lower().strip(' ."').startswith(NOT_FOUND):
        return GroundedAnswer(text=NOT_FOUND, found=False, cosine=best)
    numbers = find_cited(text, hits)
    support = measure_support(text, [hits[number - 1].text for number in numbers])
    cited = tuple(cite(number, hits[number - 1]) for number in numbers)
    return GroundedAnswer(text=text, found=True, cosine=best, support=support, citations=cited)


def make_prompt(question: str, hits: Sequence[Hit]) -> str:
    passages = "\n\n".join(f"[{number}] {' '.join(hit.text.split())}" for number, hit in enumerate(hits, start=1))
    return f"{INSTRUCTION}\n\n{passages}\n\nQuestion: {question}"


def fit_passages(question: str, hits: Sequence[Hit], model: Model, *, max_tokens: int) -> list[Hit]:
    """The best passages that fit into the model's context beside the answer."""
    tokenizer = model.require_tokenizer()
    most = model.spec.context - max_tokens - 64  # for what the chat template adds
    for count in range(len(hits), 0, -1):
        if len(tokenizer.ids_many([make_prompt(question, hits[:count])])[0]) <= most:
            return list(hits[:count])
    raise InputError(
        f"not one passage fits into the model's context of {model.spec.context:,} tokens beside an answer of "
        f"{max_tokens:,}; use a smaller --max-tokens or a model with a longer context"
    )


# --- citations ------------------------------------------------------------------------------------------------------


def find_cited(text: str, hits: Sequence[Hit]) -> list[int]:
    """The numbers that the answer names; of an answer without one, the passage that has most of its words."""
    named = sorted({int(number) for number in CITED.findall(text) if 1 <= int(number) <= len(hits)})
    if named:
        return named
    shares = [measure_support(text, [hit.text]) for hit in hits]
    return [1 + max(range(len(hits)), key=lambda at: (shares[at], -at))]


def measure_support(text: str, passages: Sequence[str]) -> float:
    """The share of the answer's different words that the passages have."""
    words = set(list_keywords(CITED.sub(" ", text)))
    known = {word for passage in passages for word in list_keywords(passage)}
    return len(words & known) / max(1, len(words))


def cite(number: int, hit: Hit) -> CitedPassage:
    return CitedPassage(
        number=number, file=hit.file, line=hit.line, text=hit.text, score=hit.score, unit=hit.unit, marks=hit.marks
    )
