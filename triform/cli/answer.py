"""`triform answer`"""

from typing import Any

import click

from triform.cli import task_io
from triform.data import rows


@click.command()
@click.argument("model")
@task_io.options(rows.Text, rows.Asking)
@task_io.url_option
@click.option("--context", help="The file with the text that the questions are about.")
def answer(model: str, context: str | None, url: str | None, **given: Any) -> None:
    """Answer questions about a text. Without --context, a file of questions must bring theirs, as SQuAD's do.

    \b
    Examples:
      triform answer models/xquad "Who led in sacks?" --context panthers.txt
      triform answer models/xquad --file questions.txt --context panthers.txt
      triform answer models/xquad --file squad.json --json --out answers.jsonl
    """
    about = {"model": model, "context": context, "url": url}
    ask_about(context, task_io.Ask(**given), task_io.runner("answer", model, url=url), about=about)


def ask_about(context: str | None, ask: task_io.Ask, run: task_io.Run, *, about: dict[str, Any]) -> None:
    """Questions about the text in a file; without one, about the texts that stand beside them."""
    from triform.cli.input_rows import whole_text
    from triform.errors import TriformError
    from triform.tasks.answer_spans import Asked

    if context is None and (ask.texts or ask.file is None):
        raise TriformError("a question needs a text to answer it from: --context FILE, or --file with both")
    known = whole_text(context) if context is not None else ""
    old, new = ("text", "question") if context is None else ("question", "text")
    task_io.answer(
        ask._replace(layout=ask.layout.rename_field(old, new)),
        run,
        about=about,
        kind=rows.Asking if context is None else rows.Text,
        of_row=lambda row: Asked(row.question, row.context) if context is None else Asked(row.text, known),
        of_text=lambda text: Asked(text, known),
    )
