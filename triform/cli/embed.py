"""`triform embed`"""

import os
from array import array
from pathlib import Path
from typing import Any

import click
import msgspec

from triform.cli import task_io
from triform.cli.task_command import add_flags, answer_questions, finish_command, take_options
from triform.errors import TriformError
from triform.files.locks import lock_beside
from triform.tasks import named

ENDING = ".safetensors"


class Line(msgspec.Struct, omit_defaults=True):
    """A vector as bytes, while not all of them are there; of a row that was skipped, none."""

    vector: bytes = b""
    unknown: int = 0
    cut: int = 0


def make_embed() -> click.Command:
    task = named("embed")

    @click.argument("model")
    @task_io.options(*task.input_rows)
    @task_io.url_option
    @add_flags(task)
    def command(model: str, url: str | None, **given: Any) -> None:
        chosen = take_options(task, given)
        run, about = task_io.runner("embed", model, url=url, chosen=chosen), {"model": model, "url": url} | chosen
        out: str | None = given["out"]
        if out is None or not out.endswith(ENDING):
            answer_questions(task, run, about=about, chosen=chosen, **given)
            return
        with lock_beside(Path(out)):
            if Path(out).exists():
                raise TriformError(f"{out} is already there; give another name, or remove it")
            lines = f"{out}.lines"
            ask = task_io.Ask(**given | {"out": lines, "as_json": True})
            task_io.answer(ask, lambda texts: map(packed, run(texts)), about=about)
            try:
                gather(Path(lines), Path(out))
            except OSError as error:
                raise TriformError(f"cannot write {out}: {error.strerror}; continue with --resume") from None

    return finish_command(task, command)


def packed(answer: Any) -> Line:
    return Line(array("f", answer.vector).tobytes(), answer.unknown, answer.cut)


def gather(lines: Path, out: Path) -> None:
    """The vectors of the lines as one file, written from front to back: they never stand in memory together."""
    with lines.open("rb") as file:
        count, width = 0, 0
        for line in file:
            count, width = count + 1, max(width, len(msgspec.json.decode(line, type=Line).vector) // 4)
    missing = b"\x00\x00\xc0\x7f" * width  # NaN
    entry = {"dtype": "F32", "shape": [count, width], "data_offsets": [0, 4 * width * count]}
    header = msgspec.json.encode({"vectors": entry})
    header += b" " * (-len(header) % 8)
    part = out.with_name(f"{out.name}.part")
    with lines.open("rb") as file, part.open("wb") as target:
        target.write(len(header).to_bytes(8, "little") + header)
        for line in file:
            target.write(msgspec.json.decode(line, type=Line).vector or missing)
        target.flush()
        os.fsync(target.fileno())
    os.replace(part, out)
    lines.unlink()
    click.echo(f"{count:,} vectors of {width} numbers: {out}", err=True)


embed = make_embed()
