"""`triform ask`"""

from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.text import Text

from triform.cli import progress
from triform.cli.index_store import read_stored_index, store_option
from triform.cli.logs import remember
from triform.cli.models import open_model
from triform.data.line_reader import name_place

if TYPE_CHECKING:
    from triform.tasks.grounded_answer import CitedPassage, GroundedAnswer


@click.command()
@click.argument("index")
@click.argument("question")
@store_option
@click.option("--model", required=True, help="The model that answers: one that chats, or one that extracts answers.")
@click.option("--embedding-model", help="The model the index was made with, if it has moved.")
@click.option("--rerank", "reranker", metavar="MODEL", help="Order the best passages again with this model.")
@click.option("-k", type=click.IntRange(1, 50), default=4, show_default=True, help="How many passages to answer from.")
@click.option("--mode", type=click.Choice(("hybrid", "vector", "keyword")), default="hybrid", show_default=True)
@click.option(
    "--in", "files", multiple=True, metavar="FILE", help="Only in these files: a name or path, * for anything."
)
@click.option("--where", multiple=True, metavar="NAME=VALUE", help="Only where a kept column has this value.")
@click.option(
    "--min-cosine",
    type=click.FloatRange(-1, 1),
    default=0.35,
    show_default=True,
    help="If no passage is nearer to the question, nothing was found.",
)
@click.option("--max-tokens", type=click.IntRange(1, 4096), default=200, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ask(
    index: str,
    question: str,
    store: str | None,
    model: str,
    embedding_model: str | None,
    reranker: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Answer QUESTION from the passages of INDEX, with citations; "not found" where they do not answer it.

    \b
    Examples:
      triform ask notes.index "Where did I put the keys?" --model smollm2
      triform ask notes.index "Who leads the project?" --model smollm2 --in "*.md" --json
    """
    from triform.tasks.grounded_answer import AskSettings, answer_from_index
    from triform.tasks.vector_index import check_model

    found = read_stored_index(index, store)
    embedder = open_model(embedding_model or found.note.model)
    check_model(found, embedder, place=index)
    settings = AskSettings(**given)
    writer, orderer = open_model(model), None if reranker is None else open_model(reranker)
    with progress.show_line(lambda: "reading the passages"):
        answer = answer_from_index(
            question, index=found, embedder=embedder, writer=writer, reranker=orderer, settings=settings
        )
    remember("ask", model, question, answer.text)
    if as_json:
        click.echo(msgspec.json.encode(answer).decode())
    else:
        show_answer(answer)


def show_answer(answer: "GroundedAnswer") -> None:
    """The answer, then the passages it rests on, with the question's words in bold."""
    from triform.tasks.grounded_answer import MIN_SUPPORT

    console = Console()
    console.print(Text(answer.text), soft_wrap=True)
    for cited in answer.citations:
        console.print(Text(f"\n[{cited.number}] {name_place(cited.file, cited.line, cited.unit)}", style="bold"))
        console.print(highlight_passage(cited), soft_wrap=True)
    if answer.found and answer.support < MIN_SUPPORT:
        click.echo(f"only {answer.support:.0%} of the answer's words stand in the passage: check it", err=True)


def highlight_passage(cited: "CitedPassage") -> Text:
    """The passage with the words that the question has too in bold."""
    text = Text(cited.text.strip("\n"))
    for start, end in cited.marks:
        text.stylize("bold green", start, end)
    return text
