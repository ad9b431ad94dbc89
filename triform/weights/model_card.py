"""What a model folder says of itself beside its weights: licence, description, card."""

import re
from pathlib import Path
from typing import NamedTuple

from triform.files.safe_folder import MiB, read_inside

CARDS = ("README.md", "model_card.md", "MODEL_CARD.md")
LICENCE_FILES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE")
LICENCE_LINE = re.compile(r"^licen[cs]e:\s*([^\s#][^#\n]*)", re.MULTILINE | re.IGNORECASE)
FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)


class FolderCard(NamedTuple):
    """`licence` is "" where the folder names none; `text` is the card without its front matter."""

    licence: str = ""
    text: str = ""


def read_card(folder: Path) -> FolderCard:
    """The licence and the card of a model folder."""
    text = next((found for name in CARDS if (found := _read(folder, name))), "")
    front = FRONT_MATTER.match(text)
    named = LICENCE_LINE.search(front[1]) if front else None
    licence = named[1].strip().strip("'\"") if named else _read_licence_file(folder)
    return FolderCard(licence, text[front.end() if front else 0 :].strip())


def _read_licence_file(folder: Path) -> str:
    """The first line of a licence file that says something."""
    for name in LICENCE_FILES:
        for line in _read(folder, name).splitlines():
            if line.strip():
                return f"{' '.join(line.split())[:80]} ({name})"
    return ""


def _read(folder: Path, name: str) -> str:
    data = read_inside(folder, name=name, limit=MiB)
    return "" if data is None else data.decode("utf-8", "replace").replace("\r\n", "\n")
