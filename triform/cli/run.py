"""`triform run`"""

from typing import Any

import click

from triform.cli import task_io
from triform.cli.answer import ask_about
from triform.cli.models import open_model
from triform.data import rows


@click.command()
@click.argument("model")
@task_io.options(rows.Text, rows.Asking)
@task_io.url_option
@click.option("--context", help="Of a model that answers questions: the file with the text they are about.")
def run(model: str, url: str | None, context: str | None, **given: Any) -> None:
    """Do with a text whatever MODEL was trained for; its folder remembers.

    \b
    Examples:
      triform run demo/translates "Two lions slept under a tree."
      triform run models/sst2 --file reviews.txt --json --out labels.jsonl
      triform run models/xquad "Who led in sacks?" --context panthers.txt
    """
    from triform.errors import TriformError
    from triform.tasks import named
    from triform.tasks.task_of_model import question_of

    name, run_task = here(model) if url is None else there(model, url)
    task, ask, about = named(name), task_io.Ask(**given), {"model": model, "task": name, "url": url}
    if name == "answer":
        ask_about(context, ask, run_task, about=about | {"context": context})
        return
    if context is not None:
        raise TriformError(f"this model was made to {name}: it takes no --context; leave it out")
    task_io.answer(
        ask,
        run_task,
        about=about,
        of_row=lambda row: question_of(task, row.text),
        of_text=lambda text: question_of(task, text),
    )


def here(model: str) -> tuple[str, task_io.Run]:
    """The task a model is for, and how it is asked."""
    from triform.tasks.task_of_model import own_task

    loaded = open_model(model)
    task = own_task(loaded)
    return task.name, lambda asked: task.run(asked, model=loaded)


def there(model: str, url: str) -> tuple[str, task_io.Run]:
    """The same of a model that a service has. What it writes on is as long as here, not as that service likes it."""
    from triform.generate.settings import Settings
    from triform.serve.client import Client

    task = Client(url).own_task(model)
    settings = {"max_tokens": Settings().max_tokens} if task in ("complete", "chat") else {}
    return task, task_io.runner(task, model, url=url, **settings)
