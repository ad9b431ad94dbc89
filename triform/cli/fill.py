"""`triform fill`"""

import click
import msgspec
from rich.console import Console
from rich.table import Table

from triform.cli.complete import given
from triform.cli.models import open_model


@click.command()
@click.argument("model")
@click.argument("text", required=False)
@click.option("-k", "--candidates", default=5, show_default=True, help="How many candidates for each mask.")
@click.option("--json", "as_json", is_flag=True, help="For machines: candidates with their probabilities.")
def fill(model: str, text: str | None, candidates: int, as_json: bool) -> None:
    """The words MODEL, a masked language model, would put where TEXT has a mask.

    \b
    Examples:
      triform fill models/bert "The [MASK] sat on the mat."
      echo "Paris is the [MASK] of France." | triform fill models/bert --json
    """
    from triform.tasks.fill import fill as filled

    answer = filled(open_model(model), given(text), k=candidates)
    if as_json:
        click.echo(msgspec.json.encode(answer).decode())
        return
    table = Table("mask", "candidates", title=answer.text)
    for number, row in enumerate(answer.masks, start=1):
        table.add_row(str(number), "  ".join(f"{one.text} {one.probability:.1%}" for one in row))
    Console().print(table)
