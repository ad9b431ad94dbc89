"""Rows of the little world as files, in the format that the name of the file asks for; whole, or not at all.

Refuses to know where rows come from.
"""

import csv
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from little_world.grammar_engine import Split
from little_world.rows import TASKS, Label, Row, Task, rows
from triform.data.line_reader import DataError


def write(task: Task, path: str | Path, *, split: Split, seed: int, count: int, label: Label = "topic") -> None:
    """`count` rows of a task into a file; `train.en-de` stands for the two files train.en and train.de."""
    made = rows(task, split=split, seed=seed, count=count, label=label)
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in _FORMATS or task not in _FORMATS[ending].tasks:
        fitting = " or ".join(name for name, form in _FORMATS.items() if task in form.tasks)
        raise DataError(f"{path} is no file for {task}; let its name end in {fitting}")
    files = [path.with_suffix(".en"), path.with_suffix(".de")] if ending == ".en-de" else [path]
    with ExitStack() as stack:
        _FORMATS[ending].write(made, *(stack.enter_context(_drafted(file)) for file in files))


@contextmanager
def _drafted(path: Path) -> Iterator[IO[str]]:
    """A draft beside the file, which takes the file's place when all is written."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(draft, "w", encoding="utf-8", newline="") as file:
            yield file
        os.replace(draft, path)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)


# --- formats --------------------------------------------------------------------------------------------------------


def _json_lines(made: Iterator[Row], file: IO[str]) -> None:
    for row in made:
        file.write(_json(row) + "\n")


def _text_lines(made: Iterator[Row], file: IO[str]) -> None:
    for row in made:
        file.write(row["text"] + "\n")


def _commas(made: Iterator[Row], file: IO[str]) -> None:
    _table(made, file, delimiter=",")


def _tabs(made: Iterator[Row], file: IO[str]) -> None:
    _table(made, file, delimiter="\t")


def _table(made: Iterator[Row], file: IO[str], *, delimiter: str) -> None:
    table = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    for number, row in enumerate(made):
        if number == 0:
            table.writerow(row)
        table.writerow(row.values())


def _parallel(made: Iterator[Row], source: IO[str], target: IO[str]) -> None:
    for row in made:
        source.write(row["source"] + "\n")
        target.write(row["target"] + "\n")


def _conll(made: Iterator[Row], file: IO[str]) -> None:
    for row in made:
        file.writelines(f"{token} {tag}\n" for token, tag in zip(row["tokens"], row["tags"], strict=True))
        file.write("\n")


def _squad(made: Iterator[Row], file: IO[str]) -> None:
    """A paragraph a question, written one by one."""
    file.write('{"version": "1.1", "data": [{"title": "The little world", "paragraphs": [')
    for number, row in enumerate(made):
        texts, starts = row["answers"]["text"], row["answers"]["answer_start"]
        answers = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
        asked = {"id": str(number), "question": row["question"], "answers": answers}
        file.write(("," if number else "") + "\n" + _json({"context": row["context"], "qas": [asked]}))
    file.write("\n]}]}\n")


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


class Format(NamedTuple):
    tasks: tuple[Task, ...]
    write: Callable[..., None]


_FLAT: tuple[Task, ...] = ("complete", "fill", "translate", "summarize", "classify", "embed", "search")
_FORMATS = {
    ".jsonl": Format(TASKS, _json_lines),
    ".csv": Format(_FLAT, _commas),
    ".tsv": Format(_FLAT, _tabs),
    ".txt": Format(("complete", "fill"), _text_lines),
    ".en-de": Format(("translate",), _parallel),
    ".conll": Format(("tag",), _conll),
    ".json": Format(("answer",), _squad),
}
