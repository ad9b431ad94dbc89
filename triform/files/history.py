"""The history of prompts and answers, in one SQLite file: only where a person has turned it on."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

FORMAT_VERSION = 1
MAX_CHARACTERS = 100_000  # kept of each text
TABLE = """
CREATE TABLE IF NOT EXISTS entries (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
    command TEXT NOT NULL, model TEXT NOT NULL, prompt TEXT NOT NULL, answer TEXT NOT NULL
)
"""


class HistoryEntry(NamedTuple):
    """One prompt and its answer."""

    at: str
    command: str
    model: str
    prompt: str
    answer: str


class HistoryFile:
    """A file that is there is written to; `create` makes it, readable by its owner alone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def exists(self) -> bool:
        return self.path.is_file()

    def create(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch(mode=0o600)
        with closing(sqlite3.connect(self.path)) as base, base:
            base.execute(TABLE)
            base.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def add(self, command: str, model: str, prompt: str, answer: str) -> None:
        with closing(sqlite3.connect(self.path, timeout=10)) as base, base:
            row = (command, model, prompt[:MAX_CHARACTERS], answer[:MAX_CHARACTERS])
            base.execute("INSERT INTO entries (command, model, prompt, answer) VALUES (?, ?, ?, ?)", row)

    def read(self, *, count: int, words: str = "") -> Iterator[HistoryEntry]:
        """The newest entries, newest first; with these words in prompt or answer."""
        like = "%" + words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        query = (
            "SELECT at, command, model, prompt, answer FROM entries "
            "WHERE prompt LIKE ? ESCAPE '\\' OR answer LIKE ? ESCAPE '\\' ORDER BY id DESC LIMIT ?"
        )
        with closing(sqlite3.connect(self.path)) as base:
            version = base.execute("PRAGMA user_version").fetchone()[0]
            if version > FORMAT_VERSION:
                raise sqlite3.DatabaseError(f"it has format version {version}, of a newer Triform")
            yield from (HistoryEntry(*row) for row in base.execute(query, (like, like, count)))
