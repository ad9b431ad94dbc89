"""Events of the engine as OpenAI's choices, for completions and for chats, whole or streamed."""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from time import monotonic
from typing import Any

import msgspec

from triform.generate.events import Event
from triform.generate.settings import Request
from triform.inspect.token_labels import token_text
from triform.serve.http.http_errors import failed_writing
from triform.serve.http.request_context import Call, working
from triform.serve.openai import response_types as types
from triform.serve.openai.request_types import Writing
from triform.serve.worker.jobs import Job
from triform.serve.worker.service import Served
from triform.tasks.task import Usage
from triform.text.tokenizer import Tokenizer

DONE = b"data: [DONE]\n\n"


class Shape(ABC):
    """Builds the response of one request; subclasses have the formats of the two routes."""

    kind: str

    def __init__(self, call: Call, served: Served, request: Writing, *, alternatives: int | None) -> None:
        self.call, self.served, self.request = call, served, request
        self.alternatives = alternatives  # None: no log-probabilities
        self.id = f"{self.kind}-{call.id}"
        self.created = int(time.time())
        self.offsets: dict[int, int] = {}  # characters sent per choice
        self.usage = Usage(prompt_tokens=0, total_tokens=0)

    @property
    def tokenizer(self) -> Tokenizer | None:
        return None if self.served.model.tokenizer is None else self.served.model.tokenizer.target

    async def events(self, requests: tuple[Request, ...]) -> AsyncIterator[tuple[int, list[Event]]]:
        """The new events of each choice, group by group; counts tokens."""
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
        async for index, new in events:
            for chunk in self.pieces(index, new):
                yield sse(chunk)
        if self.request.stream_options is not None and self.request.stream_options.include_usage:
            yield sse(self.chunk((), usage=self.usage))
        yield DONE

    @abstractmethod
    def whole(self, written: list[list[Event]]) -> Any: ...

    @abstractmethod
    def pieces(self, index: int, events: list[Event]) -> list[Any]: ...

    @abstractmethod
    def chunk(self, choices: tuple[Any, ...], *, usage: Usage | None = None) -> Any: ...

    def said(self, index: int, events: list[Event]) -> dict[str, Any]:
        """The fields of a choice that both formats have."""
        return {
            "index": index,
            "finish_reason": reason(events[-1]),
            "token_ids": ids(events) if self.request.return_token_ids else msgspec.UNSET,
        }


class CompletionShape(Shape):
    kind = "cmpl"

    def whole(self, written: list[list[Event]]) -> types.Completion:
        choices = tuple(self.choice(index, events) for index, events in enumerate(written))
        return self.chunk(choices, usage=self.usage)

    def pieces(self, index: int, events: list[Event]) -> list[types.Completion]:
        return [self.chunk((self.choice(index, events),))]

    def chunk(self, choices: tuple[types.Choice, ...], *, usage: Usage | None = None) -> types.Completion:
        return types.Completion(id=self.id, created=self.created, model=self.served.name, choices=choices, usage=usage)

    def choice(self, index: int, events: list[Event]) -> types.Choice:
        logprobs = None if self.alternatives is None else self.logprobs(index, events)
        return types.Choice(text=text(events), logprobs=logprobs, **self.said(index, events))

    def logprobs(self, index: int, events: list[Event]) -> types.Logprobs:
        shown = [event for event in events if event.finish != "eos"]
        offsets, at = [], self.offsets.get(index, 0)
        for event in shown:
            offsets.append(at)
            at += len(event.text)
        self.offsets[index] = at
        return types.Logprobs(
            tokens=tuple(token_text(event.token, self.tokenizer) for event in shown),
            token_logprobs=tuple(event.logprob for event in shown),
            top_logprobs=tuple(
                {token_text(other.token, self.tokenizer): other.logprob for other in reversed(event.alternatives)}
                for event in shown
            ),
            text_offset=tuple(offsets),
        )


class ChatShape(Shape):
    kind = "chatcmpl"

    def whole(self, written: list[list[Event]]) -> types.ChatCompletion:
        choices = tuple(
            types.ChatChoice(
                message=types.ChatText(content=text(events)), logprobs=self.logprobs(events), **self.said(index, events)
            )
            for index, events in enumerate(written)
        )
        return types.ChatCompletion(
            id=self.id, created=self.created, model=self.served.name, choices=choices, usage=self.usage
        )

    def pieces(self, index: int, events: list[Event]) -> list[types.ChatChunk]:
        """The first chunk of a choice has the role."""
        opening = []
        if index not in self.offsets:
            self.offsets[index] = 0
            opening = [self.chunk((types.ChatPiece(index=index, delta=types.Delta(role="assistant", content="")),))]
        piece = types.ChatPiece(
            delta=types.Delta(content=text(events)), logprobs=self.logprobs(events), **self.said(index, events)
        )
        return [*opening, self.chunk((piece,))]

    def chunk(self, choices: tuple[types.ChatPiece, ...], *, usage: Usage | None = None) -> types.ChatChunk:
        return types.ChatChunk(id=self.id, created=self.created, model=self.served.name, choices=choices, usage=usage)

    def logprobs(self, events: list[Event]) -> types.ChatLogprobs | None:
        if self.alternatives is None:
            return None
        content = tuple(
            types.TokenLogprob(
                **self.token(event.token, event.logprob),
                top_logprobs=tuple(
                    types.TopLogprob(**self.token(top.token, top.logprob)) for top in event.alternatives
                ),
            )
            for event in events
            if event.finish != "eos"
        )
        return types.ChatLogprobs(content=content)

    def token(self, id: int | None, logprob: float) -> dict[str, Any]:
        """The bytes of a token are known if it has whole characters only."""
        name = token_text(id, self.tokenizer)
        return {"token": name, "logprob": logprob, "bytes": None if "\ufffd" in name else tuple(name.encode())}


# --- pieces ---------------------------------------------------------------------------------------------------------


def sse(value: msgspec.Struct) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def text(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events)


def ids(events: Sequence[Event]) -> tuple[int, ...]:
    return tuple(event.token for event in events if event.token is not None)


def reason(event: Event) -> types.Reason | None:
    """OpenAI has one value for an end token and a stop string."""
    if event.finish is None:
        return None
    return "length" if event.finish == "length" else "stop"
