"""`triform embed`"""

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from triform.cli import task_io
from triform.data import rows
from triform.errors import TriformError
from triform.files.atomic_file import replace_file
from triform.files.locks import lock_beside
from triform.files.safetensors_header import Outgoing, write_safetensors

ENDING = ".safetensors"


class Line(msgspec.Struct, omit_defaults=True):
    """A vector as bytes, while not all of them are there; of a row that was skipped, none."""

    vector: bytes = b""
    unknown: int = 0
    cut: int = 0


@click.command()
@click.argument("model")
@task_io.options(rows.Text)
@task_io.url_option
@click.option("--windows", is_flag=True, help="Read long texts whole: the mean over windows. Default: their beginning.")
@click.option(
    "--role",
    type=click.Choice(["text", "query", "document"]),
    default="text",
    show_default=True,
    help="Which of the folder's prompts stands before each text.",
)
def embed(model: str, windows: bool, role: str, url: str | None, **given: Any) -> None:
    """Texts as vectors, as the model's makers make them: of a text longer than the model reads, the beginning counts.

    An --out that ends in .safetensors holds one tensor, `vectors`, a row for each text.

    A text that cannot be read is a row of NaN, so that row n stays the vector of text n.

    \b
    Examples:
      triform embed minilm "The fat ginger cat sat on a mat." --json
      triform embed minilm --file sentences.txt --out vectors.safetensors
    """
    if url is not None and (windows or role != "text"):
        raise TriformError("with --url there is no --windows or --role; leave them out")
    settings = {"windows": windows, "role": role} if url is None else {}
    ask, about = task_io.Ask(**given), {"model": model, "url": url} | settings
    if ask.out is None or not ask.out.endswith(ENDING):
        task_io.answer(ask, task_io.runner("embed", model, url=url, **settings), about=about)
        return
    with lock_beside(Path(ask.out)):
        if Path(ask.out).exists():
            raise TriformError(f"{ask.out} is already there; give another name, or remove it")
        lines = f"{ask.out}.lines"
        run = task_io.runner("embed", model, url=url, **settings)
        task_io.answer(ask._replace(out=lines, as_json=True), lambda texts: map(packed, run(texts)), about=about)
        try:
            gather(Path(lines), Path(ask.out))
        except OSError as error:
            raise TriformError(f"cannot write {ask.out}: {error.strerror}; go on with --resume") from None


def packed(answer: Any) -> Line:
    return Line(array("f", answer.vector).tobytes(), answer.unknown, answer.cut)


def gather(lines: Path, out: Path) -> None:
    """The vectors of the lines as one file, written from front to back: they never stand in memory together."""

    def vectors() -> Iterator[bytes]:
        with lines.open("rb") as file:
            for line in file:
                yield msgspec.json.decode(line, type=Line).vector

    count, width = 0, 0
    for vector in vectors():
        count, width = count + 1, max(width, len(vector) // 4)
    missing = b"\x00\x00\xc0\x7f" * width  # NaN
    tensor = Outgoing("vectors", "F32", (count, width), lambda: (vector or missing for vector in vectors()))
    with replace_file(out) as file:
        write_safetensors(file, [tensor])
    lines.unlink()
    click.echo(f"{count:,} vectors of {width} numbers: {out}", err=True)
