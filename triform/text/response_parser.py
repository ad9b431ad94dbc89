"""Divides the text of a chat model, piece by piece as it is generated, into reasoning, content and tool calls."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from triform.text.response_template import (
    CalledTool,
    Found,
    ResponsePart,
    ResponseTemplate,
    find_calls,
    opens_reasoning,
    parse_json,
)


class ResponsePiece(NamedTuple):
    """Some more reasoning or content, or one whole call."""

    reasoning: str = ""
    content: str = ""
    call: CalledTool | None = None


class ResponseParser:
    """`feed` and `finish` give pieces; the text of a part has no white space at its ends."""

    def __init__(self, template: ResponseTemplate, *, prompt: str = "", most_calls: int | None = None) -> None:
        self.template, self.calls_left = template, most_calls
        self.outside = next(part for part in template.parts if part.name == "content")
        self.part, self.groups = self.outside, dict[str, str]()
        self.buffer = self.opening = ""  # of the open part: what is not divided yet, and how it was opened
        self.body = ""  # of a call
        self.space = ""  # that follows if more text does
        self.begun = False  # the open part has text
        self.written = ""  # of the content, where an answer may be one bare call
        self.has_content = False
        if template.start is None:
            self._open_reasoning(prompt)
        else:
            list(self.feed(template.cut_prompt(prompt)))

    def _open_reasoning(self, prompt: str) -> None:
        for part in self.template.parts:
            if part.name == "reasoning" and opens_reasoning(prompt):
                self.part = part

    def feed(self, text: str) -> Iterator[ResponsePiece]:
        self.buffer += text
        yield from self._divide(is_final=False)

    def finish(self) -> Iterator[ResponsePiece]:
        """Whatever is left; a call that was not ended is one if it is whole."""
        yield from self._divide(is_final=True)
        yield from self._close(closing="")
        if self.written:
            yield from self._read_bare_call()

    def _divide(self, *, is_final: bool) -> Iterator[ResponsePiece]:
        while True:
            found, part = self._find_next(is_final=is_final)
            if found is None:
                kept = 0 if is_final else self._count_pending()
                ready, self.buffer = self.buffer[: len(self.buffer) - kept], self.buffer[len(self.buffer) - kept :]
                yield from self._add(ready)
                return
            before, delimiter = self.buffer[: found.start], self.buffer[found.start : found.end]
            self.buffer = self.buffer[found.end :]
            yield from self._add(before)
            if part is self.part:
                yield from self._close(closing=delimiter)
            else:
                yield from self._close(closing="")
                self.part, self.groups, self.opening = part, dict(found.groups), delimiter

    def _watched(self) -> list[tuple[Any, ResponsePart]]:
        """Delimiters that may come next: the end of the open part or, outside, the beginning of any."""
        ending = [] if self.part.closes is None else [(self.part.closes, self.part)]
        if self.part is not self.outside:
            return ending
        return ending + [(part.opens, part) for part in self.template.parts if part.opens is not None]

    def _find_next(self, *, is_final: bool) -> tuple[Found | None, ResponsePart]:
        """The first delimiter in the buffer, unless an earlier one might still be growing."""
        best: tuple[Found | None, ResponsePart] = None, self.part
        for delimiter, part in self._watched():
            found = delimiter.find(self.buffer, is_final=is_final)
            if found is not None and found.end > 0 and (best[0] is None or found.start < best[0].start):
                best = found, part
        if best[0] is not None and not is_final and best[0].start > len(self.buffer) - self._count_pending():
            return None, self.part
        return best

    def _count_pending(self) -> int:
        return max((delimiter.count_pending(self.buffer) for delimiter, _ in self._watched()), default=0)

    def _add(self, text: str) -> Iterator[ResponsePiece]:
        """Text of the open part; white space waits until more follows."""
        if self.part.name == "tool_calls":
            self.body += text
            return
        text = self.space + text
        if not self.begun:
            text = text.lstrip()
        ready = text.rstrip()
        self.space = text[len(ready) :]
        if ready:
            self.begun = True
            yield from self._write(ready)

    def _write(self, text: str) -> Iterator[ResponsePiece]:
        if self.part.name == "reasoning":
            yield ResponsePiece(reasoning=text)
        elif self.template.bare and not self.has_content and (self.written + text).startswith("{"):
            self.written += text
        else:
            self.has_content = True
            yield ResponsePiece(content=text)

    def _close(self, *, closing: str) -> Iterator[ResponsePiece]:
        part, body, groups, opening = self.part, self.body, self.groups, self.opening
        self.part, self.body, self.groups, self.opening = self.outside, "", {}, ""
        self.space, self.begun = "", False
        if part.name == "tool_calls":
            yield from self._read_calls(part, body, groups, written=opening + body + closing)

    def _read_calls(
        self, part: ResponsePart, body: str, groups: Mapping[str, str], *, written: str
    ) -> Iterator[ResponsePiece]:
        """The calls; what is none is content, as it was written."""
        try:
            calls = list(find_calls(part.read(body, groups)))
        except (ValueError, KeyError, RecursionError):
            yield from self._add(written)
            return
        for call in calls:
            if self.calls_left is None or self.calls_left > 0:
                self.calls_left = None if self.calls_left is None else self.calls_left - 1
                yield ResponsePiece(call=call)

    def _read_bare_call(self) -> Iterator[ResponsePiece]:
        try:
            yield from (ResponsePiece(call=call) for call in list(find_calls(parse_json(self.written, {}))))
        except ValueError:
            yield ResponsePiece(content=self.written)
