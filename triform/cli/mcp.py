"""`triform mcp`"""

import sys
from pathlib import Path
from typing import Any

import click

from triform.cli.models import open_model
from triform.errors import TriformError


@click.command()
@click.option("--index", "indexes", multiple=True, metavar="[NAME=]FOLDER", help="An index to search in.")
@click.option("--model", "models", multiple=True, metavar="[NAME=]MODEL", help="A model whose tasks become tools.")
def mcp(indexes: tuple[str, ...], models: tuple[str, ...]) -> None:
    """Serve indexes and models as tools for an assistant (Model Context Protocol), over standard input and output.

    Tools: search for an index; translate, summarize, classify, tag and fill for the models that can.

    \b
    Examples:
      triform mcp --index notes.index
      triform mcp --index notes.index --model models/en-de --model models/reviews
    """
    from triform.serve.mcp_server import McpServer, make_tools
    from triform.tasks.vector_index import check_model, read_index

    loaded = {name: open_model(place) for name, place in map(split_name, models)}
    found = {name: read_index(place) for name, place in map(split_name, indexes)}
    opened: dict[str, Any] = {}
    for name, index in found.items():
        embedder = open_model(index.note.model)
        check_model(index, embedder, place=name)
        opened[name] = (index, embedder)
    tools = make_tools(loaded, opened)
    if not tools:
        raise TriformError(
            "there is nothing to serve; give --index FOLDER, or --model of a model that does such a task"
        )
    click.echo(f"serving {', '.join(tool.name for tool in tools)} on standard input and output", err=True)
    McpServer(tools).run(sys.stdin.buffer, sys.stdout.buffer)


def split_name(given: str) -> tuple[str, str]:
    name, equals, place = given.partition("=")
    return (name, place) if equals and name else (Path(given).name, given)
