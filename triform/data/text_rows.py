"""Rows from lines of text: one text per line, a whole document, two files side by side, one token per line.

Refuses to know tables and JSON. A damaged row is a `Fault` in its place; the rows after it are still read.
"""

import re
from collections.abc import Iterator
from itertools import chain, islice, zip_longest
from pathlib import Path

from triform.data.columns import Ask, Records
from triform.data.line_reader import LONGEST, Fault, decoded, lines
from triform.data.values import is_bio

LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z]+)?:")  # before a token or a tag, as in WikiAnn
FIRST_LINES = 1000  # looked at for it
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
    """One token per line, first in its columns, its tag the last of them; a blank line after each sentence.

    A language that stands before every token or tag (`en:Paris B-LOC` in WikiAnn) is left out.
    """
    language = _language_of(files[0])
    for sentence in _sentences(files[0]):
        words = list[tuple[str, str]]()
        for number, line in sentence:
            try:
                words += _word(decoded(line), language=language)
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


def _language_of(path: Path) -> str:
    """The `en:` that every one of the first tokens begins with; nothing where they do not."""
    head = (line.decode(errors="replace") for _, line in islice(lines(path), FIRST_LINES) if isinstance(line, bytes))
    tokens = [cells[0] for cells in map(split_word, head) if len(cells) > 1]
    found = LANGUAGE.match(tokens[0]) if len(tokens) > 1 else None
    return found[0] if found and all(token.startswith(found[0]) for token in tokens) else ""


def _word(line: str, *, language: str) -> list[tuple[str, str]]:
    """[(token, tag)], or nothing for a document mark or a comment."""
    cells = split_word(line)
    if len(cells) == 1:
        raise Fault("wrong columns", f"{line[:40]!r} is one column; a token and its tag are two")
    return [(cells[0].removeprefix(language) or cells[0], cells[-1])] if cells else []


def split_word(line: str) -> list[str]:
    """The columns of one token, its tag without a language; nothing for a blank line, a document mark or a comment."""
    cells = line.rstrip("\t ").split("\t") if "\t" in line else re.split(" +", line.strip(" "))
    tag = LANGUAGE.sub("", cells[-1], count=1)
    if is_bio(tag):
        cells[-1] = tag
    if not line.strip() or cells[0] == "-DOCSTART-" or (line.startswith("# ") and not is_bio(tag)):
        return []
    return cells
