"""`triform models`, and how every command opens the model that is named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

import triform
from triform.cli import progress
from triform.cli.device_options import chosen_device, chosen_dtype
from triform.cli.draft_and_cache_options import chosen_draft
from triform.cli.weights_option import chosen_weights
from triform.families import NAMED
from triform.parameters import count_parameters
from triform.spec import ModelSpec
from triform.tasks import tasks_of

if TYPE_CHECKING:
    from triform.model import Model


ADAPTERS = "triform.adapters"  # what --adapter named, in the context of a command


def add_adapter_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """LoRA adapters for the model that the command opens."""
    return click.option(
        "--adapter",
        "adapters",
        multiple=True,
        expose_value=False,
        callback=lambda ctx, param, folders: ctx.meta.update({ADAPTERS: folders}),
        help="The folder of a LoRA adapter for MODEL (PEFT's format); several are added together.",
    )(command)


def open_model(name: str, *, seed: int = 0, weights: str | None = None) -> "Model":
    """A folder, a name in the model store, or a family's size by name with random weights of that seed; with what
    --adapter named, in the kind of weights that --weights names, unless another is given, and the model of --draft;
    where --device and --dtype say."""
    place: dict[str, Any] = {"device": chosen_device(), "dtype": chosen_dtype()}
    kind = chosen_weights() if weights is None else weights
    context = click.get_current_context(silent=True)
    adapters = () if context is None else context.meta.get(ADAPTERS, ())
    with progress.show_line(lambda: f"opening {name}"):
        if name in NAMED and not Path(name).is_dir():
            model = triform.build(NAMED[name], seed=seed, weights=kind, **place)
        else:
            model = triform.load(name, weights=kind, **place)
        model = model.with_adapter(*adapters) if adapters else model
        return (
            model if (draft := chosen_draft()) is None else model.with_draft(triform.load(draft, weights=kind, **place))
        )


def read_spec(name: str) -> ModelSpec:
    """The spec of the model that is named, without its weights: no torch is needed."""
    from triform.weights import model_store
    from triform.weights.verify_folder import describe_folder

    if Path(name).expanduser().is_dir() or model_store.folder_of(name).is_dir():
        return describe_folder(model_store.find_model(name))
    if name not in NAMED:
        raise model_store.explain_missing(name, known={*NAMED, *(folder.name for folder in model_store.list_folders())})
    return NAMED[name]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object per model.")
def models(as_json: bool) -> None:
    """List the models on this machine: form, parameters, size on disk, the tasks each can do, and where it came from.

    \b
    Examples:
      triform models
      triform models --json | jq -r '.[].folder'
    """
    from triform.weights import model_store

    standing = [(one, () if one.model is None else tasks_of(one.model)) for one in model_store.list_models()]
    if as_json:
        rows = [
            {
                "name": one.name,
                "folder": str(one.folder),
                "form": one.model.spec.form if one.model else None,
                "parameters": count_parameters(one.model.spec) if one.model else None,
                "bytes": one.bytes,
                "weights": one.weights,
                "tasks": tasks,
                "source": dict(one.source),
                "trouble": one.trouble,
            }
            for one, tasks in standing
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    if not standing:
        click.echo(f"no models in {model_store.models_folder()} yet; {model_store.suggest_models()}")
        return
    table = Table("model", "form", "weights", title=Text(str(model_store.models_folder())))
    for column in ("parameters", "on disk"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("tasks")
    has_source = any(one.origin for one, _ in standing)
    if has_source:
        table.add_column("source")
    for one, tasks in standing:
        form = one.model.spec.form if one.model else "[red]cannot be read[/]"
        count = f"{count_parameters(one.model.spec):,}" if one.model else ""
        size = f"{one.bytes / 2**20:,.0f} MiB"
        table.add_row(
            Text(one.name),
            form,
            one.weights,
            count,
            size,
            Text(", ".join(tasks) or one.trouble),
            *([Text(one.origin)] if has_source else []),
        )
    Console().print(table)
