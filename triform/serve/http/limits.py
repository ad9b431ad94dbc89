"""Every bound of the service in one frozen value, and which field of a request each one bounds.

Knows numbers and names; what is over a bound is refused before anything is allocated for it.
"""

import math
from typing import Any

import msgspec

from triform.errors import InputError
from triform.serve.http.http_errors import Refusal


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one request, one connection and all of them together may take."""

    # one request
    body_bytes: int = 2**20
    header_bytes: int = 2**14
    characters: int = 2**18  # of all texts of a request, looked at before any is cut into tokens
    prompt_tokens: int = 2**16  # of all texts of a request; what is written on from must also fit its model's context
    max_tokens: int = 4096
    n: int = 8
    stop: int = 4
    stop_characters: int = 256
    logprobs: int = 20
    biases: int = 300
    items: int = 256  # prompts, texts or questions in one request
    inputs: int = 2048  # texts to embed in one request, which is worked on in chunks
    input_characters: int = 2**21  # of all of them; each may have `characters`
    input_tokens: int = 300_000
    input_bytes: int = 2**22  # of its body
    messages: int = 512
    candidates: int = 100  # labels, fillings and passages told of one text
    beams: int = 8
    schema_bytes: int = 2**16  # of a grammar
    seconds: float = 120.0  # from the first byte of a request to the last of its answer

    # one connection
    idle_seconds: float = 20.0  # without a whole request, or without reading what was sent
    connections: int = 512

    # browsers that sign in with a key
    sessions: int = 1024  # open at once; the oldest ends first
    session_seconds: float = 12 * 3600.0  # after the sign-in
    wrong_keys: int = 10  # per minute and address; then 429

    # all of them
    rows: int = 16  # answers a model writes side by side
    queue: int = 64  # answers that may wait for a place; then 429
    wait_seconds: float = 10.0  # that a newcomer would wait for a place, as far as is known; then 429 too
    prefix_bytes: int = 2**26  # kept of prompts a model has read, so that they are not read again
    batch_characters: int = 2**14  # of the texts an encoder task reads in one batch
    look_bytes: int = 2**29  # kept of passes the page has looked at, of all models together
    grace_seconds: float = 30.0  # for running requests once the service is told to stop
    stalled_seconds: float = 1.5  # a worker that gives no sign for so long is not ready
    dead_seconds: float = 120.0  # and for so long, is lost: the process ends

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not math.isfinite(value) or value < (0 if name in ("queue", "grace_seconds", "prefix_bytes") else 1e-3):
                raise InputError(f"{name}={value!r} is no bound; use a number above 0")


TOO_LONG = "context_length_exceeded"

# field of a request → the limit of its value, or of how many it holds
BOUNDS = {
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "n": "n",
    "logprobs": "logprobs",
    "top_logprobs": "logprobs",
    "stop": "stop",
    "logit_bias": "biases",
    "prompt": "items",
    "input": "inputs",
    "text": "items",
    "question": "items",
    "messages": "messages",
    "k": "candidates",
    "top": "candidates",
    "beams": "beams",
}


def within(asked: msgspec.Struct, limits: Limits) -> None:
    """Refuses the first field that is over its bound."""
    characters = {name: count_characters(getattr(asked, name)) for name in asked.__struct_fields__}
    most = limits.input_characters if "input" in characters else limits.characters
    if (total := sum(characters.values())) > most:
        said = f"the texts have {total:,} characters; at most {most:,} are accepted in one request"
        raise Refusal(said, param=max(characters, key=characters.__getitem__), code=TOO_LONG)
    for name in asked.__struct_fields__:
        if name in BOUNDS:
            _within(name, getattr(asked, name), most=getattr(limits, BOUNDS[name]))
        if name == "input":
            what = "one text has {:,} characters"
            _within(name, _longest_text(getattr(asked, name)), most=limits.characters, what=what, code=TOO_LONG)
        if name in ("prompt", "input"):
            what = f"the {name} has {{:,}} tokens"
            most = limits.prompt_tokens if name == "prompt" else limits.input_tokens
            _within(name, _ids(getattr(asked, name)), most=most, what=what, code=TOO_LONG)
        if name == "response_format":
            _within(name, _schema_bytes(asked), most=limits.schema_bytes, what="the schema has {:,} bytes")
        if name == "stop":
            for stop in _many(asked.stop):  # type: ignore[attr-defined]
                _within("stop", len(stop), most=limits.stop_characters, what="a stop string has {} characters")


def _within(name: str, value: Any, *, most: int, what: str = "", code: str | None = None) -> None:
    counted = isinstance(value, list | tuple | dict)
    # a prompt may be one list of ids: those are counted as tokens, not as items
    if counted and name in ("prompt", "input") and value and isinstance(value[0], int):
        return
    size = len(value) if counted else value
    if isinstance(size, int) and not isinstance(size, bool) and size > most:
        said = what.format(size) or (f"{name} has {size} entries" if counted else f"{name}={size}")
        raise Refusal(f"{said}; at most {most:,} are accepted", param=name, code=code)


def count_characters(value: Any) -> int:
    """Of all texts in a value; a list that begins with a number is a list of ids."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, msgspec.Struct):
        return sum(count_characters(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, list | tuple) and value and not isinstance(value[0], int):
        return sum(map(count_characters, value))
    return 0


def _ids(prompt: Any) -> int:
    """Token ids in one list or in several."""
    if not isinstance(prompt, list) or not prompt:
        return 0
    return len(prompt) if isinstance(prompt[0], int) else sum(len(one) for one in prompt if isinstance(one, list))


def _longest_text(given: Any) -> int:
    """Characters; 0 where token ids are given, of which there may be very many."""
    texts = _many(given)
    if not texts or not isinstance(texts[0], str):
        return 0
    return max(len(text) for text in texts if isinstance(text, str))


def _schema_bytes(asked: Any) -> int:
    """Of a schema that stays bytes until its own reader takes it."""
    named = getattr(asked.response_format, "json_schema", None)
    return 0 if named is None else sum(len(name) + len(raw) for name, raw in named.schema.items())


def _many(given: Any) -> list[Any]:
    return [] if given is None else [given] if isinstance(given, str) else given
