"""Reads the events of one chat answer as pieces: reasoning, content, and tool calls with their ids."""

import secrets
from collections.abc import Sequence
from typing import NamedTuple

from triform.generate.events import Event
from triform.text.response_parser import ResponseParser, ResponsePiece
from triform.text.response_template import ResponseTemplate
from triform.text.tokenizer import Tokenizer

ID_CHARACTERS = 9  # letters and digits: the one form that every chat template accepts


class IdentifiedCall(NamedTuple):
    """A call with its id."""

    id: str
    name: str
    arguments: str


class WholeAnswer(NamedTuple):
    """An answer that has ended; `content` is empty where the model only called tools."""

    reasoning: str
    content: str
    calls: tuple[IdentifiedCall, ...]
    finish: str | None


class AnswerReader:
    """`read` gives the pieces of new events. Without a template everything is content."""

    def __init__(
        self,
        template: ResponseTemplate | None,
        *,
        prompt: str,
        tokenizer: Tokenizer | None,
        most_calls: int | None = None,
    ) -> None:
        self.parser = None if template is None else ResponseParser(template, prompt=prompt, most_calls=most_calls)
        self.shown = {} if template is None or tokenizer is None else find_shown_tokens(template, tokenizer)
        self.calls = 0

    def read(self, events: Sequence[Event]) -> list[ResponsePiece]:
        if self.parser is None:
            text = "".join(event.text for event in events)
            return [ResponsePiece(content=text)] if text else []
        pieces = [
            piece for event in events for piece in self.parser.feed(event.text + self.shown.get(event.token or 0, ""))
        ]
        if events[-1].finish is not None:
            pieces += self.parser.finish()
        self.calls += sum(piece.call is not None for piece in pieces)
        return pieces

    def read_whole(self, events: Sequence[Event]) -> WholeAnswer:
        pieces = self.read(events)
        return WholeAnswer(
            reasoning="".join(piece.reasoning for piece in pieces),
            content="".join(piece.content for piece in pieces),
            calls=tuple(identify(piece) for piece in pieces if piece.call is not None),
            finish=events[-1].finish,
        )


def identify(piece: ResponsePiece) -> IdentifiedCall:
    """A call with an id of its own."""
    if piece.call is None:
        raise ValueError("this piece is no call")
    return IdentifiedCall(secrets.token_hex(ID_CHARACTERS)[:ID_CHARACTERS], *piece.call)


def find_shown_tokens(template: ResponseTemplate, tokenizer: Tokenizer) -> dict[int, str]:
    """Special tokens that the template needs to see; decoding leaves them out."""
    spelled = template.spelled
    named = ((id, tokenizer.token_of(id)) for id in tokenizer.special_ids)
    return {id: token for id, token in named if token and token in spelled}
