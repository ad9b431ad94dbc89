"""From the bytes of a body to a typed request; anything a route does not accept is refused here.

Strict JSON: one object, UTF-8, no duplicate names, no NaN, no number out of range, no unknown field, no other type.
The types limit the depth; JSON schemas stay bytes and are parsed by `response_format.py`.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from itertools import islice
from typing import Any, TypeAlias, TypeVar

import msgspec

from triform.files.strict_json import find_duplicate
from triform.serve.http.http_errors import RequestError
from triform.serve.http.limits import Limits, check_limits
from triform.tasks.options import UnknownOption

MAX_LISTS = 8192
LONE_SURROGATE_MESSAGE = "a text holds half of a surrogate pair (\\ud800 to \\udfff), which is not a character"
NEXT_LIST = re.compile(rb"\]\s*,\s*\[")
FIELD_MESSAGE = re.compile(r"Object (missing required|contains unknown) field `(.{1,80})`")  # of msgspec

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
T = TypeVar("T", bound=msgspec.Struct)


class ClientDisconnected(Exception):
    """The client has disconnected."""


async def read_body(
    receive: Receive, headers: Mapping[str, str], *, most: int, seconds: float, kind: str = "application/json"
) -> bytes:
    """The whole body, at most `most` bytes; 408 if it takes longer than `seconds`."""
    sent = headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != kind:
        problem = f"the content type is {sent[:80]!r}" if sent else "the content type is missing"
        raise RequestError(f"{problem}; send {kind}", status=415)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError("compressed bodies are not supported; send the body uncompressed", status=415)
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise body_too_large(int(length), most)
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                body += message.get("body", b"")
                if len(body) > most:
                    raise body_too_large(len(body), most)
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise RequestError(f"the body did not arrive within {seconds:g} s", status=408) from None


def body_too_large(size: int, most: int) -> RequestError:
    return RequestError(
        f"the body has {size:,} bytes or more; at most {most:,} are accepted", status=413, code="too_large"
    )


def parse_request(body: bytes, decoder: "msgspec.json.Decoder[T]", limits: Limits) -> T:
    """The typed request in a body."""
    refuse_many_lists(body)
    try:
        request = decoder.decode(body)
        check_limits(request, limits)  # before the second parse, which is quick for a small body
        json.loads(body, object_pairs_hook=refuse_duplicates)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        text = unknown_option(decoder.type, message, path) or reword_error(message)
        raise RequestError(text, param=find_field(message, path)) from None
    except msgspec.DecodeError as error:
        raise RequestError(LONE_SURROGATE_MESSAGE if has_lone_surrogate(body) else reword_error(str(error))) from None
    except UnicodeDecodeError as error:
        raise RequestError(f"byte {error.start} of a text is not UTF-8") from None
    except RecursionError:
        raise RequestError("the JSON is nested too deeply") from None
    except ValueError as error:  # of json; a Refusal is a ValueError too
        if isinstance(error, RequestError):
            raise
        raise RequestError(reword_error(str(error))) from None
    return request


def refuse_many_lists(body: bytes) -> None:
    """Before parsing: 170,000 lists in a body of 1 MiB blocked the event loop for a tenth of a second."""
    if body.count(b"[") > MAX_LISTS and next(islice(NEXT_LIST.finditer(body), MAX_LISTS, None), None) is not None:
        raise RequestError(f"the body has more than {MAX_LISTS:,} lists")


def has_lone_surrogate(body: bytes) -> bool:
    """A \\ud800 without its other half, which msgspec reports as truncated data."""
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        return isinstance(error, UnicodeEncodeError)
    return False


def unknown_option(kind: Any, message: str, path: str) -> str:
    """For a field that a task does not have: the words of the command line and of Python; else nothing."""
    field = FIELD_MESSAGE.fullmatch(message)
    if field is None or field[1] != "contains unknown" or path or not getattr(kind, "task", ""):
        return ""
    return str(UnknownOption(kind.task, field[2], kind.__struct_fields__))


def find_field(message: str, path: str) -> str | None:
    """The wrong field: msgspec's `path` is "`$.messages[0].role`"; a missing or unknown field is in its message."""
    field = FIELD_MESSAGE.fullmatch(message)
    return ".".join(filter(None, (path.rpartition("$")[2].strip("`."), field and field[2]))) or None


def reword_error(message: str) -> str:
    """msgspec's message in our style."""
    if field := FIELD_MESSAGE.fullmatch(message):
        return f"{field[2]!r} is {'required' if field[1].startswith('missing') else 'not supported'}"
    if message.startswith("Expected `null`, got"):
        return "this field is not supported; leave it out"
    first = message[:1] if message[:2].isupper() else message[:1].lower()  # JSON stays JSON
    return first + message[1:].replace("`", "'")[:300]


def refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    """Refuses a name that occurs twice: parsers differ in which value they take."""
    name = find_duplicate(pairs)
    if name is not None:
        raise RequestError(f"the field {name[:80]!r} is given twice", param=name[:80])
