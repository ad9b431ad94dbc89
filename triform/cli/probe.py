"""`triform probe`"""

import csv
import io
from pathlib import Path

import click
import msgspec

from triform.cli import progress
from triform.data.line_reader import open_file
from triform.errors import TriformError


@click.command()
@click.argument("activations", type=click.Path(path_type=Path))
@click.argument("labels", type=click.Path(path_type=Path))
@click.option("--label-column", default="label", show_default=True, help="Of a CSV or TSV file with a header.")
@click.option("--folds", type=click.IntRange(2, 100), default=5, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def probe(activations: Path, labels: Path, label_column: str, folds: int, seed: int, as_json: bool) -> None:
    """Tell how well a linear map reads LABELS from ACTIVATIONS: the accuracy on rows that it has not seen.

    Beside it stand the commonest label and the same probe with shuffled labels. LABELS has one label per row of
    ACTIVATIONS, in the same order: a CSV or TSV with a header, or lines.

    \b
    Examples:
      triform probe acts.safetensors labels.csv
      triform probe acts.safetensors rows.tsv --label-column topic --json
    """
    from triform.inspect.activations_file import load_activations
    from triform.tasks.linear_probe import probe as score_probe

    found = load_activations(activations)
    names = read_labels(labels, label_column)
    if len(names) != len(found.values):
        raise TriformError(
            f"{activations} has {len(found.values):,} rows and {labels} {len(names):,} labels; "
            "give one label per row, in the same order"
        )
    with progress.status(f"fitting {folds} probes on {len(names):,} rows, and as many on shuffled labels"):
        score = score_probe(found.values, names, folds=folds, seed=seed)
    if as_json:
        click.echo(msgspec.json.encode(score).decode())
        return
    click.echo(f"{found.location}, position {found.pooled}: {score}")
    for name, recall in sorted(score.recall.items(), key=lambda item: -item[1]):
        click.echo(f"  {recall:6.1%}  {name}")


def read_labels(path: Path, column: str) -> list[str]:
    """One label per row: a column of a table with a header, or whole lines."""
    if not path.is_file():
        raise TriformError(f"there is no file {path}")
    with open_file(path) as file:
        text = file.read().decode("utf-8-sig", errors="replace")
    separator = {".csv": ",", ".tsv": "\t"}.get(path.suffix.lower())
    if separator is None:
        return [line.strip() for line in text.splitlines() if line.strip()]
    rows = list(csv.DictReader(io.StringIO(text), delimiter=separator))
    known = list(rows[0]) if rows else []
    if column not in known:
        raise TriformError(f"{path} has no column {column!r}; it has {', '.join(known)}: name one with --label-column")
    short = next((number for number, row in enumerate(rows, start=2) if row[column] is None), None)
    if short is not None:
        raise TriformError(f"{path}:{short} has fewer columns than the header: there is no {column!r}")
    return [row[column].strip() for row in rows]
