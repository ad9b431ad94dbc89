"""Regular expressions in a tokenizer.json: unknown ones are tried on hard texts when the file is loaded.

A pattern such as `(a+)+$` takes twice the time for each further character. It is tried in a child process, which can be
killed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tokenizers

from triform.text import pattern_process
from triform.text.build_tokenizer import WORD_PATTERNS
from triform.text.panic_guard import TokenizerError

WAIT_SECONDS = 30  # for a child on a busy machine; its processor time has its own limit
# Of Llama 3, Qwen 2 and SentencePiece.
KNOWN_PATTERNS = {*WORD_PATTERNS, r"\A +|[ ▁]+\z", " {2,}"}


def refuse_slow_patterns(parts: Iterable[Any], *, what: str) -> None:
    """`parts` are the values of the sections that describe how a text is split."""
    found = {part["Regex"] for part in parts if isinstance(part, dict) and isinstance(part.get("Regex"), str)}
    for pattern in sorted(found - KNOWN_PATTERNS):
        if not is_fast(pattern):
            raise TokenizerError(
                f"{what}: the pattern {pattern[:80]!r} takes more than {pattern_process.MAX_SECONDS:g} s for a text of "
                f"{pattern_process.TEXT_CHARACTERS:,} characters; write it without repetitions inside repetitions"
            )


def is_fast(pattern: str) -> bool:
    """Whether a child process splits hard texts by this pattern in time."""
    library = str(Path(tokenizers.__file__).parents[1])
    command = [sys.executable, "-I", pattern_process.__file__, library]
    environment = {key: value for key, value in os.environ.items() if key != "RUST_BACKTRACE"}
    try:
        ended = subprocess.run(
            command, input=json.dumps([pattern]).encode(), capture_output=True, timeout=WAIT_SECONDS, env=environment
        )
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0
