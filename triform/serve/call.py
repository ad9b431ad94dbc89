"""One request on its way: its id, what the log will say of it, and how a handler gets work done for it.

What a handler gives back is a typed answer, or the events of a stream. Refuses to know sockets.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from triform.errors import InputError
from triform.serve.faults import Refusal
from triform.serve.jobs import Job, Question
from triform.serve.service import Served, Service
from triform.serve.worker import Worker
from triform.text.tokenizer import Tokenizer
from triform.weights.folder import Loaded

LONG = 4096  # characters above which a text is cut into tokens beside the event loop


class Call:
    """`notes` are for the log: numbers and names, never texts."""

    def __init__(self, service: Service, id: str) -> None:
        self.service, self.id = service, id
        self.notes: dict[str, Any] = {}

    def model(self, name: str, *, task: str) -> Served:
        served = self.service.named(name, task=task)
        self.notes["model"] = name
        return served

    async def answers(self, served: Served, questions: tuple[Question, ...]) -> list[Any]:
        """The answer to each question, in their order."""
        found: dict[int, Any] = {}
        with working(served.worker, Job(questions)) as job:
            async for group in job.groups():
                found.update(group)
        return [found[part] for part in range(len(questions))]


@contextmanager
def working(worker: Worker, job: Job) -> Iterator[Job]:
    """Whatever happens to the one who waits, the work ends with it."""
    worker.submit(job)
    try:
        yield job
    finally:
        worker.cancel(job)


def words_of(model: Loaded) -> Tokenizer:
    if model.tokenizer is None:
        raise InputError("this model has no tokenizer; give token ids")
    return model.tokenizer


async def ids_of(model: Loaded, text: str, *, most: int, param: str) -> tuple[int, ...]:
    """The tokens of a text; one that cannot fit is refused before it is cut into tokens."""
    tokenizer = words_of(model)
    least = -(-len(text) // longest_token(tokenizer))
    if least > most:
        raise Refusal(
            f"the {param} has {len(text):,} characters, at least {least:,} tokens; the model reads {most:,}",
            param=param, code="context_length_exceeded",
        )  # fmt: skip
    if len(text) > LONG:
        (ids,) = await asyncio.to_thread(tokenizer.ids_many, [text])
        return tuple(ids)
    return tokenizer.encode(text).ids


@lru_cache(maxsize=64)
def longest_token(tokenizer: Tokenizer) -> int:
    """Characters a token may stand for at most; a tokenizer may drop characters, so this errs on the long side."""
    return 1 + max((len(tokenizer.token_of(id) or "") for id in range(tokenizer.vocab)), default=0)
