"""One request on its way: its id, what the log will say of it, and how a handler gets work done for it.

What a handler gives back is a typed answer, or the events of a stream. Refuses to know sockets.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from triform.serve.http.http_errors import Refusal
from triform.serve.http.limits import TOO_LONG
from triform.serve.worker.jobs import Job, Question
from triform.serve.worker.model_worker import Worker
from triform.serve.worker.service import Served, Service
from triform.text.tokenizer import Tokenizer

CHUNK = 64  # questions of a request that may wait at once, where it asks very many


class Call:
    """`notes` are for the log: numbers and names, never texts."""

    def __init__(self, service: Service, id: str) -> None:
        self.service, self.id = service, id
        self.notes: dict[str, Any] = {}

    def model(self, name: str, *, task: str) -> Served:
        served = self.service.named(name, task=task)
        self.notes["model"] = name
        return served

    async def answers(self, served: Served, questions: Sequence[Question], *, admitted: bool = False) -> list[Any]:
        """The answer to each question, in their order."""
        found: dict[int, Any] = {}
        with working(served.worker, Job(questions), admitted=admitted) as job:
            async for group in job.groups():
                found.update(group)
        return [found[part] for part in range(len(questions))]

    async def answers_in_chunks(self, served: Served, questions: Sequence[Question]) -> AsyncIterator[list[Any]]:
        """The same for very many: never more than a chunk of them waits, so that others have their turn in between."""
        for number, chunk in enumerate(self.chunks(questions)):
            yield await self.answers(served, chunk, admitted=number > 0)

    def chunks(self, questions: Sequence[Question]) -> Iterator[list[Question]]:
        """At most CHUNK, and as many characters as a batch has; one question may have more."""
        most, some = self.service.limits.batch_characters, list[Question]()
        for question in questions:
            if some and (len(some) == CHUNK or sum(one.size for one in some) + question.size > most):
                yield some
                some = []
            some.append(question)
        if some:
            yield some


@contextmanager
def working(worker: Worker, job: Job, *, admitted: bool = False) -> Iterator[Job]:
    """Whatever happens to the one who waits, the work ends with it."""
    worker.submit(job, admitted=admitted)
    try:
        yield job
    finally:
        worker.cancel(job)


async def ids_of(served: Served, texts: Sequence[str], *, param: str, special: bool = True) -> list[tuple[int, ...]]:
    """The tokens of texts; one that cannot fit is refused before it is cut into tokens."""
    tokenizer, most = served.model.require_tokenizer(), served.model.spec.context
    for text in texts:
        refuse_if_surely_long(text, tokenizer, param=param, said=f"the model reads {most:,}", most=most)
    found = await served.lanes.tokens.run(lambda: tokenizer.ids_many(texts, special=special))
    return [tuple(ids) for ids in found]


def refuse_if_surely_long(text: str, tokenizer: Tokenizer, *, param: str, said: str, most: int) -> None:
    """By its characters alone."""
    least = tokenizer.least_tokens(text)
    if least > most:
        counted = f"the {param} has {len(text):,} characters, at least {least:,} tokens"
        raise Refusal(f"{counted}; {said}", param=param, code=TOO_LONG)


def refuse_if_long(tokens: int, *, most: int) -> None:
    if tokens > most:
        said = f"the texts have {tokens:,} tokens; at most {most:,} are accepted in one request"
        raise Refusal(said, code=TOO_LONG)
