"""`triform run`"""

from typing import Any

import click

from triform.cli import asking
from triform.cli.models import open_model


@click.command()
@click.argument("model")
@asking.options
def run(model: str, **given: Any) -> None:
    """Do with a text whatever MODEL was trained for; its folder remembers.

    \b
    Examples:
      triform run models/demo/translates "Two lions slept under a tree."
      triform run models/sst2 --file reviews.txt --json --out labels.jsonl
    """
    from triform.tasks.choice import own_task, question_of

    loaded = open_model(model).loaded
    task = own_task(loaded)
    asking.answer(
        asking.Ask(**given),
        lambda texts: task.run(texts, model=loaded),
        about={"model": model, "task": task.name},
        of_row=lambda row: question_of(task, row.text),
        of_text=lambda text: question_of(task, text),
    )
