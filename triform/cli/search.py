"""`triform search`"""

from typing import Any

import click

from triform.cli import task_io
from triform.cli.index_store import identify_index, read_stored_index, store_option
from triform.cli.models import open_model
from triform.cli.run_identity import ModelRun, identify_model
from triform.cli.task_command import add_flags, answer_questions, finish_command, take_options
from triform.data import rows
from triform.errors import TriformError
from triform.tasks import get_task

MODEL_HELP = "The model the index was made with, if it has moved."


def make_search() -> click.Command:
    """`triform search`"""
    task = get_task("search")

    @click.argument("index")
    @task_io.add_input_options(rows.TextRow)
    @task_io.add_url_option
    @add_flags(task, k=5)
    @store_option
    @click.option("--model", help=MODEL_HELP)
    @click.option("--rerank", "reranker", metavar="MODEL", help="Order the best passages again with this model.")
    def command(
        index: str, store: str | None, model: str | None, reranker: str | None, url: str | None, **given: Any
    ) -> None:
        chosen = take_options(task, given)
        if url is None:
            run = run_here(index, store, model, reranker, chosen)
        elif reranker is not None:
            raise TriformError(
                "--rerank is for a search on this machine; with --url, rerank what was found: /v1/rerank"
            )
        else:
            run = run_there(index, model, chosen, url=url)
        answer_questions(task, run, about=chosen, chosen=chosen, **given)

    return finish_command(task, command)


def run_here(
    index: str, store: str | None, model: str | None, reranker: str | None, chosen: dict[str, Any]
) -> ModelRun:
    """Searches on this machine, with the index and its models in memory."""
    from triform.tasks.vector_index import check_model

    task, found = get_task("search"), read_stored_index(index, store)
    loaded = open_model(model or found.note.model)
    check_model(found, loaded, place=index)
    orderer = None if reranker is None else open_model(reranker)
    options = task.options(index=found, reranker=orderer, **chosen)

    def identify() -> dict[str, Any]:
        rerank = None if orderer is None else identify_model(orderer)
        return identify_model(loaded) | {"index": identify_index(index, store), "rerank": rerank}

    return ModelRun(lambda texts: task.run(texts, model=loaded, options=options), identify=identify)


def run_there(index: str, model: str | None, chosen: dict[str, Any], *, url: str) -> ModelRun:
    """A function that searches an index of a running service."""
    if model is None:
        raise TriformError("with --url, --model names the model of the service that INDEX was made with")
    from triform.serve.client import Client

    client = Client(url)
    return ModelRun(
        lambda texts: client.run("search", texts, model=model, extra={"index": index}, **chosen),
        identify=lambda: {"model": model, "index": index, "url": url},
    )


search = make_search()
