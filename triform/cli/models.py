"""`triform models`, and how any command finds the model a person names."""

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

if TYPE_CHECKING:
    from triform.model import Model


def open_model(name: str, *, seed: int = 0) -> "Model":
    """A folder, a name on the shelf, or a family's size by name with random numbers of that seed."""
    with progress.saying(lambda: f"opening {name}"):
        if name in NAMED and not Path(name).is_dir():
            return triform.build(NAMED[name], seed=seed)
        return triform.load(name)


def spec_of(name: str) -> ModelSpec:
    """What the model a person names is, without its numbers: no torch is needed."""
    from triform.weights import model_store
    from triform.weights.verify_folder import described

    if Path(name).expanduser().is_dir() or model_store.place(name).is_dir():
        return described(model_store.find(name))
    if name not in NAMED:
        raise model_store.missing(name, known={*NAMED, *(folder.name for folder in model_store.folders())})
    return NAMED[name]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For machines: one object a model.")
def models(as_json: bool) -> None:
    """List the models on this machine: form, parameters, size on disk, and the tasks each can do.

    \b
    Examples:
      triform models
      triform models --json | jq -r '.[].folder'
    """
    from triform.weights import model_store

    standing = model_store.standing()
    if as_json:
        rows = [
            {
                "name": one.name,
                "folder": str(one.folder),
                "form": one.spec.form if one.spec else None,
                "parameters": parameters(one.spec) if one.spec else None,
                "bytes": one.bytes,
                "tasks": one.tasks,
                "trouble": one.trouble,
            }
            for one in standing
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
    for one in standing:
        form = one.spec.form if one.spec else "[red]cannot be read[/]"
        count = f"{parameters(one.spec):,}" if one.spec else ""
        tasks = Text(", ".join(one.tasks) or one.trouble)
        table.add_row(Text(one.name), form, count, f"{one.bytes / 2**20:,.0f} MiB", tasks)
    Console().print(table)
