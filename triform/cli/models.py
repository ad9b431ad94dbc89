"""`triform models`, and how every command opens the model that is named."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

import triform
from triform.cli import progress
from triform.families import NAMED
from triform.parameters import parameters
from triform.spec import ModelSpec
from triform.tasks import tasks_of

if TYPE_CHECKING:
    from triform.model import Model


def open_model(name: str, *, seed: int = 0) -> "Model":
    """A folder, a name in the model store, or a family's size by name with random weights of that seed."""
    with progress.saying(lambda: f"opening {name}"):
        if name in NAMED and not Path(name).is_dir():
            return triform.build(NAMED[name], seed=seed)
        return triform.load(name)


def spec_of(name: str) -> ModelSpec:
    """The spec of the model that is named, without its weights: no torch is needed."""
    from triform.weights import model_store
    from triform.weights.verify_folder import described

    if Path(name).expanduser().is_dir() or model_store.place(name).is_dir():
        return described(model_store.find(name))
    if name not in NAMED:
        raise model_store.missing(name, known={*NAMED, *(folder.name for folder in model_store.folders())})
    return NAMED[name]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object per model.")
def models(as_json: bool) -> None:
    """List the models on this machine: form, parameters, size on disk, and the tasks each can do.

    \b
    Examples:
      triform models
      triform models --json | jq -r '.[].folder'
    """
    from triform.weights import model_store

    standing = [(one, () if one.model is None else tasks_of(one.model)) for one in model_store.standing()]
    if as_json:
        rows = [
            {
                "name": one.name,
                "folder": str(one.folder),
                "form": one.model.spec.form if one.model else None,
                "parameters": parameters(one.model.spec) if one.model else None,
                "bytes": one.bytes,
                "tasks": tasks,
                "trouble": one.trouble,
            }
            for one, tasks in standing
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    if not standing:
        click.echo(f"no models in {model_store.shelf()} yet; {model_store.ways_to_get_one()}")
        return
    table = Table("model", "form", title=Text(str(model_store.shelf())))
    for column in ("parameters", "on disk"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("tasks")
    for one, tasks in standing:
        form = one.model.spec.form if one.model else "[red]cannot be read[/]"
        count = f"{parameters(one.model.spec):,}" if one.model else ""
        size = f"{one.bytes / 2**20:,.0f} MiB"
        table.add_row(Text(one.name), form, count, size, Text(", ".join(tasks) or one.trouble))
    Console().print(table)
