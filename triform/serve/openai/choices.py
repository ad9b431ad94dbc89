"""Events as choices: the two shapes in which OpenAI's clients read what was written, whole or piece by piece.

Refuses to know what was asked for beyond how it is to be shown.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from time import monotonic
from typing import Any

import msgspec

from triform.generate.events import Event
from triform.generate.settings import Request
from triform.serve.http.http_errors import failed_writing
from triform.serve.http.request_context import Call, working
from triform.serve.openai.request_types import Writing
from triform.serve.openai.response_types import (
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatLogprobs,
    ChatPiece,
    ChatText,
    Choice,
    Completion,
    Delta,
    Logprobs,
    Reason,
    TokenLogprob,
    TopLogprob,
    Usage,
)
from triform.serve.worker.jobs import Job
from triform.serve.worker.service import Served
from triform.text.tokenizer import Tokenizer

DONE = b"data: [DONE]\n\n"


class Shape(ABC):
    """Events of choices on their way out; what the two routes do differently is in their own classes."""

    kind: str

    def __init__(self, call: Call, served: Served, asked: Writing, *, alternatives: int | None) -> None:
        self.call, self.served, self.asked = call, served, asked
        self.alternatives = alternatives  # None: no log-probabilities are shown
        self.id = f"{self.kind}-{call.id}"
        self.created = int(time.time())
        self.offsets: dict[int, int] = {}  # how much text of a choice has gone out
        self.usage = Usage(prompt_tokens=0, total_tokens=0)

    @property
    def tokenizer(self) -> Tokenizer | None:
        return None if self.served.model.tokenizer is None else self.served.model.tokenizer.target

    async def events(self, requests: tuple[Request, ...]) -> AsyncIterator[tuple[int, list[Event]]]:
        """What came for each choice, group after group; counted on its way."""
        read, written, n = sum(len(request.prompt) for request in requests), 0, requests[0].settings.n
        with working(self.served.worker, Job(requests)) as job:
            async for group in job.groups():
                if not written:
                    self.served.gauge.first.observe(monotonic() - job.began)
                by_choice: dict[int, list[Event]] = {}
                for part, event in group:
                    if event.finish == "error":
                        raise failed_writing(event.error, param=event.param)
                    by_choice.setdefault(part * n + event.sample, []).append(event)
                    written += 1
                self.usage = Usage(prompt_tokens=read, completion_tokens=written, total_tokens=read + written)
                self.call.notes |= {"read": read, "written": written}
                for choice in by_choice.items():
                    yield choice

    async def streamed(self, events: AsyncIterator[tuple[int, list[Event]]]) -> AsyncIterator[bytes]:
        async for index, some in events:
            for chunk in self.pieces(index, some):
                yield sse(chunk)
        if self.asked.stream_options is not None and self.asked.stream_options.include_usage:
            yield sse(self.chunk((), usage=self.usage))
        yield DONE

    @abstractmethod
    def whole(self, written: list[list[Event]]) -> Any: ...

    @abstractmethod
    def pieces(self, index: int, events: list[Event]) -> list[Any]: ...

    @abstractmethod
    def chunk(self, choices: tuple[Any, ...], *, usage: Usage | None = None) -> Any: ...

    def said(self, index: int, events: list[Event]) -> dict[str, Any]:
        """What both shapes say of a choice."""
        return {
            "index": index,
            "finish_reason": reason(events[-1]),
            "token_ids": ids(events) if self.asked.return_token_ids else msgspec.UNSET,
        }


class CompletionShape(Shape):
    kind = "cmpl"

    def whole(self, written: list[list[Event]]) -> Completion:
        choices = tuple(self.choice(index, events) for index, events in enumerate(written))
        return self.chunk(choices, usage=self.usage)

    def pieces(self, index: int, events: list[Event]) -> list[Completion]:
        return [self.chunk((self.choice(index, events),))]

    def chunk(self, choices: tuple[Choice, ...], *, usage: Usage | None = None) -> Completion:
        return Completion(id=self.id, created=self.created, model=self.served.name, choices=choices, usage=usage)

    def choice(self, index: int, events: list[Event]) -> Choice:
        logprobs = None if self.alternatives is None else self.logprobs(index, events)
        return Choice(text=text(events), logprobs=logprobs, **self.said(index, events))

    def logprobs(self, index: int, events: list[Event]) -> Logprobs:
        shown = [event for event in events if event.finish != "eos"]
        offsets, at = [], self.offsets.get(index, 0)
        for event in shown:
            offsets.append(at)
            at += len(event.text)
        self.offsets[index] = at
        return Logprobs(
            tokens=tuple(spelled(self.tokenizer, event.token) for event in shown),
            token_logprobs=tuple(event.logprob for event in shown),
            top_logprobs=tuple(
                {spelled(self.tokenizer, one.token): one.logprob for one in reversed(event.alternatives)}
                for event in shown
            ),
            text_offset=tuple(offsets),
        )


class ChatShape(Shape):
    kind = "chatcmpl"

    def whole(self, written: list[list[Event]]) -> ChatCompletion:
        choices = tuple(
            ChatChoice(message=ChatText(content=text(some)), logprobs=self.logprobs(some), **self.said(index, some))
            for index, some in enumerate(written)
        )
        return ChatCompletion(
            id=self.id, created=self.created, model=self.served.name, choices=choices, usage=self.usage
        )

    def pieces(self, index: int, events: list[Event]) -> list[ChatChunk]:
        """The first chunk of a choice says who speaks."""
        opening = []
        if index not in self.offsets:
            self.offsets[index] = 0
            opening = [self.chunk((ChatPiece(index=index, delta=Delta(role="assistant", content="")),))]
        piece = ChatPiece(delta=Delta(content=text(events)), logprobs=self.logprobs(events), **self.said(index, events))
        return [*opening, self.chunk((piece,))]

    def chunk(self, choices: tuple[ChatPiece, ...], *, usage: Usage | None = None) -> ChatChunk:
        return ChatChunk(id=self.id, created=self.created, model=self.served.name, choices=choices, usage=usage)

    def logprobs(self, events: list[Event]) -> ChatLogprobs | None:
        if self.alternatives is None:
            return None
        content = tuple(
            TokenLogprob(
                **self.token(event.token, event.logprob),
                top_logprobs=tuple(TopLogprob(**self.token(one.token, one.logprob)) for one in event.alternatives),
            )
            for event in events
            if event.finish != "eos"
        )
        return ChatLogprobs(content=content)

    def token(self, id: int | None, logprob: float) -> dict[str, Any]:
        """The bytes of a token are known where it is whole characters."""
        name = spelled(self.tokenizer, id)
        return {"token": name, "logprob": logprob, "bytes": None if "\ufffd" in name else tuple(name.encode())}


# --- pieces ---------------------------------------------------------------------------------------------------------


def sse(value: msgspec.Struct) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def text(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events)


def ids(events: Sequence[Event]) -> tuple[int, ...]:
    return tuple(event.token for event in events if event.token is not None)


def reason(event: Event) -> Reason | None:
    """OpenAI has one word for an end token and a stop string."""
    if event.finish is None:
        return None
    return "length" if event.finish == "length" else "stop"


def spelled(tokenizer: Tokenizer | None, id: int | None) -> str:
    if id is None or tokenizer is None:
        return str(id)
    return tokenizer.decode([id], skip_special=False) or tokenizer.token_of(id) or str(id)
