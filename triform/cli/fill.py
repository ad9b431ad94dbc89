"""`triform fill`"""

from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from triform.cli import task_io
from triform.data import rows

if TYPE_CHECKING:
    from triform.tasks.fill import Filled

SHOWN = 5  # candidates


@click.command()
@click.argument("model")
@task_io.options(rows.Text)
@task_io.url_option
@click.option(
    "-k",
    "--candidates",
    type=click.IntRange(min=1),
    help=f"How many per mask; default: {SHOWN} of one text, of several each text with its masks filled.",
)
def fill(model: str, candidates: int | None, url: str | None, **given: Any) -> None:
    """The words MODEL, a masked language model, would put where TEXT has a mask.

    \b
    Examples:
      triform fill models/bert "The [MASK] sat on the mat."
      echo "Paris is the [MASK] of France." | triform fill models/bert --json
    """
    task_io.answer(
        task_io.Ask(**given),
        task_io.runner("fill", model, url=url, k=candidates or SHOWN),
        about={"model": model, "candidates": candidates, "url": url},
        show=show,
        line=str if candidates is None else candidates_of,
    )


def candidates_of(answer: "Filled") -> str:
    """For each mask its candidates."""
    return " | ".join(", ".join(f"{one.text} {one.probability:.1%}" for one in row) for row in answer.masks)


def show(answer: "Filled") -> None:
    table = Table("mask", "candidates", title=Text(answer.text))
    for number, row in enumerate(answer.masks, start=1):
        table.add_row(str(number), Text("  ".join(f"{one.text} {one.probability:.1%}" for one in row)))
    Console().print(table)
