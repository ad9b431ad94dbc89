"""`triform run`"""

from typing import Any

import click

from triform.cli import asking
from triform.cli.models import open_model


@click.command()
@click.argument("model")
@asking.options
@asking.url_option
def run(model: str, url: str | None, **given: Any) -> None:
    """Do with a text whatever MODEL was trained for; its folder remembers.

    \b
    Examples:
      triform run demo/translates "Two lions slept under a tree."
      triform run models/sst2 --file reviews.txt --json --out labels.jsonl
    """
    from triform.tasks import named
    from triform.tasks.choice import question_of

    name, run_task = here(model) if url is None else there(model, url)
    task = named(name)
    asking.answer(
        asking.Ask(**given),
        run_task,
        about={"model": model, "task": name, "url": url},
        of_row=lambda row: question_of(task, row.text),
        of_text=lambda text: question_of(task, text),
    )


def here(model: str) -> tuple[str, asking.Run]:
    """The task a model is for, and how it is asked."""
    from triform.tasks.choice import own_task

    loaded = open_model(model).loaded
    task = own_task(loaded)
    return task.name, lambda asked: task.run(asked, model=loaded)


def there(model: str, url: str) -> tuple[str, asking.Run]:
    """The same of a model that a service has. What it writes on is as long as here, not as that service likes it."""
    from triform.generate.settings import Settings
    from triform.serve.client import Client

    task = Client(url).own_task(model)
    settings = {"max_tokens": Settings().max_tokens} if task in ("complete", "chat") else {}
    return task, asking.runner(task, model, url=url, **settings)
