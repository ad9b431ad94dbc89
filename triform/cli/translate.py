"""`triform translate`"""

from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from triform.cli import task_io
from triform.cli.complete import asked
from triform.data import rows

if TYPE_CHECKING:
    from triform.tasks.translate import Translated


@click.command()
@click.argument("model")
@task_io.options(rows.Text)
@task_io.url_option
@click.option("--beams", type=click.IntRange(min=1), help="Beam search of this width; default: as the model says.")
@click.option(
    "--max-tokens", type=click.IntRange(min=1), help="The most tokens of a translation; default: as the model says."
)
@click.option("--pair", help="Of a model that translates several pairs (T5), which one: en-de.")
@click.option("--alignment", is_flag=True, help="Which words each word came from, by cross-attention.")
def translate(
    model: str,
    beams: int | None,
    max_tokens: int | None,
    pair: str | None,
    alignment: bool,
    url: str | None,
    **given: Any,
) -> None:
    """Translate with MODEL, which was trained to.

    \b
    Examples:
      triform translate demo/translates "The cat sat on a mat." --alignment
      triform translate models/t5-small "The cat sat on a mat." --pair en-de
      triform translate models/en-de --file test.en --beams 5 --out test.out.de
      zcat corpus.en.gz | triform translate models/en-de > corpus.de
    """
    wanted = asked(beams=beams, max_tokens=max_tokens, pair=pair)
    task_io.answer(
        task_io.Ask(**given),
        task_io.runner("translate", model, url=url, alignment=alignment, **wanted),
        about={"model": model, "alignment": alignment, "url": url} | wanted,
        show=show,
    )


def show(answer: "Translated") -> None:
    click.echo(answer.text)
    if answer.alignment is not None:
        Console().print(answer.alignment)
