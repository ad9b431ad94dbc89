"""Rows from lines of text: one text per line, a document, two parallel files, one token per line (CoNLL).

A damaged row is a `Fault` in its place; the rows after it are still read.
"""

import re
from collections.abc import Iterator
from itertools import chain, islice, zip_longest
from pathlib import Path

from triform.data.columns import Records, RowRequest
from triform.data.line_reader import MAX_LINE_BYTES, Fault, decode_line, read_lines
from triform.data.values import is_bio

LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z]+)?:")  # before a token or a tag, as in WikiAnn
FIRST_LINES = 1000  # checked for it
PIECE = 1 << 16  # characters per row of a document


def read_text_lines(files: tuple[Path, ...], request: RowRequest) -> Records:
    """Each line is a text."""
    for number, line in read_lines(files[0]):
        yield number, {"text": line}


def read_document(files: tuple[Path, ...], request: RowRequest) -> Records:
    """The whole file is one text, in pieces that begin with a line that is not blank."""
    start, piece, size = 1, list[str](), 0
    for number, line in read_lines(files[0]):
        try:
            text = decode_line(line)
            if "\0" in text:
                raise Fault("NUL", f"a NUL at character {text.index(chr(0)) + 1}")
        except Fault as fault:
            yield number, fault
            continue
        if size >= PIECE and (text.strip() or size >= MAX_LINE_BYTES):
            yield start, {"text": "".join(piece), "goes_on": True}
            start, piece, size = number, [], 0
        piece.append(text + "\n")
        size += len(text) + 1
    if piece:
        yield start, {"text": "".join(piece)}


def read_parallel(files: tuple[Path, ...], request: RowRequest) -> Records:
    """Line n of one file is the translation of line n of the other."""
    source, target = files
    sources = targets = 0
    for left, right in zip_longest(read_lines(source), read_lines(target)):
        sources, targets = left[0] if left else sources, right[0] if right else targets
        if left and right:
            yield sources, {"source": left[1], "target": right[1]}
    if sources != targets:
        detail = f"{source.name} has {sources:,} lines, {target.name} has {targets:,}"
        yield min(sources, targets) + 1, Fault("unequal files", detail)


def read_conll(files: tuple[Path, ...], request: RowRequest) -> Records:
    """One token per line, in the first column, its tag in the last; a blank line after each sentence.

    A language before every token or tag (`en:Paris B-LOC` in WikiAnn) is removed.
    """
    language = _find_language(files[0])
    for sentence in _split_sentences(files[0]):
        words = list[tuple[str, str]]()
        for number, line in sentence:
            try:
                words += _parse_word(decode_line(line), language=language)
            except Fault as fault:
                yield number, fault
                break
        else:
            if words:
                yield sentence[0][0], {"tokens": [word for word, _ in words], "tags": [tag for _, tag in words]}


def _split_sentences(path: Path) -> Iterator[list[tuple[int, bytes | Fault]]]:
    sentence: list[tuple[int, bytes | Fault]] = []
    size = 0
    for number, line in chain(read_lines(path), [(0, b"")]):
        if isinstance(line, bytes) and not line.strip():
            if sentence:
                yield sentence
            sentence, size = [], 0
            continue
        size += len(line) if isinstance(line, bytes) else 0
        if size <= MAX_LINE_BYTES:
            sentence.append((number, line))
        else:
            sentence[-1:] = [
                (
                    number,
                    Fault("too long", f"a sentence of more than {MAX_LINE_BYTES >> 20} MiB; is a blank line missing?"),
                )
            ]


def _find_language(path: Path) -> str:
    """The `en:` that all of the first tokens begin with, or an empty string."""
    head = (
        line.decode(errors="replace") for _, line in islice(read_lines(path), FIRST_LINES) if isinstance(line, bytes)
    )
    tokens = [cells[0] for cells in map(split_word, head) if len(cells) > 1]
    prefix = LANGUAGE.match(tokens[0]) if len(tokens) > 1 else None
    return prefix[0] if prefix and all(token.startswith(prefix[0]) for token in tokens) else ""


def _parse_word(line: str, *, language: str) -> list[tuple[str, str]]:
    """[(token, tag)], or [] for a document mark or a comment."""
    cells = split_word(line)
    if len(cells) == 1:
        raise Fault("wrong columns", f"{line[:40]!r} has one column; a token and its tag need two")
    return [(cells[0].removeprefix(language) or cells[0], cells[-1])] if cells else []


def split_word(line: str) -> list[str]:
    """The columns of one token, its tag without a language; [] for a blank line, a document mark or a comment."""
    cells = line.rstrip("\t ").split("\t") if "\t" in line else re.split(" +", line.strip(" "))
    tag = LANGUAGE.sub("", cells[-1], count=1)
    if is_bio(tag):
        cells[-1] = tag
    if not line.strip() or cells[0] == "-DOCSTART-" or (line.startswith("# ") and not is_bio(tag)):
        return []
    return cells
