"""Events of the engine as OpenAI's choices, for completions and for chats, whole or streamed."""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from functools import partial
from time import monotonic
from typing import Any

import msgspec

from triform.generate.events import Event
from triform.generate.settings import Request
from triform.inspect.token_labels import token_text
from triform.serve.http.http_errors import generation_error
from triform.serve.http.request_context import RequestContext, run_job
from triform.serve.openai import response_types as types
from triform.serve.openai.answer_reader import AnswerReader, identify
from triform.serve.openai.request_types import ChatRequest, GenerationRequest
from triform.serve.worker.jobs import WorkerJob
from triform.serve.worker.service import ServedModel
from triform.tasks.task import Usage
from triform.text.response_parser import ResponsePiece
from triform.text.response_template import ResponseTemplate
from triform.text.tokenizer import Tokenizer

STREAM_END = b"data: [DONE]\n\n"


class ResponseBuilder(ABC):
    """Builds the response of one request; subclasses have the formats of the two routes."""

    kind: str

    def __init__(
        self, call: RequestContext, served: ServedModel, request: GenerationRequest, *, alternatives: int | None
    ) -> None:
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
        with run_job(self.served.worker, WorkerJob(requests)) as job:
            async for group in job.receive_groups():
                if not written:
                    self.served.metrics.first.observe(monotonic() - job.began)
                by_choice: dict[int, list[Event]] = {}
                for part, event in group:
                    if event.finish == "error":
                        raise generation_error(event.error, param=event.param)
                    by_choice.setdefault(part * n + event.sample, []).append(event)
                    written += 1
                self.usage = Usage(prompt_tokens=read, completion_tokens=written, total_tokens=read + written)
                self.call.notes |= {"read": read, "written": written}
                for choice in by_choice.items():
                    yield choice

    @abstractmethod
    def build_whole(self, written: list[list[Event]]) -> Any: ...

    @abstractmethod
    def stream_chunks(self, events: AsyncIterator[tuple[int, list[Event]]]) -> AsyncIterator[bytes]: ...


class ChoicesBuilder(ResponseBuilder):
    """The formats with several choices."""

    async def stream_chunks(self, events: AsyncIterator[tuple[int, list[Event]]]) -> AsyncIterator[bytes]:
        async for index, new in events:
            for chunk in self.build_chunks(index, new):
                yield encode_event(chunk)
        if self.request.stream_options is not None and self.request.stream_options.include_usage:
            yield encode_event(self.make_chunk((), usage=self.usage))
        yield STREAM_END

    @abstractmethod
    def build_chunks(self, index: int, events: list[Event]) -> list[Any]: ...

    @abstractmethod
    def make_chunk(self, choices: tuple[Any, ...], *, usage: Usage | None = None) -> Any: ...

    def shared_fields(self, index: int, events: list[Event]) -> dict[str, Any]:
        """The fields of a choice that both formats have."""
        return {
            "index": index,
            "finish_reason": finish_reason(events[-1]),
            "token_ids": list_token_ids(events) if self.request.return_token_ids else msgspec.UNSET,
        }


class CompletionBuilder(ChoicesBuilder):
    """Builds the responses of `/v1/completions`."""

    kind = "cmpl"

    def build_whole(self, written: list[list[Event]]) -> types.Completion:
        choices = tuple(self.make_choice(index, events) for index, events in enumerate(written))
        return self.make_chunk(choices, usage=self.usage)

    def build_chunks(self, index: int, events: list[Event]) -> list[types.Completion]:
        return [self.make_chunk((self.make_choice(index, events),))]

    def make_chunk(self, choices: tuple[types.Choice, ...], *, usage: Usage | None = None) -> types.Completion:
        return types.Completion(id=self.id, created=self.created, model=self.served.name, choices=choices, usage=usage)

    def make_choice(self, index: int, events: list[Event]) -> types.Choice:
        logprobs = None if self.alternatives is None else self.make_logprobs(index, events)
        return types.Choice(text=join_text(events), logprobs=logprobs, **self.shared_fields(index, events))

    def make_logprobs(self, index: int, events: list[Event]) -> types.Logprobs:
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


class AnswerBuilder(ResponseBuilder):
    """Of a chat: `answer` says how the model's text is divided; None: all of it is content."""

    def __init__(
        self,
        call: RequestContext,
        served: ServedModel,
        request: ChatRequest,
        *,
        alternatives: int | None,
        answer: ResponseTemplate | None = None,
        prompt: str = "",
    ) -> None:
        super().__init__(call, served, request, alternatives=alternatives)
        self.make_reader = partial(
            AnswerReader,
            answer,
            prompt=prompt,
            tokenizer=self.tokenizer,
            most_calls=1 if request.parallel_tool_calls is False else None,
        )
        self.readers: dict[int, AnswerReader] = {}


