"""`triform tag`"""

from pathlib import Path
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
      triform tag models/wnut17 --file test.conll --json
    """
    from triform.data.formats import ending, formats_of
    from triform.data.rows import Tagged, Text

    ask = asking.Ask(**given)
    words = ask.file is not None and ending(Path(ask.file)) in formats_of(Tagged).keys() - formats_of(Text).keys()
    asking.answer(
        ask,
        asking.runner("tag", model, url=url),
        about={"model": model, "url": url},
        kind=Tagged if words else Text,
        of_row=lambda row: row.texts[0],
    )
