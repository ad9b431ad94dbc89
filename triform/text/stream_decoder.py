"""Streaming decoding: pieces of text that join to exactly what decoding all ids at once gives.

Knows what each decoder of the tokenizers library must hold back. The text of an unknown decoder is held back until the
end: late, but never wrong.
"""

import codecs
import json
from collections.abc import Callable, Collection
from typing import Any

from tokenizers import Regex, decoders

from triform.text.panic_guard import guard_library


class DecodeStep:
    """One step of decoding: takes tokens, returns the text that is certain so far, and the rest at the end."""

    def push(self, token: str) -> str:
        raise NotImplementedError

    def finish(self) -> str:
        return ""


class PerToken(DecodeStep):
    """Every token separately; only the first may be decoded differently (no space before it)."""

    def __init__(self, decoder: decoders.Decoder) -> None:
        self.decode = decoder.decode
        self.first = True

    def push(self, token: str) -> str:
        if self.first:
            self.first = False
            return self.decode([token])
        return self.decode(["", token])  # the library only distinguishes index 0 from others


class SpaceJoined(DecodeStep):
    """For tokenizers without a decoder: tokens joined by spaces."""

    space = ""

    def push(self, token: str) -> str:
        text, self.space = self.space + token, " "
        return text


class ByteRuns(DecodeStep):
    """`<0xE2>` tokens: a run of them is text only if the whole run is valid UTF-8, so it is held back until it ends."""

    def __init__(self) -> None:
        self.run: list[str] = []
        self.decode = decoders.ByteFallback().decode

    def push(self, token: str) -> str:
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            self.run.append(token)
            return ""
        return self.finish() + token

    def finish(self) -> str:
        run, self.run = self.run, []
        return self.decode(run)


class ByteLevelText(DecodeStep):
    """Byte-level tokens: each character means a byte; bytes become text as soon as a character is complete."""

    def __init__(self) -> None:
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: str) -> str:
        try:
            data = bytes(BYTE_OF[character] for character in token)
        except KeyError:  # an added token is plain text
            data = token.encode()
        return self.decoder.decode(data)

    def finish(self) -> str:
        return self.decoder.decode(b"", final=True)


class StripStart(DecodeStep):
    """Removes up to `count` of one character from the start of the text."""

    def __init__(self, *, character: str, count: int) -> None:
        self.character, self.left = character, count

    def push(self, token: str) -> str:
        while self.left and token:
            if token[0] != self.character:
                self.left = 0
                break
            token, self.left = token[1:], self.left - 1
        return token


class HoldAll(DecodeStep):
    """Holds everything back until the end."""

    def __init__(self, decoder: decoders.Decoder) -> None:
        self.decoder = decoder
        self.tokens: list[str] = []

    def push(self, token: str) -> str:
        self.tokens.append(token)
        return ""

    def finish(self) -> str:
        return self.decoder.decode(self.tokens)


class StreamDecoder:
    """`push` each id, then `finish`: the pieces join to the full text, and none ends inside a character."""

    def __init__(self, decoder: decoders.Decoder | None, *, name: Callable[[int], str | None], skip: Collection[int]):
        self._steps = build_steps(decoder)
        self._name, self._skip = name, skip

    def push(self, id: int) -> str:
        token = None if id in self._skip else self._name(id)
        return "" if token is None else self._run(token, self._steps)

    def finish(self) -> str:
        pieces = []
        for at, step in enumerate(self._steps):
            with guard_library("decoding"):
                held = step.finish()
            pieces.append(self._run(held, self._steps[at + 1 :]) if held else "")
        return "".join(pieces)

    @staticmethod
    def _run(token: str, steps: list[DecodeStep]) -> str:
        with guard_library("decoding"):
            for step in steps:
                token = step.push(token)
        return token


def _list_byte_characters() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 bytes are their own character, the others have characters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


def _build_replace(part: dict[str, Any]) -> decoders.Decoder:
    pattern = part["pattern"]
    return decoders.Replace(pattern["String"] if "String" in pattern else Regex(pattern["Regex"]), part["content"])


BYTE_OF = _list_byte_characters()
PER_TOKEN_DECODERS: dict[str, Callable[[dict[str, Any]], decoders.Decoder]] = {
    "WordPiece": lambda part: decoders.WordPiece(prefix=part["prefix"], cleanup=part["cleanup"]),
    "Metaspace": lambda part: decoders.Metaspace(part["replacement"], prepend_scheme=part["prepend_scheme"]),
    "Replace": _build_replace,
}


def build_steps(decoder: decoders.Decoder | None) -> list[DecodeStep]:
    """The known structure of a decoder: [each token]* [byte runs]? [joined]? [leading spaces dropped]?"""
    if decoder is None:
        return [SpaceJoined()]
    todo = _flatten(json.loads(decoder.__getstate__()))
    if [part["type"] for part in todo] == ["ByteLevel"]:
        return [ByteLevelText()]
    steps: list[DecodeStep] = []
    while todo and todo[0]["type"] in PER_TOKEN_DECODERS:
        steps.append(PerToken(PER_TOKEN_DECODERS[todo[0]["type"]](todo.pop(0))))
    if todo and todo[0]["type"] == "ByteFallback":
        todo.pop(0)
        steps.append(ByteRuns())
    if todo and todo[0]["type"] == "Fuse":
        todo.pop(0)
        if todo and todo[0]["type"] == "Strip" and not todo[0]["stop"]:
            strip = todo.pop(0)
            steps.append(StripStart(character=strip["content"], count=strip["start"]))
    return [HoldAll(decoder)] if todo else steps


def _flatten(part: dict[str, Any]) -> list[dict[str, Any]]:
    return [leaf for inner in part["decoders"] for leaf in _flatten(inner)] if part["type"] == "Sequence" else [part]
