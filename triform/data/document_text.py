"""The text of HTML and PDF files, in pieces that know where they stood: the line of the file, or the page.

PDFs are read with pypdf (an extra) in a process of its own with bounds, since files may come from anywhere.
"""

import json
import re
import subprocess
import sys
from bisect import bisect_right
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from triform.data import pdf_process
from triform.data.line_reader import DataError, Unit

HTML_ENDINGS, PDF_ENDINGS = (".html", ".htm", ".xhtml"), (".pdf",)
DOCUMENT_ENDINGS = (*HTML_ENDINGS, *PDF_ENDINGS)
MAX_DOCUMENT_BYTES = 1 << 28
WAIT_SECONDS = 600  # for a PDF on a busy machine; its processor time is limited far below
CHARSET = re.compile(rb"""charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
UNSEEN = frozenset({"script", "style", "template", "noscript", "svg", "head"})
BLOCK_TAGS = """
address article aside blockquote body br caption dd details div dl dt figcaption figure footer form h1 h2 h3 h4 h5 h6
header hr li main nav ol option p pre section summary table td th title tr ul
"""
BLOCKS = frozenset(BLOCK_TAGS.split())


class TextPiece(NamedTuple):
    """Text, and what its numbers count; `lines` are (character, line of the file), ascending."""

    text: str
    line: int
    unit: Unit = "line"
    lines: tuple[tuple[int, int], ...] = ()

    def find_line(self, at: int) -> int:
        """The line of the character at this place."""
        return self.line if not self.lines else self.lines[max(0, bisect_right(self.lines, (at, sys.maxsize)) - 1)][1]


def read_document(path: Path) -> list[TextPiece]:
    """The pieces of an HTML or PDF file that hold text."""
    try:
        size = path.stat().st_size
        if size > MAX_DOCUMENT_BYTES:
            raise DataError(f"{path} has {size:,} bytes; at most {MAX_DOCUMENT_BYTES:,} are read")
        pieces = read_pdf(path) if path.suffix.lower() in PDF_ENDINGS else read_html(path)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    if not any(piece.text.strip() for piece in pieces):
        scanned = "; a scanned page needs OCR first" if path.suffix.lower() in PDF_ENDINGS else ""
        raise DataError(f"there is no text in {path}{scanned}")
    return pieces


# --- HTML -----------------------------------------------------------------------------------------------------------


class HtmlText(HTMLParser):
    """Collects what a reader sees: a line per block, a blank line between paragraphs and headings."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.unseen: list[str] = []
        self.parts: list[str] = []
        self.lines: list[tuple[int, int]] = []
        self.size = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in UNSEEN:
            self.unseen.append(tag)
        self.begin_block(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.unseen:
            del self.unseen[self.unseen.index(tag) :]
        self.begin_block(tag)

    def begin_block(self, tag: str) -> None:
        if tag in BLOCKS and self.parts and not self.parts[-1].endswith("\n\n"):
            self.add("\n" if tag in ("br", "td", "th", "tr", "li", "dt", "dd", "option") else "\n\n")

    def handle_data(self, data: str) -> None:
        if not self.unseen:
            text = re.sub(r"\s+", " ", data)
            text = text.lstrip() if not self.parts or self.parts[-1][-1:].isspace() else text
            if text:
                self.lines.append((self.size, self.getpos()[0]))
                self.add(text)

    def add(self, text: str) -> None:
        self.parts.append(text)
        self.size += len(text)


def read_html(path: Path) -> list[TextPiece]:
    """What a reader of the page sees, as one piece."""
    data = path.read_bytes()
    parser = HtmlText()
    parser.feed(decode_html(data, path))
    parser.close()
    return [TextPiece("".join(parser.parts), 1, "line", tuple(parser.lines))]


def decode_html(data: bytes, path: Path) -> str:
    """UTF-8, or the character set that the page names."""
    named = CHARSET.search(data[:2048])
    name = "utf-8" if named is None else named[1].decode("ascii")
    try:
        return data.decode(name)
    except LookupError:
        raise DataError(f"{path} names the character set {name!r}, which is not known") from None
    except UnicodeDecodeError as error:
        if named is not None:
            raise DataError(f"{path} is not {name}, as it says: byte {error.start}") from None
        return data.decode("cp1252", errors="replace")  # what browsers take for pages that say nothing


# --- PDF ------------------------------------------------------------------------------------------------------------


def read_pdf(path: Path) -> list[TextPiece]:
    """A piece per page, read in a process of its own."""
    if find_spec("pypdf") is None:
        raise DataError(f"{path}: PDFs need the pypdf package: pip install pypdf")
    command = [sys.executable, pdf_process.__file__, str(path.absolute())]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=WAIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise DataError(f"{path} takes too long to read") from None
    if ended.returncode == pdf_process.REFUSED:
        raise DataError(f"{path}: {ended.stdout.decode('utf-8', 'replace').strip()}")
    if ended.returncode:
        raise DataError(f"{path} cannot be read: it is damaged, or needs too much time or memory")
    return [TextPiece(text, number, "page") for number, text in map(json.loads, ended.stdout.splitlines())]
