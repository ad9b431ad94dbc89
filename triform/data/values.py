"""Converts values of a file to a text, a label, a tag, answers and their positions; raises a `Fault` if invalid."""

import re
from itertools import zip_longest

from triform.data.line_reader import Fault, decode_line
from triform.spec import is_tag

_SURROGATE = re.compile("[\ud800-\udfff]")


def to_text(value: object, *, name: str) -> str:
    """Every text is checked here: decodable, without NUL, not blank; otherwise unchanged."""
    if isinstance(value, bytes | Fault):
        value = decode_line(value, name=name)
    if not isinstance(value, str):
        raise Fault("wrong type", f"{name} is {repr(value)[:40]}, not text")
    if "\0" in value:
        raise Fault("NUL", f"{name} has a NUL at character {value.index(chr(0)) + 1}")
    if not value or value.isspace():
        raise Fault("blank", f"{name} is blank")
    if not value.isascii() and (half := _SURROGATE.search(value)):
        raise Fault("invalid UTF-8", f"{name} has half a character, \\u{ord(half[0]):04x}")
    return value


def is_bio(tag: object) -> bool:
    return isinstance(tag, str) and is_tag(tag)


def to_label(value: object) -> str:
    """Labels are strings: 1 and "1" are the same class."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        return str(value).lower()
    if not isinstance(value, str) or not value.strip():
        raise Fault("missing field", f"the label is {repr(value)[:40]}")
    return to_text(value.strip(), name="label")


def to_answers(value: object, *, starts: object) -> list[tuple[object, object]]:
    """(text, start or None) from a cell, a list of texts, SQuAD's list of objects, or an object with lists."""
    if isinstance(value, dict):
        starts = value.get("answer_start")
        value = value.get("text")
    if value is None or isinstance(value, str):
        return [(value, starts)] if value and value.strip() else []
    if not isinstance(value, list):
        raise Fault("wrong type", f"answers is {repr(value)[:40]}")
    if all(isinstance(answer, dict) for answer in value):
        return [(answer.get("text"), answer.get("answer_start")) for answer in value]
    places = starts if isinstance(starts, list) else []
    return list(zip_longest(value, places[: len(value)]))


def find_start(value: object, *, text: str, context: str) -> int:
    """The position of an answer in its context; without a value, the first one."""
    found = context.find(text)
    try:
        start = found if value in (None, "") else int(str(value))
    except ValueError:
        raise Fault("not a number", f"answer_start is {repr(value)[:40]}") from None
    if found < 0:
        raise Fault("answer not in context", f"{text[:40]!r} is not in its context")
    if start < 0 or not context.startswith(text, start):
        raise Fault("answer not in context", f"{text[:40]!r} is at {found}, not at {start}")
    return start
