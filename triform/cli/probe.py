"""`triform probe`"""

from pathlib import Path

import click
import msgspec

from triform.cli import progress
from triform.cli.layout_options import format_option, parse_column
from triform.data.columns import Layout
from triform.data.readers import read
from triform.data.rows import TextRow
from triform.errors import TriformError


@click.command()
@click.argument("activations", type=click.Path(path_type=Path))
@click.argument("labels", type=click.Path(path_type=Path))
@click.option("--label-column", default="label", show_default=True, help="Name or JSON key.")
@format_option
@click.option("--folds", type=click.IntRange(2, 100), default=5, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def probe(
    activations: Path, labels: Path, label_column: str, format: str | None, folds: int, seed: int, as_json: bool
) -> None:
    """Tell how well a linear map reads LABELS from ACTIVATIONS: the accuracy on rows that it has not seen.

    Beside it stand the commonest label and the same probe with shuffled labels. LABELS has one label per row of
    ACTIVATIONS, in the same order: a table, JSON lines, or a text file with one label per line.

    \b
    Examples:
      triform probe acts.safetensors labels.csv
      triform probe acts.safetensors rows.tsv --label-column topic --json
    """
    from triform.inspect.activations_file import load_activations
    from triform.tasks.linear_probe import probe as score_probe

    found = load_activations(activations)
    names = read_labels(labels, Layout({"text": parse_column(label_column)}, format))
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


def read_labels(path: Path, layout: Layout) -> list[str]:
    """One label per row; blank rows are skipped, and any other damaged row would move the labels behind it."""
    labels = []
    for row in read(path, kind=TextRow, layout=layout):
        if isinstance(row, TextRow):
            labels.append(row.text.strip())
        elif row.kind != "blank":
            raise TriformError(f"{row}; every row of activations needs a label: mend it")
    return labels
