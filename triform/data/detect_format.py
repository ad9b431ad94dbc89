"""What format a file has by its first bytes, for files whose name does not tell.

Refuses to guess: a table and a list of texts look alike, so only what leaves no doubt is named.
"""

import re
from pathlib import Path

import msgspec

from triform.data.line_reader import UTF8_BOM, UTF16_BOMS, DataError, opened
from triform.data.text_rows import split_word
from triform.data.values import is_bio

HEAD = 1 << 16  # bytes looked at
NEARLY_ALL = 0.9
PARQUET = b"PAR1"


def sniff_key(path: Path) -> str | None:
    """`parquet`, `json`, `jsonl` or `conll`; None where the content does not tell."""
    try:
        with opened(path) as file:
            head = file.read(HEAD)
    except DataError:
        return None  # whoever reads it says what is wrong
    if head.startswith(PARQUET):
        return "parquet"
    if head.startswith(UTF16_BOMS) or b"\0" in head:
        return None
    text = head.removeprefix(UTF8_BOM).decode(errors="replace")
    whole = len(head) < HEAD
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
    """Nearly every line that is not blank or a comment is a token and, last, its tag in BIO; some may be damaged."""
    words = [cells for cells in map(split_word, lines) if cells]
    tagged = sum(len(cells) > 1 and is_bio(cells[-1]) for cells in words)
    return bool(words) and tagged >= NEARLY_ALL * len(words)
