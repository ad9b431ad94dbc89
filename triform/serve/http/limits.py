"""All limits of the service in one frozen value, and which request field each applies to.

A request over a limit is refused before anything is allocated for it.
"""

import math
from typing import Any

import msgspec

from triform.errors import InputError
from triform.serve.http.http_errors import RequestError


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits per request, per connection, and for the whole service."""

    # one request
    body_bytes: int = 2**20
    header_bytes: int = 2**14
    characters: int = 2**18  # of all texts of a request, checked before tokenizing
    prompt_tokens: int = 2**16  # of all texts of a request; a prompt must also fit its model's context
    max_tokens: int = 4096
    n: int = 8
    stop: int = 4
    stop_characters: int = 256
    logprobs: int = 20
    biases: int = 300
    items: int = 256  # prompts, texts or questions in one request
    inputs: int = 2048  # texts to embed in one request, processed in chunks
    input_characters: int = 2**21  # of all of them; each may have `characters`
    input_tokens: int = 300_000
    input_bytes: int = 2**22  # of its body
    messages: int = 512
    candidates: int = 100  # labels, fillings or passages per text
    beams: int = 8
    schema_bytes: int = 2**16  # of a grammar
    seconds: float = 120.0  # from the first byte of a request to the last of its answer

    # one connection
    idle_seconds: float = 20.0  # without a complete request, or without reading the response
    connections: int = 512

    # browsers that sign in with a key
    sessions: int = 1024  # open at once; the oldest ends first
    session_seconds: float = 12 * 3600.0  # after the sign-in
    wrong_keys: int = 10  # per minute and address; then 429

    # all of them
    rows: int = 16  # sequences a model decodes in parallel
    queue: int = 64  # answers that may wait; then 429
    wait_seconds: float = 10.0  # estimated waiting time of a new request; above it 429
    prefix_bytes: int = 2**26  # prefix cache per model
    batch_characters: int = 2**14  # of the texts in one batch of an encoder task
    look_bytes: int = 2**29  # cache of the page, for all models together
    grace_seconds: float = 30.0  # for running requests after SIGTERM
    stalled_seconds: float = 1.5  # without a heartbeat: the worker is not ready
    dead_seconds: float = 120.0  # without a heartbeat: the worker is lost and the process ends

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not math.isfinite(value) or value < (0 if name in ("queue", "grace_seconds", "prefix_bytes") else 1e-3):
                raise InputError(f"{name}={value!r} is not a limit; use a number above 0")


LIMIT_HELP = {
    "body_bytes": "of the body of a request",
    "header_bytes": "of path and headers of a request",
    "characters": "of all texts of a request",
    "prompt_tokens": "of all texts of a request; each must also fit its model",
    "max_tokens": "that one answer may have",
    "n": "answers to one prompt",
    "stop": "stop strings of a request",
    "stop_characters": "of one stop string",
    "logprobs": "alternatives shown per token",
    "biases": "tokens in logit_bias",
    "items": "prompts, texts or questions in one request",
    "inputs": "texts to embed in one request",
    "input_characters": "of all texts to embed in one request",
    "input_tokens": "of all texts to embed in one request",
    "input_bytes": "of the body of a request to embed",
    "messages": "of one conversation",
    "candidates": "labels, fillings or passages per text",
    "beams": "of a beam search",
    "schema_bytes": "of the schemas of a request",
    "seconds": "from the first byte of a request to the last of its answer",
    "idle_seconds": "until a silent connection is closed",
    "connections": "open at once",
    "sessions": "signed-in browsers at once; the oldest ends first",
    "session_seconds": "until a browser must sign in again",
    "wrong_keys": "per minute and address, then sign-in answers 429",
    "rows": "answers a model writes at once",
    "queue": "answers that may wait; one more gets 429",
    "wait_seconds": "a request may probably wait; above it 429",
    "prefix_bytes": "of prompts a model keeps for the next request",
    "batch_characters": "of texts computed in one batch",
    "look_bytes": "that the page keeps, for all models together",
    "grace_seconds": "for running requests after Ctrl-C or SIGTERM",
    "stalled_seconds": "without a sign of a worker: not ready",
    "dead_seconds": "without a sign of a worker: the process ends",
}

TOO_LONG_CODE = "context_length_exceeded"

# field of a request → the limit of its value, or of the number of its entries
FIELD_LIMITS = {
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "n": "n",
    "logprobs": "logprobs",
    "top_logprobs": "logprobs",
    "stop": "stop",
    "stop_sequences": "stop",
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


SCHEMA_FIELDS = ("response_format", "tools", "text", "output_config")


def check_limits(request: msgspec.Struct, limits: Limits) -> None:
    """Refuses the first field that is over its limit."""
    characters = {name: count_characters(getattr(request, name)) for name in request.__struct_fields__}
    most = limits.input_characters if getattr(request, "task", "") == "embed" else limits.characters
    if (total := sum(characters.values())) > most:
        message = f"the texts have {total:,} characters; at most {most:,} are accepted in one request"
        raise RequestError(message, param=max(characters, key=characters.__getitem__), code=TOO_LONG_CODE)
    for name in request.__struct_fields__:
        if name in FIELD_LIMITS or isinstance(getattr(request, name), list):  # every list has a limit
            _check_limit(name, getattr(request, name), most=getattr(limits, FIELD_LIMITS.get(name, "items")))
        if name == "input":
            what = "one text has {:,} characters"
            _check_limit(
                name, _count_longest_text(getattr(request, name)), most=limits.characters, what=what, code=TOO_LONG_CODE
            )
        if name in ("prompt", "input"):
            what = f"the {name} has {{:,}} tokens"
            most = limits.prompt_tokens if name == "prompt" else limits.input_tokens
            _check_limit(name, _count_ids(getattr(request, name)), most=most, what=what, code=TOO_LONG_CODE)
        if name in SCHEMA_FIELDS:
            size = count_raw_bytes(getattr(request, name))
            _check_limit(name, size, most=limits.schema_bytes, what="the schema has {:,} bytes")
        if name in ("stop", "stop_sequences"):
            for stop in _as_list(getattr(request, name)):
                _check_limit(name, len(stop), most=limits.stop_characters, what="a stop string has {} characters")


def _check_limit(name: str, value: Any, *, most: int, what: str = "", code: str | None = None) -> None:
    counted = isinstance(value, list | tuple | dict)
    # a prompt may be one list of ids: these count as tokens, not as items
    if counted and name in ("prompt", "input") and value and isinstance(value[0], int):
        return
    size = len(value) if counted else value
    if isinstance(size, int) and not isinstance(size, bool) and size > most:
        message = what.format(size) or (f"{name} has {size} entries" if counted else f"{name}={size}")
        raise RequestError(f"{message}; at most {most:,} are accepted", param=name, code=code)


def count_characters(value: Any) -> int:
    """Of all texts in a value; a list that starts with a number is a list of token ids."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, msgspec.Struct):
        return sum(count_characters(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, list | tuple) and value and not isinstance(value[0], int):
        return sum(map(count_characters, value))
    return 0


def _count_ids(prompt: Any) -> int:
    """The number of token ids, in one list or several."""
    if not isinstance(prompt, list) or not prompt:
        return 0
    return len(prompt) if isinstance(prompt[0], int) else sum(len(ids) for ids in prompt if isinstance(ids, list))


def _count_longest_text(value: Any) -> int:
    """Characters; 0 for token ids."""
    texts = _as_list(value)
    if not texts or not isinstance(texts[0], str):
        return 0
    return max(len(text) for text in texts if isinstance(text, str))


def count_raw_bytes(value: Any) -> int:
    """Of all JSON in a value that is not parsed yet, as schemas are, with its names."""
    if isinstance(value, msgspec.Raw):
        return len(value)
    if isinstance(value, msgspec.Struct):
        return sum(count_raw_bytes(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, dict):
        return sum(len(name) + count_raw_bytes(each) for name, each in value.items() if isinstance(name, str))
    return sum(map(count_raw_bytes, value)) if isinstance(value, list) else 0


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else [value] if isinstance(value, str) else value
