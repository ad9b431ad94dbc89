"""Rows from lines of text: one text a line, a whole document, two files side by side, a token a line.

Refuses to know tables and JSON. A damaged row is a `Fault` in its place; the rows after it are still read.
"""

import re
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path

from triform.data.columns import Ask, Records
from triform.data.fields import is_bio
from triform.data.files import LONGEST, Fault, decoded, lines

PIECE = 1 << 16  # characters of a document given at once


def text_lines(files: tuple[Path, ...], ask: Ask) -> Records:
    """Each line is a text."""
    for number, line in lines(files[0]):
        yield number, {"text": line}


def document(files: tuple[Path, ...], ask: Ask) -> Records:
    """The whole file is a text, in pieces that begin with a line that is not blank."""
    start, piece, size = 1, list[str](), 0
    for number, line in lines(files[0]):
        try:
            text = decoded(line)
            if "\0" in text:
                raise Fault("NUL", f"a NUL at character {text.index(chr(0)) + 1}")
        except Fault as fault:
            yield number, fault
            continue
        if size >= PIECE and (text.strip() or size >= LONGEST):
            yield start, {"text": "".join(piece), "goes_on": True}
            start, piece, size = number, [], 0
        piece.append(text + "\n")
        size += len(text) + 1
    if piece:
        yield start, {"text": "".join(piece)}


def parallel(files: tuple[Path, ...], ask: Ask) -> Records:
    """Line n of one file is the translation of line n of the other."""
    source, target = files
    sources = targets = 0
    for one, other in zip_longest(lines(source), lines(target)):
        sources, targets = one[0] if one else sources, other[0] if other else targets
        if one and other:
            yield sources, {"source": one[1], "target": other[1]}
    if sources != targets:
        detail = f"{source.name} has {sources:,} lines, {target.name} has {targets:,}"
        yield min(sources, targets) + 1, Fault("unequal files", detail)


def conll(files: tuple[Path, ...], ask: Ask) -> Records:
    """A token a line, first in its columns, its tag the last of them; a blank line after each sentence."""
    for sentence in _sentences(files[0]):
        words = list[tuple[str, str]]()
        for number, line in sentence:
            try:
                words += _word(decoded(line))
            except Fault as fault:
                yield number, fault
                break
        else:
            if words:
                yield sentence[0][0], {"tokens": [word for word, _ in words], "tags": [tag for _, tag in words]}


def _sentences(path: Path) -> Iterator[list[tuple[int, bytes | Fault]]]:
    held: list[tuple[int, bytes | Fault]] = []
    size = 0
    for number, line in chain(lines(path), [(0, b"")]):
        if isinstance(line, bytes) and not line.strip():
            if held:
                yield held
            held, size = [], 0
            continue
        size += len(line) if isinstance(line, bytes) else 0
        if size <= LONGEST:
            held.append((number, line))
        else:
            held[-1:] = [(number, Fault("too long", f"a sentence of more than {LONGEST >> 20} MiB; is it closed?"))]


def _word(line: str) -> list[tuple[str, str]]:
    """[(token, tag)], or nothing for a document mark or a comment."""
    cells = line.rstrip("\t ").split("\t") if "\t" in line else re.split(" +", line.strip(" "))
    if cells[0] == "-DOCSTART-" or (line.startswith("# ") and not is_bio(cells[-1])):
        return []
    if len(cells) < 2:
        raise Fault("wrong columns", f"{line[:40]!r} is one column; a token and its tag are two")
    return [(cells[0], cells[-1])]
