"""`triform classify`"""

from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from triform.cli import task_io
from triform.data import rows

if TYPE_CHECKING:
    from triform.tasks.classify import Classified

BAR = 30
SHOWN = 5  # labels


@click.command()
@click.argument("model")
@task_io.options(rows.Text)
@task_io.url_option
@click.option(
    "--top", type=click.IntRange(min=1), help=f"How many labels to tell; default: {SHOWN} of one text, else 1."
)
def classify(model: str, top: int | None, url: str | None, **given: Any) -> None:
    """What a text is: the labels MODEL gives it, with their probabilities; of a regression head, its number.

    \b
    Examples:
      triform classify models/sst2 "A stirring, funny film."
      triform classify models/sst2 --file reviews.txt --json --out labels.jsonl
      triform classify models/sst2 --file reviews.csv --top 3 --out labels.csv
      cut -f1 test.tsv | triform classify models/sst2
    """
    task_io.answer(
        task_io.Ask(**given),
        task_io.runner("classify", model, url=url, top=top or SHOWN),
        about={"model": model, "top": top, "url": url},
        show=show,
        line=str if top is None else likeliest,
        columns=lambda answer: answer.columns(top=top or 1),
    )


def likeliest(answer: "Classified") -> str:
    return ", ".join(f"{one.label} {one.probability:.1%}" for one in answer.chances)


def show(answer: "Classified") -> None:
    if answer.number is not None:
        click.echo(answer)
        return
    table = Table("label", "probability", "", box=None, show_header=False)
    for one in answer.chances:
        table.add_row(Text(one.label), f"{one.probability:.1%}", "█" * round(BAR * one.probability))
    Console().print(table)
