"""`triform run`"""

from typing import Any

import click

from triform.cli import task_io
from triform.cli.models import open_model
from triform.cli.run_identity import ModelRun, identify_model
from triform.cli.task_command import answer_questions, is_about_context
from triform.data import rows
from triform.errors import TriformError
from triform.tasks import get_task


@click.command()
@click.argument("model")
@task_io.add_input_options(rows.TextRow, rows.QuestionRow)
@task_io.add_url_option
@click.option("--context", help="For a model that answers questions: the file with the text they are about.")
def run(model: str, url: str | None, context: str | None, **given: Any) -> None:
    """Run the task that MODEL was trained for, which its folder remembers.

    \b
    Examples:
      triform run demo/translates "Two lions slept under a tree."
      triform run models/sst2 --file reviews.txt --json --out labels.jsonl
      triform run models/xquad "Who led in sacks?" --context panthers.txt
    """
    name, run_task = run_here(model) if url is None else run_there(model, url)
    task = get_task(name)
    if context is not None and not is_about_context(task):
        raise TriformError(f"the task of this model is {name}: it takes no --context; leave it out")
    only_texts = not is_about_context(task)
    if only_texts:
        task.check_takes_texts()
    answer_questions(task, run_task, about={}, chosen={}, context=context, only_texts=only_texts, **given)


def run_here(model: str) -> tuple[str, ModelRun]:
    """The task of a model, and the function that runs it."""
    from triform.tasks.task_of_model import own_task

    loaded = open_model(model)
    task = own_task(loaded)
    return task.name, ModelRun(lambda asked: task.run(asked, model=loaded), identify=lambda: identify_model(loaded))


def run_there(model: str, url: str) -> tuple[str, ModelRun]:
    """The same for a model of a service; answers are as long as here, not as the service's default."""
    from triform.generate.settings import Settings
    from triform.serve.client import Client

    task = Client(url).get_task_of(model)
    chosen = {"max_tokens": Settings().max_tokens} if task in ("complete", "chat") else {}
    return task, task_io.make_runner(task, model, url=url, chosen=chosen)
