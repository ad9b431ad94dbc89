"""`triform embed`"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from triform.cli import asking
from triform.cli.models import open_model
from triform.errors import TriformError

if TYPE_CHECKING:
    from triform.weights.folder import Loaded

ENDING = ".safetensors"


class Line(msgspec.Struct):
    """A vector as bytes, while not all of them are there; of a row that was skipped, none."""

    vector: bytes = b""


@click.command()
@click.argument("model")
@asking.options
@asking.url_option
def embed(model: str, url: str | None, **given: Any) -> None:
    """Texts as vectors. An --out that ends in .safetensors holds one tensor, `vectors`, a row for each text.

    A text that cannot be read is a row of NaN, so that row n stays the vector of text n.

    \b
    Examples:
      triform embed minilm "The fat ginger cat sat on a mat." --json
      triform embed minilm --file sentences.txt --out vectors.safetensors
    """
    ask, about = asking.Ask(**given), {"model": model, "url": url}
    if ask.out is None or not ask.out.endswith(ENDING):
        asking.answer(ask, asking.runner("embed", model, url=url), about=about)
        return
    if url is not None:
        raise TriformError(
            f"vectors from a service are written as lines of JSON; give --json and an --out without {ENDING}"
        )
    if Path(ask.out).exists():
        raise TriformError(f"{ask.out} is already there; give another name, or remove it")
    loaded = open_model(model).loaded
    lines = f"{ask.out}.jsonl"
    asking.answer(ask._replace(out=lines, as_json=True), vectors_of(loaded), about=about)
    gather(Path(lines), Path(ask.out), width=loaded.spec.width)


def vectors_of(loaded: "Loaded") -> "Callable[[Sequence[str]], Iterator[Line]]":
    from triform.tasks.embed import Embed

    return lambda texts: (
        Line(row.numpy().tobytes()) for row in Embed().vectors(texts, model=loaded).float().contiguous()
    )


def gather(lines: Path, out: Path, *, width: int) -> None:
    """The vectors of the lines as one file, written from front to back: they never stand in memory together."""
    missing = b"\x00\x00\xc0\x7f" * width  # NaN
    with lines.open("rb") as file:
        count = sum(1 for _ in file)
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
