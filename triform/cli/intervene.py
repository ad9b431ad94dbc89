"""`triform intervene`"""

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from triform.cli import input_rows
from triform.cli.models import open_model
from triform.data.columns import Layout
from triform.data.rows import BadRow, TextRow
from triform.errors import TriformError

if TYPE_CHECKING:
    from triform.inspect.parse_changes import ChangeSources
    from triform.model import Model

MAX_REFERENCE_TEXTS = 1000


@click.command()
@click.argument("model")
@click.argument("text")
@click.option("--change", "-c", "changes", multiple=True, required=True, help="As in the examples; may be repeated.")
@click.option("--from", "source", help="The text that `patch` takes its values from.")
@click.option("--reference", help="A file of texts for `mean` and `resample`.")
@click.option("--toward", multiple=True, help="A text that `steer` goes towards; may be repeated.")
@click.option("--away", multiple=True, help="A text that `steer` goes away from; may be repeated.")
@click.option("--at", "vector_at", default=None, help="Where `steer` finds its vector; default: where it adds it.")
@click.option("--target", help="Of an encoder-decoder: the target; default: what the unchanged model writes.")
@click.option("--position", type=int, help="The token whose answer counts; default: the last, or the masked one.")
@click.option("--neighbour", "neighbours", multiple=True, help="Of an embedding model: a text to measure cosines with.")
@click.option("--write/--no-write", default=True, help="Also write on, greedily, before and after.")
@click.option("--max-tokens", type=click.IntRange(1, 4096), default=20, show_default=True, help="Of what is written.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of `resample`.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def intervene(
    model: str, text: str, changes: tuple[str, ...], target: str | None, position: int | None,
    neighbours: tuple[str, ...], write: bool, max_tokens: int, as_json: bool, source: str | None,
    reference: str | None, toward: tuple[str, ...], away: tuple[str, ...], vector_at: str | None, seed: int,
) -> None:  # fmt: skip
    """Change how MODEL runs on TEXT, and show its answer before, after, and the difference.

    A location is a module path, or in short L3 (layer 3), L3.attention, L3.feedforward, L3H2 (a head), L3H2.q,
    encoder.L3H2; with positions as L3@0,4 or L3@-1.

    \b
    Examples:
      triform intervene smollm2 "The capital of France is" -c "off L3H2"
      triform intervene smollm2 "The capital of France is" -c "patch L20@-1" --from "The capital of Italy is"
      triform intervene smollm2 "The film was" -c "steer L10 4" --toward "I love it" --away "I hate it"
      triform intervene smollm2 "The cat sat" -c "mean L5.feedforward" --reference texts.txt
      triform intervene minilm "sea lion" -c "off L2" --neighbour "lion" --neighbour "ocean"
      triform intervene smollm2 "The cat sat" -c "temperature 0.5" -c "positions removed" --json
    """
    import triform

    loaded = open_model(model)
    goal = find_target(loaded, text, target)
    sources = find_sources(loaded, source, goal, reference, toward, away, vector_at or steered_location(changes), seed)
    comparison = triform.compare(
        loaded, loaded.patched(*changes, sources=sources), text, goal, position=position, neighbours=neighbours
    )
    writes = write and can_write(loaded)
    written = comparison.written(max_tokens=max_tokens) if writes else None
    if as_json:
        found = comparison.to_builtins() | ({"written": list(written)} if written else {})
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    Console().print(comparison.answers().to_table())
    click.echo(f"divergence {comparison.divergence():.4g}")
    if written:
        click.echo(f"before: {written[0]}\nafter:  {written[1]}")


def can_write(model: "Model") -> bool:
    from triform.inspect.model_answers import find_kind

    return find_kind(model) == "tokens" and model.spec.form != "encoder"


def find_target(model: "Model", text: str, target: str | None) -> "str | tuple[int, ...] | None":
    """Of an encoder-decoder: the one that is given, or what the model writes, from its first token."""
    if model.network.sides == 1 or target is not None:
        return target
    written = model.complete([text], max_tokens=40, temperature=0.0, beams=1)[0].tokens
    first = model.generation.first
    return (0 if first is None else first, *written[:-1])


def steered_location(changes: tuple[str, ...]) -> str | None:
    """The first place that a vector is added to."""
    return next((change.split()[1] for change in changes if change.startswith("steer ") and change.split()[1:]), None)


def find_sources(
    model: "Model", source: str | None, target: object, reference: str | None, toward: tuple[str, ...],
    away: tuple[str, ...], vector_at: str | None, seed: int,
) -> "ChangeSources":  # fmt: skip
    """What the changes take their values from."""
    from triform.inspect.ablations import steering_vector
    from triform.inspect.parse_changes import ChangeSources

    if bool(toward) != bool(away):
        raise TriformError("a steering vector needs both: --toward TEXT and --away TEXT")
    vector = steering_vector(model, vector_at, toward, away) if toward and vector_at else None
    run = None
    if source is not None:
        run = model.look(source, target if model.network.sides == 2 else None)  # type: ignore[arg-type]
    return ChangeSources(run, read_reference(reference) if reference else (), vector, seed)


def read_reference(file: str) -> list[str]:
    rows = input_rows.read_file_rows(Path(file), kind=TextRow, layout=Layout())
    texts = (row.row.text for row in rows if not isinstance(row, BadRow))
    return [text for text in islice(texts, MAX_REFERENCE_TEXTS) if text.strip()]