class ChatBuilder(AnswerBuilder, ChoicesBuilder):
    """Builds the responses of `/v1/chat/completions`."""

    kind = "chatcmpl"

    def build_whole(self, written: list[list[Event]]) -> types.ChatCompletion:
        choices = tuple(self.make_choice(index, events) for index, events in enumerate(written))
        return types.ChatCompletion(
            id=self.id, created=self.created, model=self.served.name, choices=choices, usage=self.usage
        )

    def make_choice(self, index: int, events: list[Event]) -> types.ChatChoice:
        answer = self.make_reader().read_whole(events)
        calls = tuple(types.AnswerCall(id=id, function=types.AnswerFunction(name=name, arguments=arguments))
                      for id, name, arguments in answer.calls)  # fmt: skip
        fields = self.shared_fields(index, events) | ({"finish_reason": "tool_calls"} if calls else {})
        return types.ChatChoice(
            message=types.ChatText(
                content=answer.content if answer.content or not calls else None,
                reasoning_content=answer.reasoning or msgspec.UNSET,
                tool_calls=calls or msgspec.UNSET,
            ),
            logprobs=self.make_logprobs(events),
            **fields,
        )

    def build_chunks(self, index: int, events: list[Event]) -> list[types.ChatChunk]:
        """The first chunk of a choice has the role, the last one why it ended."""
        opening: list[types.Delta] = []
        if index not in self.readers:
            self.readers[index] = self.make_reader()
            opening.append(types.Delta(role="assistant", content=""))
        reader = self.readers[index]
        number = reader.calls
        deltas: list[types.Delta] = []
        for piece in reader.read(events):
            deltas += make_deltas(piece, number=number)
            number += piece.call is not None
        ended, counted = events[-1].finish is not None, self.alternatives is not None or self.request.return_token_ids
        if ended or counted:
            deltas = deltas or [types.Delta()]
        chunks = [self.make_chunk((types.ChatPiece(index=index, delta=delta),)) for delta in [*opening, *deltas[:-1]]]
        if deltas:
            fields = self.shared_fields(index, events) | ({"finish_reason": "tool_calls"} if ended and number else {})
            last = types.ChatPiece(delta=deltas[-1], logprobs=self.make_logprobs(events), **fields)
            chunks.append(self.make_chunk((last,)))
        return chunks

    def make_chunk(self, choices: tuple[types.ChatPiece, ...], *, usage: Usage | None = None) -> types.ChatChunk:
        return types.ChatChunk(id=self.id, created=self.created, model=self.served.name, choices=choices, usage=usage)

    def make_logprobs(self, events: list[Event]) -> types.ChatLogprobs | None:
        if self.alternatives is None:
            return None
        content = tuple(
            types.TokenLogprob(
                **self.describe_token(event.token, event.logprob),
                top_logprobs=tuple(
                    types.TopLogprob(**self.describe_token(top.token, top.logprob)) for top in event.alternatives
                ),
            )
            for event in events
            if event.finish != "eos"
        )
        return types.ChatLogprobs(content=content)

    def describe_token(self, id: int | None, logprob: float) -> dict[str, Any]:
        """The bytes of a token are known if it has whole characters only."""
        name = token_text(id, self.tokenizer)
        return {"token": name, "logprob": logprob, "bytes": None if "\ufffd" in name else tuple(name.encode())}


def make_deltas(piece: ResponsePiece, *, number: int) -> list[types.Delta]:
    """Of a call first the name, then the arguments."""
    if piece.call is None:
        return [types.Delta(content=piece.content or None, reasoning_content=piece.reasoning or None)]
    id, name, arguments = identify(piece)
    first = types.AnswerCallPiece(
        index=number, id=id, type="function", function=types.AnswerFunction(name=name, arguments="")
    )
    rest = types.AnswerCallPiece(index=number, function=types.AnswerFunction(arguments=arguments))
    return [types.Delta(tool_calls=(first,)), types.Delta(tool_calls=(rest,))]


# --- pieces ---------------------------------------------------------------------------------------------------------


def encode_event(value: msgspec.Struct) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def join_text(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events)


def list_token_ids(events: Sequence[Event]) -> tuple[int, ...]:
    return tuple(event.token for event in events if event.token is not None)


def finish_reason(event: Event) -> types.Reason | None:
    """OpenAI has one value for an end token and a stop string."""
    if event.finish is None:
        return None
    return "length" if event.finish == "length" else "stop"
