"""`triform tag`"""

from pathlib import Path
from typing import Any

import click

from triform.cli import task_io
from triform.data import rows
from triform.data.columns import Layout


@click.command()
@click.argument("model")
@task_io.options(rows.Text, rows.Tagged)
@task_io.url_option
def tag(model: str, url: str | None, **given: Any) -> None:
    """The entities in a text: their kind, where they stand, and the text there.

    \b
    Examples:
      triform tag models/wnut17 "Empire State Building = ESB."
      triform tag models/wnut17 --file tweets.txt --json --out entities.jsonl
      triform tag models/wnut17 --file report.txt --whole
      triform tag models/wnut17 --file test.conll --json
    """
    ask = task_io.Ask(**given)
    words = ask.file is not None and holds_tokens(Path(ask.file), ask.layout)
    task_io.answer(
        ask,
        task_io.runner("tag", model, url=url),
        about={"model": model, "url": url},
        kind=rows.Tagged if words else rows.Text,
        of_row=lambda row: row.texts[0],
    )


def holds_tokens(path: Path, layout: Layout) -> bool:
    """One token per line, not one text: by the columns or the format that was named, by the ending, else by content."""
    from triform.data.detect_format import sniff_key
    from triform.data.formats import ending, formats_of

    if "text" in layout.columns or {"tokens", "tags"} & layout.columns.keys():
        return "text" not in layout.columns
    if layout.format is not None:
        return layout.format == "conll"
    texts, tokens = formats_of(rows.Text), formats_of(rows.Tagged)
    if ending(path) in texts or ending(path) in tokens:
        return ending(path) in tokens.keys() - texts.keys()
    return path.is_file() and sniff_key(path) == "conll"
