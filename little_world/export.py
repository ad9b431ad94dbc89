"""Rows of the little world as files: the extension sets the format; a file is written atomically."""

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from little_world.grammar_engine import Split
from little_world.rows import TASKS, Label, Row, Task, rows
from triform.errors import TriformError
from triform.files.atomic_file import replace_file


class ExportError(TriformError):
    """A file that cannot be written."""


def write_rows(task: Task, path: str | Path, *, split: Split, seed: int, count: int, label: Label = "topic") -> None:
    """`count` rows of a task into a file; `train.en-de` stands for the two files train.en and train.de."""
    made = rows(task, split=split, seed=seed, count=count, label=label)
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in _FORMATS or task not in _FORMATS[ending].tasks:
        fitting = " or ".join(name for name, form in _FORMATS.items() if task in form.tasks)
        raise ExportError(f"{path} is not a format for {task}; use the extension {fitting}")
    files = [path.with_suffix(".en"), path.with_suffix(".de")] if ending == ".en-de" else [path]
    with ExitStack() as stack:
        _FORMATS[ending].write(made, *(stack.enter_context(_open_draft(file)) for file in files))


@contextmanager
def _open_draft(path: Path) -> Iterator[IO[str]]:
    """A temporary file that replaces `path` when it is complete."""
    try:
        with replace_file(path) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
            yield text
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error.strerror or error}") from error


# --- formats --------------------------------------------------------------------------------------------------------


def _write_json_lines(made: Iterator[Row], file: IO[str]) -> None:
    for row in made:
        file.write(_to_json(row) + "\n")


def _write_lines(made: Iterator[Row], file: IO[str]) -> None:
    for row in made:
        file.write(row["text"] + "\n")


def _write_table(made: Iterator[Row], file: IO[str], *, delimiter: str) -> None:
    table = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    for number, row in enumerate(made):
        if number == 0:
            table.writerow(row)
        table.writerow(row.values())


def _write_parallel(made: Iterator[Row], source: IO[str], target: IO[str]) -> None:
    for row in made:
        source.write(row["source"] + "\n")
        target.write(row["target"] + "\n")


def _write_conll(made: Iterator[Row], file: IO[str]) -> None:
    for row in made:
        file.writelines(f"{token} {tag}\n" for token, tag in zip(row["tokens"], row["tags"], strict=True))
        file.write("\n")


def _write_squad(made: Iterator[Row], file: IO[str]) -> None:
    """One paragraph per question."""
    file.write('{"version": "1.1", "data": [{"title": "The little world", "paragraphs": [')
    for number, row in enumerate(made):
        texts, starts = row["answers"]["text"], row["answers"]["answer_start"]
        answers = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
        question = {"id": str(number), "question": row["question"], "answers": answers}
        file.write(("," if number else "") + "\n" + _to_json({"context": row["context"], "qas": [question]}))
    file.write("\n]}]}\n")


def _to_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


class FileFormat(NamedTuple):
    tasks: tuple[Task, ...]
    write: Callable[..., None]


_FLAT: tuple[Task, ...] = ("complete", "fill", "translate", "summarize", "classify", "embed", "search")
_FORMATS = {
    ".jsonl": FileFormat(TASKS, _write_json_lines),
    ".csv": FileFormat(_FLAT, partial(_write_table, delimiter=",")),
    ".tsv": FileFormat(_FLAT, partial(_write_table, delimiter="\t")),
    ".txt": FileFormat(("complete", "fill"), _write_lines),
    ".en-de": FileFormat(("translate",), _write_parallel),
    ".conll": FileFormat(("tag",), _write_conll),
    ".json": FileFormat(("answer",), _write_squad),
}
