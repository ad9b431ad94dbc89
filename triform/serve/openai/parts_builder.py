"""Answers that are a list of parts in the order of the text (reasoning, text, calls), whole or as named events."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

import msgspec

from triform.generate.events import Event
from triform.serve.openai.choices import AnswerBuilder
from triform.text.response_parser import ResponsePiece


class PartsBuilder(AnswerBuilder):
    """Of one answer: each part is opened, filled and closed by events; subclasses have the formats of the routes."""

    reasoning: ClassVar[str]  # what a part with reasoning is called, and one with text
    content: ClassVar[str]

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.id = self.id.replace("-", "_", 1)
        self.open: str | None = None  # the kind of the part that is being written
        self.text = ""  # of that part

    def build_whole(self, written: list[list[Event]]) -> Any:
        for _ in self.make_events(self.make_reader().read(written[0]), written[0][-1].finish):
            pass
        return self.make_body(ended=True)

    async def stream_chunks(self, events: AsyncIterator[tuple[int, list[Event]]]) -> AsyncIterator[bytes]:
        reader, began = self.make_reader(), False
        async for _, new in events:
            if not began:
                began = True
                for event in self.begin():
                    yield encode_named_event(event)
            for event in self.make_events(reader.read(new), new[-1].finish):
                yield encode_named_event(event)
        for event in self.end():
            yield encode_named_event(event)

    def make_events(self, pieces: list[ResponsePiece], finish: str | None) -> Iterator[Any]:
        """What the next pieces of the answer add."""
        for piece in pieces:
            if piece.reasoning:
                yield from self.add_text(self.reasoning, piece.reasoning)
            if piece.content:
                yield from self.add_text(self.content, piece.content)
            if piece.call is not None:
                yield from self.close_part()
                yield from self.add_call(piece)
        if finish is not None:
            yield from self.finish_parts(finish)

    @abstractmethod
    def begin(self) -> Iterator[Any]: ...

    @abstractmethod
    def add_text(self, kind: str, text: str) -> Iterator[Any]: ...

    @abstractmethod
    def close_part(self) -> Iterator[Any]: ...

    @abstractmethod
    def add_call(self, piece: ResponsePiece) -> Iterator[Any]: ...

    @abstractmethod
    def finish_parts(self, finish: str) -> Iterator[Any]: ...

    @abstractmethod
    def end(self) -> Iterator[Any]: ...

    @abstractmethod
    def make_body(self, *, ended: bool) -> Any: ...


def encode_named_event(event: Any) -> bytes:
    """With its type as its name."""
    return b"event: " + event.type.encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"
