"""Detects the format of a file by its first bytes, for files whose name does not say it.

Never guesses: a table and lines of text look alike, so only unmistakable formats are detected.
"""

import re
from pathlib import Path

import msgspec

from triform.data.line_reader import UTF8_BOM, UTF16_BOMS, DataError, open_file
from triform.data.text_rows import split_word
from triform.data.values import is_bio

HEAD_BYTES = 1 << 16
MIN_TAGGED_SHARE = 0.9
PARQUET_MAGIC = b"PAR1"


def detect_format_key(path: Path) -> str | None:
    """`parquet`, `json`, `jsonl` or `conll`; None if the content does not show it."""
    try:
        with open_file(path) as file:
            head = file.read(HEAD_BYTES)
    except DataError:
        return None  # the reader raises the error
    if head.startswith(PARQUET_MAGIC):
        return "parquet"
    if head.startswith(UTF16_BOMS) or b"\0" in head:
        return None
    text = head.removeprefix(UTF8_BOM).decode(errors="replace")
    whole = len(head) < HEAD_BYTES
    if re.match(r"\s*\[\s*[\[{\]]", text):
        return "json"
    if re.match(r"\s*\{", text):
        return "jsonl" if _is_object(text.strip().partition("\n")[0]) else "json"
    return "conll" if _is_conll(text.splitlines() if whole else text.splitlines()[:-1]) else None


def _is_object(line: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.MsgspecError, RecursionError):
        return False


def _is_conll(lines: list[str]) -> bool:
    """Nearly every line that is not blank or a comment is a token and its BIO tag; some may be damaged."""
    words = [cells for cells in map(split_word, lines) if cells]
    tagged = sum(len(cells) > 1 and is_bio(cells[-1]) for cells in words)
    return bool(words) and tagged >= MIN_TAGGED_SHARE * len(words)
