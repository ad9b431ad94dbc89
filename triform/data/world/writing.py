"""Rows of the little world as files, in the format that the name of the file asks for; whole, or not at all.

Refuses to know where rows come from.
"""

import csv
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias

import msgspec

from triform.data.files import DataError
from triform.data.world.rows import TASKS, Label, Row, Task, rows
from triform.data.world.telling import Split

Write: TypeAlias = Callable[[Iterator[Row], list[IO[str]]], None]


def write(task: Task, path: str | Path, *, split: Split, seed: int, count: int, label: Label = "topic") -> None:
    """`count` rows of a task into a file; `news.en-de` stands for the two files news.en and news.de."""
    made = rows(task, split=split, seed=seed, count=count, label=label)
    path = Path(path)
    ending = path.suffix.lower()
    if task == "translate" and _LANGUAGES.fullmatch(ending):
        sides = [path.with_suffix(f".{language}") for language in ending[1:].split("-")]
        form = _FORMATS["languages"]
    else:
        sides, form = [path], _FORMATS.get(ending, _UNKNOWN)
    if task not in form.tasks:
        fitting = [name for name, other in _FORMATS.items() if task in other.tasks]
        fitting = [".en-de" if name == "languages" else name for name in fitting]
        raise DataError(f"{path} is no file for {task}; let its name end in {' or '.join(fitting)}")
    with ExitStack() as stack:
        form.write(made, [stack.enter_context(_drafted(side)) for side in sides])


@contextmanager
def _drafted(path: Path) -> Iterator[IO[str]]:
    """A draft beside the file, which takes its place when all is written."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(draft, "w", encoding="utf-8", newline="\n") as file:
            yield file
        os.replace(draft, path)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)
