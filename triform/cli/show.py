"""`triform show`"""

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from triform.families import NAMED
from triform.parameters import count_parameters

CARD_LINES = 40


@click.command()
@click.argument("model")
@click.option("--card", is_flag=True, help="The whole model card, not only its beginning.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(model: str, card: bool, as_json: bool) -> None:
    """Show what MODEL is: form, size, tasks, licence, card. Its weights are not read.

    \b
    Examples:
      triform show minilm
      triform show models/reviews --card
      triform show bert-base --json
    """
    from triform.weights.model_card import read_card
    from triform.weights.model_store import find_model

    if model in NAMED and not Path(model).is_dir():
        facts, text = describe_spec(NAMED[model]) | {"folder": None}, ""
    else:
        folder = find_model(model)
        told = read_card(folder)
        facts = describe_stored(folder) | {"licence": told.licence or None}
        text = told.text
    if as_json:
        click.echo(json.dumps({"name": model} | facts | {"card": text or None}, indent=2, ensure_ascii=False))
        return
    table = Table(show_header=False, box=None, title=Text(model, style="bold"), title_justify="left")
    for name, value in facts.items():
        if value not in (None, [], ""):
            table.add_row(name, Text(format_value(value)))
    console = Console()
    console.print(table)
    lines = text.splitlines()
    if lines:
        console.print()
        console.print(Markdown("\n".join(lines if card else lines[:CARD_LINES])))
        if not card and len(lines) > CARD_LINES:
            console.print(f"… {len(lines) - CARD_LINES:,} more lines: --card")


def describe_spec(spec: Any) -> dict[str, Any]:
    """What a spec says: form, parameters, sizes."""
    stack = spec.decoder or spec.encoder
    return {
        "form": spec.form,
        "parameters": count_parameters(spec),
        "layers": stack.layers,
        "width": spec.width,
        "context": spec.context,
        "vocabulary": spec.vocab,
    }


def describe_stored(folder: Path) -> dict[str, Any]:
    """What a model folder says, without its weights."""
    from triform.tasks import own_task_of, tasks_of
    from triform.weights.model_store import describe_model

    stored = describe_model(folder)
    facts: dict[str, Any] = {"folder": str(stored.folder), "bytes": stored.bytes}
    if stored.model is None:
        return facts | {"trouble": stored.trouble}
    own = own_task_of(stored.model)
    facts |= describe_spec(stored.model.spec)
    return facts | {
        "tasks": list(tasks_of(stored.model)),
        "made for": own,
        "labels": list(stored.model.labels),
        "tokenizer": stored.model.tokenizer,
        "chat template": stored.model.template,
    }


def format_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value[:20])) + (f", … ({len(value):,})" if len(value) > 20 else "")
    return f"{value:,}" if isinstance(value, int) else str(value)
