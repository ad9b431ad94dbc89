"""From the bytes of a body to a typed request: everything that is not exactly what a route takes is refused here.

Strict JSON: one object, UTF-8, no name twice, no NaN, no number out of range, no unknown field, no other type. Depth
is bounded by the types themselves, but for schemas, which stay bytes until their own reader takes them.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from itertools import islice
from typing import Any, TypeAlias, TypeVar

import msgspec

from triform.files.duplicate_keys import find_duplicate
from triform.serve.http.http_errors import Refusal
from triform.serve.http.limits import Limits, within

MAX_LISTS = 8192
HALF_CHARACTER = "a text holds half of a surrogate pair (\\ud800 to \\udfff), which is no character"
NEXT_LIST = re.compile(rb"\]\s*,\s*\[")

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
T = TypeVar("T", bound=msgspec.Struct)


class Gone(Exception):
    """The client has hung up."""


async def body_of(
    receive: Receive, headers: Mapping[str, str], *, most: int, seconds: float, kind: str = "application/json"
) -> bytes:
    """The whole body, of at most so many bytes; a client that needs more time to send it is refused."""
    sent = headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != kind:
        said = f"the content type is {sent[:80]!r}" if sent else "there is no content type"
        raise Refusal(f"{said}; send {kind}", status=415)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal("compressed bodies are not read; send the body uncompressed", status=415)
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise too_large(int(length), most)
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                body += message.get("body", b"")
                if len(body) > most:
                    raise too_large(len(body), most)
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise Refusal(f"the body did not come within {seconds:g} s", status=408) from None


def too_large(size: int, most: int) -> Refusal:
    return Refusal(f"the body has {size:,} bytes or more; at most {most:,} are accepted", status=413, code="too_large")


def parsed(body: bytes, decoder: "msgspec.json.Decoder[T]", limits: Limits) -> T:
    """The typed request in a body."""
    refuse_many_lists(body)
    try:
        asked = decoder.decode(body)
        within(asked, limits)  # first: what is small enough is soon looked through a second time
        json.loads(body, object_pairs_hook=each_once)
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at ")
        raise Refusal(mended(said), param=field_of(said, place)) from None
    except msgspec.DecodeError as error:
        raise Refusal(HALF_CHARACTER if half_character(body) else mended(str(error))) from None
    except UnicodeDecodeError as error:
        raise Refusal(f"byte {error.start} of a text is not UTF-8") from None
    except RecursionError:
        raise Refusal("the JSON is nested too deeply") from None
    except ValueError as error:  # what json says of itself
        if isinstance(error, Refusal):
            raise
        raise Refusal(mended(str(error))) from None
    return asked


def refuse_many_lists(body: bytes) -> None:
    """Before they are made: 170,000 lists in a body of 1 MiB took the event loop a tenth of a second."""
    if body.count(b"[") > MAX_LISTS and next(islice(NEXT_LIST.finditer(body), MAX_LISTS, None), None) is not None:
        raise Refusal(f"the body has more than {MAX_LISTS:,} lists")


def half_character(body: bytes) -> bool:
    """A \\ud800 without its other half, which msgspec takes for the end of the data."""
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        return isinstance(error, UnicodeEncodeError)
    return False


def field_of(said: str, place: str) -> str | None:
    """The field that is wrong: `place` is the library's "`$.messages[0].role`"; one that is missing or unknown stands
    in its sentence."""
    path = place.rpartition("$")[2].strip("`.")
    named = re.fullmatch(r"Object (?:missing required|contains unknown) field `(.{1,80})`", said)
    return ".".join(filter(None, (path, named and named[1]))) or None


def mended(said: str) -> str:
    """What the library says, as a sentence of ours."""
    first = said[:1] if said[:2].isupper() else said[:1].lower()  # JSON stays JSON
    return first + said[1:].replace("`", "'")[:300]


def each_once(pairs: list[tuple[str, Any]]) -> None:
    """No name twice: two readers of the same body must not see two things."""
    name = find_duplicate(pairs)
    if name is not None:
        raise Refusal(f"the field {name[:80]!r} is given twice", param=name[:80])
