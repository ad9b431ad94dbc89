"""What makes two runs the same run: the model and the input by their content, wherever they lie and however they are
named. `--resume` and `merge` compare it.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from triform.data.row_cache import hash_file

if TYPE_CHECKING:
    from triform.model import Model

HASH = re.compile("[0-9a-f]{64}")


class ModelRun:
    """A function from questions to answers that can tell which model gives them."""

    def __init__(
        self, run: Callable[[Sequence[Any]], Iterator[msgspec.Struct]], *, identify: Callable[[], Mapping[str, Any]]
    ) -> None:
        self.run, self.identify = run, identify

    def __call__(self, questions: Sequence[Any]) -> Iterator[msgspec.Struct]:
        return self.run(questions)


def identify_model(model: "Model") -> dict[str, str]:
    """Of a model that was loaded here."""
    from triform.weights.model_hash import hash_model

    return {"model": hash_model(model)}


def hash_input(file: str | Path | None) -> str | None:
    """SHA-256 of a file's bytes; None where there is no such file."""
    return hash_file(Path(file)) if file is not None and Path(file).is_file() else None


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def show_fact(value: object) -> str:
    """A fact in an error message; of a hash its beginning."""
    if isinstance(value, str) and HASH.fullmatch(value):
        return f"{value[:12]}…"
    return repr(value)
