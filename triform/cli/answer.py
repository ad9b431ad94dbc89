"""`triform answer`"""

from typing import Any

import click

from triform.cli import asking


@click.command()
@click.argument("model")
@asking.options
@asking.url_option
@click.option("--context", help="The file with the text that the questions are about.")
def answer(model: str, context: str | None, url: str | None, **given: Any) -> None:
    """Answer questions about a text. Without --context, a file of questions must bring theirs, as SQuAD's do.

    \b
    Examples:
      triform answer models/xquad "Who led in sacks?" --context panthers.txt
      triform answer models/xquad --file questions.txt --context panthers.txt
      triform answer models/xquad --file squad.json --json --out answers.jsonl
    """
    from triform.cli.questions import whole_text
    from triform.data.rows import Question, Text
    from triform.errors import TriformError
    from triform.tasks.spans import Asked

    ask = asking.Ask(**given)
    if context is None and (ask.texts or ask.file is None):
        raise TriformError("a question needs a text to answer it from: --context FILE, or --file with both")
    known = whole_text(context) if context is not None else ""
    asking.answer(
        ask,
        asking.runner("answer", model, url=url),
        about={"model": model, "context": context, "url": url},
        kind=Question if context is None else Text,
        of_row=lambda row: Asked(row.question, row.context) if context is None else Asked(row.text, known),
        of_text=lambda text: Asked(text, known),
    )
