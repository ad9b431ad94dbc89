"""`triform embed`"""

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from triform.cli import task_io
from triform.cli.run_identity import ModelRun
from triform.cli.task_command import add_flags, answer_questions, finish_command, take_options
from triform.errors import TriformError
from triform.files.atomic_file import replace_file
from triform.files.locks import lock_beside
from triform.files.safetensors_header import OutgoingTensor, write_safetensors
from triform.tasks import get_task

ENDING = ".safetensors"


class VectorLine(msgspec.Struct, omit_defaults=True):
    """A vector as bytes, while not all of them are there; of a row that was skipped, none."""

    vector: bytes = b""
    unknown: int = 0
    cut: int = 0


def make_embed() -> click.Command:
    """`triform embed`"""
    task = get_task("embed")

    @click.argument("model")
    @task_io.add_input_options(*task.input_rows)
    @task_io.add_url_option
    @add_flags(task)
    def command(model: str, url: str | None, **given: Any) -> None:
        chosen = take_options(task, given)
        run = task_io.make_runner("embed", model, url=url, chosen=chosen)
        out: str | None = given["out"]
        if out is None or not out.endswith(ENDING):
            answer_questions(task, run, about=chosen, chosen=chosen, **given)
            return
        if given["shard"] is not None:
            raise TriformError(f"{out}: vectors in one file are not merged; give --shard an --out that ends in .jsonl")
        with lock_beside(Path(out)):
            if Path(out).exists():
                raise TriformError(f"{out} is already there; give another name, or remove it")
            lines = f"{out}.lines"
            ask = task_io.CommandInput(**given | {"out": lines, "as_json": True})
            packed = ModelRun(lambda texts: map(pack_vector, run(texts)), identify=run.identify)
            task_io.answer_input(ask, packed, about=chosen)
            try:
                gather_vectors(Path(lines), Path(out))
            except OSError as error:
                raise TriformError(f"cannot write {out}: {error.strerror}; continue with --resume") from None

    return finish_command(task, command)


def pack_vector(answer: Any) -> VectorLine:
    return VectorLine(array("f", answer.vector).tobytes(), answer.unknown, answer.cut)


def gather_vectors(lines: Path, out: Path) -> None:
    """The vectors of the lines as one file, written from front to back: they never stand in memory together."""

    def vectors() -> Iterator[bytes]:
        with lines.open("rb") as file:
            for line in file:
                yield msgspec.json.decode(line, type=VectorLine).vector

    count, width = 0, 0
    for vector in vectors():
        count, width = count + 1, max(width, len(vector) // 4)
    missing = b"\x00\x00\xc0\x7f" * width  # NaN
    tensor = OutgoingTensor("vectors", "F32", (count, width), lambda: (vector or missing for vector in vectors()))
    with replace_file(out) as file:
        write_safetensors(file, [tensor])
    lines.unlink()
    click.echo(f"{count:,} vectors of {width} numbers: {out}", err=True)


embed = make_embed()
