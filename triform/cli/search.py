"""`triform search`"""

from typing import TYPE_CHECKING, Any

import click

from triform.cli import task_io
from triform.cli.models import open_model
from triform.data import rows
from triform.errors import TriformError

if TYPE_CHECKING:
    from triform.tasks.search import Hits


@click.command()
@click.argument("index")
@task_io.options(rows.Text)
@task_io.url_option
@click.option("-k", default=5, show_default=True, type=click.IntRange(min=1), help="How many passages.")
@click.option("--model", help="The model the index was made with, where it stands elsewhere now.")
def search(index: str, k: int, model: str | None, url: str | None, **given: Any) -> None:
    """The passages of INDEX that are nearest to a query; make one with `triform index`.

    \b
    Examples:
      triform search docs.index "How do I save a model?"
      triform search docs.index --file queries.txt --json -k 10
    """
    task_io.answer(
        task_io.Ask(**given),
        here(index, k=k, model=model) if url is None else there(index, k=k, model=model, url=url),
        about={"index": index, "k": k, "url": url},
        show=show,
    )


def here(index: str, *, k: int, model: str | None) -> task_io.Run:
    from triform.tasks.search import Search
    from triform.tasks.vector_index import check_model, read

    found = read(index)
    loaded = open_model(model or found.note.model)
    check_model(found, loaded, place=index)
    return lambda texts: Search().run(texts, model=loaded, index=found, k=k)


def there(index: str, *, k: int, model: str | None, url: str) -> task_io.Run:
    if model is None:
        raise TriformError("with --url, --model names the model of the service that INDEX was made with")
    return task_io.runner("search", model, url=url, index=index, k=k)


def show(answer: "Hits") -> None:
    for hit in answer.hits:
        click.echo(click.style(f"{hit.score:.3f}  {hit.place}", bold=True))
        click.echo(f"       {' '.join(hit.text.split())}")
