"""`triform summarize`"""

from typing import Any

import click

from triform.cli import task_io
from triform.cli.complete import asked
from triform.data import rows


@click.command()
@click.argument("model")
@task_io.options(rows.Text)
@task_io.url_option
@click.option("--beams", type=click.IntRange(min=1), help="Beam search of this width; default: as the model says.")
@click.option(
    "--max-tokens", type=click.IntRange(min=1), help="The most tokens of a summary; default: as the model says."
)
def summarize(model: str, beams: int | None, max_tokens: int | None, url: str | None, **given: Any) -> None:
    """Say in a sentence or two what a text says, with MODEL, which was trained to.

    \b
    Examples:
      triform summarize models/scitldr --whole --file article.txt
      triform summarize models/scitldr --file papers.jsonl --column abstract
      triform summarize models/scitldr --file papers.txt --beams 4 --out short.txt
    """
    wanted = asked(beams=beams, max_tokens=max_tokens)
    task_io.answer(
        task_io.Ask(**given),
        task_io.runner("summarize", model, url=url, **wanted),
        about={"model": model, "url": url} | wanted,
    )
