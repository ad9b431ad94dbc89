"""`triform lint`"""

from pathlib import Path

import click
from rich.console import Console

from triform.cli import progress
from triform.cli.layout_options import layout_options
from triform.data.columns import Layout
from triform.data.rows import ROW_TYPES


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--task", help="The task of the rows: classify, translate, tag …; default: one that the fields fit.")
@click.option(
    "--valid", type=click.Path(path_type=Path), help="Validation data: rows that are also in DATA are counted."
)
@click.option("--strict", is_flag=True, help="Exit code 2 if there is any problem.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: counts, first places and classes.")
@layout_options(*ROW_TYPES)
def lint(data: Path, task: str | None, valid: Path | None, strict: bool, as_json: bool, layout: Layout) -> None:
    """Find problems in the rows of DATA, a file or a folder, before training.

    Exit code 2 if no row is left that can be used.

    \b
    Examples:
      triform lint reviews.csv --task classify
      triform lint tickets.csv --task classify --text-column subject --label-column queue
      triform lint train.en-de --task translate --valid val.en-de --strict
      triform lint rows.jsonl --task chat --json | jq .problems
    """
    from triform.pipeline.lint_rows import lint as lint_rows

    with progress.status(f"reading {data}"):
        report = lint_rows(data, task=task, valid=valid, columns=layout.columns, format=layout.format)
    if as_json:
        click.echo(report.to_json())
    else:
        Console().print(report)
    report.refuse_if_none_good()
    if strict:
        report.refuse()
