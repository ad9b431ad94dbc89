"""`triform activations`"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triform.cli import input_rows, progress
from triform.cli.layout_options import layout_options
from triform.cli.models import open_model
from triform.cli.run_identity import hash_input, identify_model
from triform.data.columns import Layout
from triform.data.rows import BadRow, TextRow
from triform.errors import TriformError

if TYPE_CHECKING:
    from triform.inspect.activations import Pooled


@click.command()
@click.argument("model")
@click.option("--file", "-f", "file", required=True, help="Texts: lines, JSONL, CSV, TSV, JSON, Parquet; also .gz.")
@click.option(
    "--at", "where", required=True, help="A module path (decoder.blocks.3), or in short L3, L3.feedforward, L3H2."
)
@click.option("--position", default="-1", show_default=True, help="A number (-1: the last token), mean or all.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="A .safetensors file, written as it grows.")
@click.option("--resume", is_flag=True, help="Continue an --out that was interrupted.")
@click.option("--targets", help="Of an encoder-decoder: a file of target texts, one line per text.")
@layout_options(TextRow)
def activations(
    model: str, file: str, where: str, position: str, out: Path, resume: bool, targets: str | None, layout: Layout
) -> None:
    """Write what MODEL computes at one place for every text of a file: one row per text, in the file's order.

    A text that cannot be read is a row of NaN (with --position all: no row). Read the file with
    triform.load_activations, safetensors or numpy; learn from it with triform probe.

    \b
    Examples:
      triform activations minilm --file texts.txt --at encoder.blocks.3 --out acts.safetensors
      triform activations smollm2 --file texts.jsonl --at L12 --position mean --out acts.safetensors
      triform activations smollm2 --file texts.txt --at L5H2 --position all --out acts.safetensors --resume
    """
    from triform.inspect.activations import collect_activations

    path, skipped = Path(file), Counter[str]()
    loaded = open_model(model)
    total = lambda: input_rows.count_rows(path, kind=TextRow, layout=layout)  # noqa: E731
    try:
        with progress.counting("texts", total=total) as counted:
            found = collect_activations(
                loaded,
                iterate_texts(path, layout, skipped),
                where,
                position=parse_position(position),
                targets=None if targets is None else iterate_targets(Path(targets)),
                out=out,
                resume=resume,
                about=identify_model(loaded) | {"input": hash_input(file), "targets": hash_input(targets)},
                progress=counted.advance,
            )
    except KeyboardInterrupt:
        click.echo(f"{out}.part has the rows so far; continue with --resume", err=True)
        raise
    click.echo(f"{found}: {out}", err=True)
    if skipped:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in skipped.most_common())
        click.echo(f"rows that could not be read: {kinds}", err=True)


def parse_position(text: str) -> "Pooled":
    """`-1`, `mean` or `all`"""
    if text in ("mean", "all"):
        return text  # type: ignore[return-value]
    try:
        return int(text)
    except ValueError:
        raise TriformError(f"--position {text} is unknown; use a number (-1 is the last token), mean or all") from None


def iterate_texts(path: Path, layout: Layout, skipped: Counter[str]) -> Iterator[str | None]:
    """The texts of a file; None for a row that cannot be read."""
    for row in input_rows.read_file_rows(path, kind=TextRow, layout=layout):
        if isinstance(row, BadRow) or not row.row.text.strip():
            skipped[row.kind if isinstance(row, BadRow) else "empty"] += 1
            yield None
        else:
            yield row.row.text


def iterate_targets(path: Path) -> Iterator[str]:
    for row in input_rows.read_file_rows(path, kind=TextRow, layout=Layout()):
        yield "" if isinstance(row, BadRow) else row.row.text
