"""One request: its id, its fields for the log, and how a handler submits work to a model's worker."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from triform.serve.http.http_errors import Refusal
from triform.serve.http.limits import TOO_LONG
from triform.serve.worker.jobs import Job, Question
from triform.serve.worker.model_worker import Worker
from triform.serve.worker.service import Served, Service
from triform.text.tokenizer import Tokenizer

MAX_CHUNK_ITEMS = 64  # inputs of one request that may wait at once


class Call:
    """`notes` go to the log: numbers and names, never texts."""

    def __init__(self, service: Service, id: str) -> None:
        self.service, self.id = service, id
        self.notes: dict[str, Any] = {}

    def model(self, name: str, *, task: str) -> Served:
        served = self.service.named(name, task=task)
        self.notes["model"] = name
        return served

    async def answers(self, served: Served, questions: Sequence[Question], *, admitted: bool = False) -> list[Any]:
        """One answer per input, in their order."""
        by_part: dict[int, Any] = {}
        with working(served.worker, Job(questions), admitted=admitted) as job:
            async for group in job.groups():
                by_part.update(group)
        return [by_part[part] for part in range(len(questions))]

    async def answers_in_chunks(self, served: Served, questions: Sequence[Question]) -> AsyncIterator[list[Any]]:
        """The same for very many inputs: one chunk is submitted at a time, so that other requests have their turn."""
        for number, chunk in enumerate(self.chunks(questions)):
            yield await self.answers(served, chunk, admitted=number > 0)

    def chunks(self, questions: Sequence[Question]) -> Iterator[list[Question]]:
        """At most MAX_CHUNK_ITEMS and `batch_characters` each; a single input may be longer."""
        most, chunk = self.service.limits.batch_characters, list[Question]()
        for question in questions:
            if chunk and (len(chunk) == MAX_CHUNK_ITEMS or sum(one.size for one in chunk) + question.size > most):
                yield chunk
                chunk = []
            chunk.append(question)
        if chunk:
            yield chunk


@contextmanager
def working(worker: Worker, job: Job, *, admitted: bool = False) -> Iterator[Job]:
    """Submits the job; cancels the rest of it when the block ends."""
    worker.submit(job, admitted=admitted)
    try:
        yield job
    finally:
        worker.cancel(job)


async def ids_of(served: Served, texts: Sequence[str], *, param: str, special: bool = True) -> list[tuple[int, ...]]:
    """The tokens of texts; one that cannot fit is refused before it is tokenized."""
    tokenizer, most = served.model.require_tokenizer(), served.model.spec.context
    for text in texts:
        refuse_if_surely_long(text, tokenizer, param=param, said=f"the model's context is {most:,}", most=most)
    rows = await served.lanes.tokens.run(lambda: tokenizer.ids_many(texts, special=special))
    return [tuple(ids) for ids in rows]


def refuse_if_surely_long(text: str, tokenizer: Tokenizer, *, param: str, said: str, most: int) -> None:
    """By the number of characters alone."""
    least = tokenizer.least_tokens(text)
    if least > most:
        problem = f"the {param} has {len(text):,} characters, at least {least:,} tokens"
        raise Refusal(f"{problem}; {said}", param=param, code=TOO_LONG)


def refuse_if_long(tokens: int, *, most: int) -> None:
    if tokens > most:
        message = f"the texts have {tokens:,} tokens; at most {most:,} are accepted in one request"
        raise Refusal(message, code=TOO_LONG)
