"""`triform families`"""

import json

import click
from rich.console import Console
from rich.table import Table

from triform.families import NAMED, RELEASED, named
from triform.parameters import MODEL_PARTS, count_by_part
from triform.spec import ModelSpec

WIDE = 175  # columns that all numbers in full digits need side by side

LECTURE = (
    "The lecture says: about 1/3 of all parameters are in attention, 2/3 in the feed-forward networks. "
    "Counted over attention and feed-forward alone that is so where the feed-forward is 4 times as wide as the model, "
    "all heads have keys of their own and there is no cross-attention (BERT, GPT-2). Cross-attention makes a decoder "
    "block 1/2 to 1/2 (Vaswani-base as a whole 43 : 57); grouped key/value heads make attention smaller (Llama-3-8B "
    "19 : 81); of *all* parameters, embeddings take their share, too."
)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object per model.")
def families(names: tuple[str, ...], as_json: bool) -> None:
    """List models by name, with their parameters counted from the spec alone.

    \b
    Examples:
      triform families
      triform families gpt2-small llama-3-8b
      triform families --json | jq '.[] | select(.form == "encoder")'
    """
    chosen = {name: named(name) for name in names or NAMED}
    if as_json:
        click.echo(json.dumps([as_row(name, spec) for name, spec in chosen.items()], indent=2))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    console.print(wide(chosen) if console.width >= WIDE else narrow(chosen))
    console.print(LECTURE, style="dim")


def as_row(name: str, spec: ModelSpec) -> dict[str, object]:
    """One model as a JSON object."""
    parts = count_by_part(spec)
    return {
        "name": name,
        "form": spec.form,
        "released": name in RELEASED,
        "parameters": sum(parts.values()),
        "parts": parts,
        "attention_share_of_blocks": attention_share(spec),
        "lecture_holds": lecture_holds(spec),
    }


def attention_share(spec: ModelSpec) -> float:
    """Attention's part of attention and feed-forward together: the lecture's 1/3."""
    parts = count_by_part(spec)
    attention = parts["attention"] + parts["cross-attention"]
    return attention / (attention + parts["feed-forward"])


def lecture_holds(spec: ModelSpec) -> bool:
    return abs(attention_share(spec) - 1 / 3) < 0.01


def ratio(spec: ModelSpec) -> str:
    share = 100 * attention_share(spec)
    return f"{share:.0f} : {100 - share:.0f} {'✓' if lecture_holds(spec) else ' '}"


def wide(chosen: dict[str, ModelSpec]) -> Table:
    """The table of models for wide terminals: one column per part."""
    table = Table()
    for name in ("model", "form"):
        table.add_column(name, no_wrap=True)
    for part in ("parameters", *MODEL_PARTS, "att : ff (1/3 : 2/3?)"):
        table.add_column(part, justify="right", no_wrap=True)
    for name, spec in chosen.items():
        parts = count_by_part(spec)
        numbers = [f"{parts[part]:,}" if parts[part] else "–" for part in MODEL_PARTS]
        table.add_row(name, spec.form, f"{sum(parts.values()):,}", *numbers, ratio(spec))
    return table


def narrow(chosen: dict[str, ModelSpec]) -> Table:
    """The table of models for narrow terminals: all parts in one cell."""
    table = Table("model", "parameters and where they are")
    table.add_column("att : ff", justify="right", no_wrap=True)
    for name, spec in chosen.items():
        parts = count_by_part(spec)
        where = ", ".join(f"{part} {parts[part]:,}" for part in MODEL_PARTS if parts[part])
        table.add_row(f"{name}\n[dim]{spec.form}[/]", f"[bold]{sum(parts.values()):,}[/]\n{where}", ratio(spec))
    return table
