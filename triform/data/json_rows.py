"""Rows from JSON lines, JSON arrays and SQuAD's articles, streamed object by object.

A damaged object is a `Fault` in its place; the objects after it are still read.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from triform.data.columns import Records, RowRequest, pick_fields
from triform.data.line_reader import MAX_LINE_BYTES, DataError, Fault, decode_line, open_file, read_lines, strip_bom

BLOCK = 1 << 18  # bytes read at once
MAX_DEPTH = 1000


def read_json_lines(files: tuple[Path, ...], request: RowRequest) -> Records:
    """Each line is a JSON object."""
    for number, line in read_lines(files[0]):
        yield number, pick_fields(_parse(line), request)


def read_json(files: tuple[Path, ...], request: RowRequest) -> Records:
    """A JSON array of objects, {"data": [...]} around one, SQuAD's articles, or JSON lines.

    Objects are numbered from 1, not by lines: one line may have many.
    """
    with open_file(files[0]) as file:
        head = strip_bom(file.read(BLOCK), files[0])
        inside = _find_nesting(head)
        if not inside:
            yield from read_json_lines(files, request)
            return
        elements = _split_elements(file, head, inside=inside, name=str(files[0]))
        records = (record for raw in elements for record in _split_records(_parse(raw)))
        for number, record in enumerate(records, start=1):
            yield number, pick_fields(record, request)


def _find_nesting(head: bytes) -> bytes:
    """The brackets around each record, by the start of the file; none for JSON lines."""
    if re.match(rb"\s*\[", head):
        return b"["
    if re.match(rb'\s*\{\s*("\w+"\s*:\s*"[^"]*"\s*,\s*)*"data"\s*:\s*\[', head):
        return b"{[{[" if b'"paragraphs"' in head else b"{["
    return b""


_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["{}\[\]]', re.DOTALL)


def _split_elements(file: IO[bytes], head: bytes, *, inside: bytes, name: str) -> Iterator[bytes]:
    """The bytes of each object inside these brackets."""
    buffer, stack, line = head, bytearray(), 1
    scanned, start = 0, None  # position in the buffer; start of an incomplete object
    while True:
        for mark in _STRING_OR_BRACKET.finditer(buffer, scanned):
            token = mark[0]
            if token == b'"':  # a string that continues in the next block
                break
            if token in b"{[":
                start = mark.start() if stack == inside and token == b"{" else start
                stack += token
            elif token in b"}]":
                del stack[-1:]
                if stack == inside and start is not None:
                    yield buffer[start : mark.end()]
                    start = None
            scanned = mark.end()
        keep = scanned if start is None else start
        line += buffer.count(b"\n", 0, keep)
        block = file.read(BLOCK)
        buffer, scanned, start = buffer[keep:] + block, scanned - keep, None if start is None else 0
        if len(buffer) > MAX_LINE_BYTES + BLOCK or len(stack) > MAX_DEPTH:
            raise DataError(
                f"{name} has an object that does not end, after line {line}; is a quote or bracket missing?"
            )
        if not block:
            break
    if stack:
        raise DataError(f"{name} ends in the middle of its JSON, after line {line}; copy it again")


def _split_records(element: object) -> list[object]:
    """One record; one per question for a SQuAD paragraph."""
    if not isinstance(element, dict) or not isinstance(element.get("qas"), list):
        return [element]
    context = {"context": element.get("context")}
    return [{**question, **context} if isinstance(question, dict) else question for question in element["qas"]]


def _parse(raw: bytes | Fault) -> object:
    """The JSON value, or a Fault."""
    try:
        text = decode_line(raw)
    except Fault as fault:
        return fault
    if not text or text.isspace():
        return Fault("blank", "an empty line")
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        return json.loads(text)  # accepts NaN and half surrogates, which get their own Fault later
    except (ValueError, RecursionError) as error:
        return Fault("not JSON", str(error)[:80])
