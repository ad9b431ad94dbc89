"""`triform fill`"""

from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from triform.cli import asking
from triform.data import rows

if TYPE_CHECKING:
    from triform.tasks.fill import Filled


@click.command()
@click.argument("model")
@asking.options(rows.Text)
@asking.url_option
@click.option(
    "-k", "--candidates", default=5, show_default=True, type=click.IntRange(min=1), help="How many for each mask."
)
def fill(model: str, candidates: int, url: str | None, **given: Any) -> None:
    """The words MODEL, a masked language model, would put where TEXT has a mask.

    \b
    Examples:
      triform fill models/bert "The [MASK] sat on the mat."
      echo "Paris is the [MASK] of France." | triform fill models/bert --json
    """
    asking.answer(
        asking.Ask(**given),
        asking.runner("fill", model, url=url, k=candidates),
        about={"model": model, "candidates": candidates, "url": url},
        show=show,
    )


def show(answer: "Filled") -> None:
    table = Table("mask", "candidates", title=Text(answer.text))
    for number, row in enumerate(answer.masks, start=1):
        table.add_row(str(number), Text("  ".join(f"{one.text} {one.probability:.1%}" for one in row)))
    Console().print(table)
