"""Rows from JSON: lines of it, arrays of it, and SQuAD's articles, streamed object by object.

Refuses to know what the values mean. A damaged object is a `Fault` in its place; the objects after it are still read.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from triform.data.columns import Ask, Records, pick
from triform.data.line_reader import LONGEST, DataError, Fault, after_bom, decoded, lines, opened

BLOCK = 1 << 18  # bytes read at once
DEEPEST = 1000


def json_lines(files: tuple[Path, ...], ask: Ask) -> Records:
    """Each line is a JSON object."""
    for number, line in lines(files[0]):
        yield number, pick(_parsed(line), ask)


def json_file(files: tuple[Path, ...], ask: Ask) -> Records:
    """A JSON array of objects, {"data": [...]} around one, SQuAD's articles of paragraphs, or JSON lines after all.

    Objects are numbered from 1, not by their lines: many may stand in one.
    """
    with opened(files[0]) as file:
        head = after_bom(file.read(BLOCK), files[0])
        inside = _nesting(head)
        if not inside:
            yield from json_lines(files, ask)
            return
        elements = _elements(file, head, inside=inside, name=str(files[0]))
        records = (record for raw in elements for record in _records(_parsed(raw)))
        for number, record in enumerate(records, start=1):
            yield number, pick(record, ask)


def _nesting(head: bytes) -> bytes:
    """The brackets around each record, judged by how the file begins; none for JSON lines."""
    if re.match(rb"\s*\[", head):
        return b"["
    if re.match(rb'\s*\{\s*("\w+"\s*:\s*"[^"]*"\s*,\s*)*"data"\s*:\s*\[', head):
        return b"{[{[" if b'"paragraphs"' in head else b"{["
    return b""


_MARK = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["{}\[\]]', re.DOTALL)


def _elements(file: IO[bytes], head: bytes, *, inside: bytes, name: str) -> Iterator[bytes]:
    """The bytes of each object that stands inside these brackets."""
    held, stack, line = head, bytearray(), 1
    seen, start = 0, None  # looked through; where an object begins that is not complete
    while True:
        for mark in _MARK.finditer(held, seen):
            found = mark[0]
            if found == b'"':  # a string that goes on in the next block
                break
            if found in b"{[":
                start = mark.start() if stack == inside and found == b"{" else start
                stack += found
            elif found in b"}]":
                del stack[-1:]
                if stack == inside and start is not None:
                    yield held[start : mark.end()]
                    start = None
            seen = mark.end()
        keep = seen if start is None else start
        line += held.count(b"\n", 0, keep)
        block = file.read(BLOCK)
        held, seen, start = held[keep:] + block, seen - keep, None if start is None else 0
        if len(held) > LONGEST + BLOCK or len(stack) > DEEPEST:
            raise DataError(f"{name} has an object without end after line {line}; is a quote or bracket missing?")
        if not block:
            break
    if stack:
        raise DataError(f"{name} ends in the middle of its JSON, after line {line}; copy it again")


def _records(element: object) -> list[object]:
    """One record; a SQuAD paragraph is as many as it has questions."""
    if not isinstance(element, dict) or not isinstance(element.get("qas"), list):
        return [element]
    context = {"context": element.get("context")}
    return [{**question, **context} if isinstance(question, dict) else question for question in element["qas"]]


def _parsed(raw: bytes | Fault) -> object:
    """A JSON value, or the Fault that keeps it from being one."""
    try:
        text = decoded(raw)
    except Fault as fault:
        return fault
    if not text or text.isspace():
        return Fault("blank", "an empty line")
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        return json.loads(text)  # knows NaN and half characters, so that they are counted as what they are
    except (ValueError, RecursionError) as error:
        return Fault("not JSON", str(error)[:80])
