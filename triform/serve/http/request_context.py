"""One request: its id, its fields for the log, and how a handler submits work to a model's worker."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from triform.serve.http.http_errors import RequestError
from triform.serve.http.limits import TOO_LONG_CODE
from triform.serve.worker.jobs import TaskInput, WorkerJob
from triform.serve.worker.model_worker import ModelWorker
from triform.serve.worker.service import ServedModel, Service
from triform.text.tokenizer import Tokenizer

MAX_CHUNK_ITEMS = 64  # inputs of one request that may wait at once


class RequestContext:
    """`notes` go to the log: numbers and names, never texts."""

    def __init__(self, service: Service, id: str) -> None:
        self.service, self.id = service, id
        self.notes: dict[str, Any] = {}
        self.model_hash = ""  # of the model that answers

    def find_model(self, name: str, *, task: str) -> ServedModel:
        served = self.service.find_ready_model(name, task=task)
        self.note_model(served)
        return served

    def note_model(self, served: ServedModel) -> None:
        """For the log, and for the header that says which weights gave the answer."""
        self.notes["model"], self.model_hash = served.name, served.hash

    async def compute_answers(
        self, served: ServedModel, questions: Sequence[TaskInput], *, admitted: bool = False
    ) -> list[Any]:
        """One answer per input, in their order."""
        by_part: dict[int, Any] = {}
        with run_job(served.worker, WorkerJob(questions), admitted=admitted) as job:
            async for group in job.receive_groups():
                by_part.update(group)
        return [by_part[part] for part in range(len(questions))]

    async def compute_in_chunks(self, served: ServedModel, questions: Sequence[TaskInput]) -> AsyncIterator[list[Any]]:
        """The same for very many inputs: one chunk is submitted at a time, so that other requests have their turn."""
        for number, chunk in enumerate(self.split_into_chunks(questions)):
            yield await self.compute_answers(served, chunk, admitted=number > 0)

    def split_into_chunks(self, questions: Sequence[TaskInput]) -> Iterator[list[TaskInput]]:
        """At most MAX_CHUNK_ITEMS and `batch_characters` each; a single input may be longer."""
        most, chunk = self.service.limits.batch_characters, list[TaskInput]()
        for question in questions:
            if chunk and (len(chunk) == MAX_CHUNK_ITEMS or sum(one.size for one in chunk) + question.size > most):
                yield chunk
                chunk = []
            chunk.append(question)
        if chunk:
            yield chunk


@contextmanager
def run_job(worker: ModelWorker, job: WorkerJob, *, admitted: bool = False) -> Iterator[WorkerJob]:
    """Submits the job; cancels the rest of it when the block ends."""
    worker.submit(job, admitted=admitted)
    try:
        yield job
    finally:
        worker.cancel(job)


async def tokenize_texts(
    served: ServedModel, texts: Sequence[str], *, param: str, special: bool = True
) -> list[tuple[int, ...]]:
    """The tokens of texts; one that cannot fit is refused before it is tokenized."""
    tokenizer, most = served.model.require_tokenizer(), served.model.spec.context
    for text in texts:
        refuse_if_surely_long(text, tokenizer, param=param, limit_text=f"the model's context is {most:,}", most=most)
    rows = await served.queues.tokens.run(lambda: tokenizer.ids_many(texts, special=special))
    return [tuple(ids) for ids in rows]


def refuse_if_surely_long(text: str, tokenizer: Tokenizer, *, param: str, limit_text: str, most: int) -> None:
    """By the number of characters alone."""
    least = tokenizer.min_tokens(text)
    if least > most:
        problem = f"the {param} has {len(text):,} characters, at least {least:,} tokens"
        raise RequestError(f"{problem}; {limit_text}", param=param, code=TOO_LONG_CODE)


def refuse_if_long(tokens: int, *, most: int) -> None:
    if tokens > most:
        message = f"the texts have {tokens:,} tokens; at most {most:,} are accepted in one request"
        raise RequestError(message, code=TOO_LONG_CODE)
