"""`triform tag`"""

from typing import Any

import click

from triform.cli import asking


@click.command()
@click.argument("model")
@asking.options
@asking.url_option
def tag(model: str, url: str | None, **given: Any) -> None:
    """The entities in a text: their kind, where they stand, and the text there.

    \b
    Examples:
      triform tag models/wnut17 "Empire State Building = ESB."
      triform tag models/wnut17 --file tweets.txt --json --out entities.jsonl
      triform tag models/wnut17 --file report.txt --whole
    """
    asking.answer(asking.Ask(**given), asking.runner("tag", model, url=url), about={"model": model, "url": url})
