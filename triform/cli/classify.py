"""`triform classify`"""

from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from triform.cli import asking
from triform.data import rows

if TYPE_CHECKING:
    from triform.tasks.classify import Classified

BAR = 30


@click.command()
@click.argument("model")
@asking.options(rows.Text)
@asking.url_option
@click.option("--top", default=5, show_default=True, type=click.IntRange(min=1), help="How many labels to tell.")
def classify(model: str, top: int, url: str | None, **given: Any) -> None:
    """What a text is: the labels MODEL gives it, with their probabilities.

    \b
    Examples:
      triform classify models/sst2 "A stirring, funny film."
      triform classify models/sst2 --file reviews.txt --json --out labels.jsonl
      cut -f1 test.tsv | triform classify models/sst2
    """
    asking.answer(
        asking.Ask(**given),
        asking.runner("classify", model, url=url, top=top),
        about={"model": model, "top": top, "url": url},
        show=show,
    )


def show(answer: "Classified") -> None:
    table = Table("label", "probability", "", box=None, show_header=False)
    for one in answer.chances:
        table.add_row(Text(one.label), f"{one.probability:.1%}", "█" * round(BAR * one.probability))
    Console().print(table)
