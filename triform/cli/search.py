"""`triform search`"""

from typing import Any

import click

from triform.cli import task_io
from triform.cli.models import open_model
from triform.cli.task_command import add_flags, answer_questions, finish_command, take_options
from triform.data import rows
from triform.errors import TriformError
from triform.tasks import named

MODEL_HELP = "The model the index was made with, if it has moved."


def make_search() -> click.Command:
    task = named("search")

    @click.argument("index")
    @task_io.options(rows.Text)
    @task_io.url_option
    @add_flags(task, k=5)
    @click.option("--model", help=MODEL_HELP)
    def command(index: str, model: str | None, url: str | None, **given: Any) -> None:
        chosen = take_options(task, given)
        run = run_here(index, model, chosen) if url is None else run_there(index, model, chosen, url=url)
        answer_questions(task, run, about={"index": index, "url": url} | chosen, chosen=chosen, **given)

    return finish_command(task, command)


def run_here(index: str, model: str | None, chosen: dict[str, Any]) -> task_io.Run:
    from triform.tasks.vector_index import check_model, read

    task, found = named("search"), read(index)
    loaded = open_model(model or found.note.model)
    check_model(found, loaded, place=index)
    options = task.options(index=found, **chosen)
    return lambda texts: task.run(texts, model=loaded, options=options)


def run_there(index: str, model: str | None, chosen: dict[str, Any], *, url: str) -> task_io.Run:
    if model is None:
        raise TriformError("with --url, --model names the model of the service that INDEX was made with")
    from triform.serve.client import Client

    client = Client(url)
    return lambda texts: client.run("search", texts, model=model, extra={"index": index}, **chosen)


search = make_search()
