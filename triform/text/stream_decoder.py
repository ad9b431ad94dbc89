"""Text from ids as they come: pieces that join to exactly what decoding all ids at once gives.

Owns what each kind of decoder must hold back. Knows decoders of the tokenizers library, not where ids come from.
A decoder of unknown kind is held back whole: late, but never wrong.
"""

import codecs
import json
from collections.abc import Callable, Collection
from typing import Any, Protocol

from tokenizers import Regex, decoders

from triform.text.panic_guard import shield


class Step(Protocol):
    """A part of the decoding: takes tokens, gives what is certain by now."""

    def push(self, token: str) -> str: ...

    def finish(self) -> str: ...


class Each:
    """Every token by itself; only the first of all may read differently (no space before it)."""

    def __init__(self, decoder: decoders.Decoder) -> None:
        self.decode = decoder.decode
        self.first = True

    def push(self, token: str) -> str:
        if self.first:
            self.first = False
            return self.decode([token])
        return self.decode(["", token])  # the library looks at a token's index alone: 0, or any other

    def finish(self) -> str:
        return ""


class Spaced(Each):
    """A tokenizer without a decoder: tokens with spaces between."""

    def __init__(self) -> None:
        self.first = True

    def push(self, token: str) -> str:
        text = token if self.first else " " + token
        self.first = False
        return text


class ByteRuns:
    """`<0xE2>` tokens: a run of them is text only if the whole run is valid UTF-8, so it is held until it ends."""

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


class Bytes:
    """Byte-level tokens: each character stands for a byte; bytes become text as soon as they are whole characters."""

    def __init__(self) -> None:
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: str) -> str:
        try:
            data = bytes(BYTE_OF[character] for character in token)
        except KeyError:  # an added token is plain text, spaces and all
            data = token.encode()
        return self.decoder.decode(data)

    def finish(self) -> str:
        return self.decoder.decode(b"", final=True)


class Lead:
    """Drops up to `count` of one character from the very beginning of the text."""

    def __init__(self, *, character: str, count: int) -> None:
        self.character, self.left = character, count

    def push(self, token: str) -> str:
        while self.left and token:
            if token[0] != self.character:
                self.left = 0
                break
            token, self.left = token[1:], self.left - 1
        return token

    def finish(self) -> str:
        return ""


class Whole:
    """Everything at the end."""

    def __init__(self, decoder: decoders.Decoder) -> None:
        self.decoder = decoder
        self.tokens: list[str] = []

    def push(self, token: str) -> str:
        self.tokens.append(token)
        return ""

    def finish(self) -> str:
        return self.decoder.decode(self.tokens)


class Stream:
    """`push` each id, then `finish`: the pieces join to the full decoding, and none ends inside a character."""

    def __init__(self, decoder: decoders.Decoder | None, *, name: Callable[[int], str | None], skip: Collection[int]):
        self._steps = steps_of(decoder)
        self._name, self._skip = name, skip

    def push(self, id: int) -> str:
        token = None if id in self._skip else self._name(id)
        return "" if token is None else self._walk(token, self._steps)

    def finish(self) -> str:
        pieces = []
        for at, step in enumerate(self._steps):
            with shield("decoding"):
                held = step.finish()
            pieces.append(self._walk(held, self._steps[at + 1 :]) if held else "")
        return "".join(pieces)

    @staticmethod
    def _walk(token: str, steps: list[Step]) -> str:
        with shield("decoding"):
            for step in steps:
                token = step.push(token)
        return token


def _byte_characters() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 stands for itself, the other bytes for the characters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


def _replace(part: dict[str, Any]) -> decoders.Decoder:
    pattern = part["pattern"]
    return decoders.Replace(pattern["String"] if "String" in pattern else Regex(pattern["Regex"]), part["content"])


BYTE_OF = _byte_characters()
EACH: dict[str, Callable[[dict[str, Any]], decoders.Decoder]] = {
    "WordPiece": lambda part: decoders.WordPiece(prefix=part["prefix"], cleanup=part["cleanup"]),
    "Metaspace": lambda part: decoders.Metaspace(part["replacement"], prepend_scheme=part["prepend_scheme"]),
    "Replace": _replace,
}


def steps_of(decoder: decoders.Decoder | None) -> list[Step]:
    """The known shape of a decoder: [each token]* [byte runs]? [joined]? [leading spaces dropped]?"""
    if decoder is None:
        return [Spaced()]
    todo = _flat(json.loads(decoder.__getstate__()))
    if [part["type"] for part in todo] == ["ByteLevel"]:
        return [Bytes()]
    steps: list[Step] = []
    while todo and todo[0]["type"] in EACH:
        steps.append(Each(EACH[todo[0]["type"]](todo.pop(0))))
    if todo and todo[0]["type"] == "ByteFallback":
        todo.pop(0)
        steps.append(ByteRuns())
    if todo and todo[0]["type"] == "Fuse":
        todo.pop(0)
        if todo and todo[0]["type"] == "Strip" and not todo[0]["stop"]:
            strip = todo.pop(0)
            steps.append(Lead(character=strip["content"], count=strip["start"]))
    return [Whole(decoder)] if todo else steps


def _flat(part: dict[str, Any]) -> list[dict[str, Any]]:
    return [leaf for inner in part["decoders"] for leaf in _flat(inner)] if part["type"] == "Sequence" else [part]
