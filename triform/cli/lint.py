"""`triform lint`"""

from pathlib import Path

import click
from rich.console import Console


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--task", required=True, help="What the rows are for: classify, translate, tag …")
@click.option("--valid", type=click.Path(path_type=Path), help="Rows to be judged by: leaks from DATA are counted.")
@click.option("--strict", is_flag=True, help="Exit code 2 if anything is wrong.")
@click.option("--json", "as_json", is_flag=True, help="For machines: counts, first places and classes.")
def lint(data: Path, task: str, valid: Path | None, strict: bool, as_json: bool) -> None:
    """Count what is wrong with the rows in DATA, a file or a folder, before anything learns from them.

    \b
    Examples:
      triform lint reviews.csv --task classify
      triform lint train.en-de --task translate --valid val.en-de --strict
      triform lint rows.jsonl --task chat --json | jq .problems
    """
    from triform.tasks import named
    from triform.tasks.material import beside, linted

    kind = named(task).kind
    with Console(stderr=True).status(f"reading {data}"):
        report = linted(kind, data, valid=valid or beside(data, kind))
    if as_json:
        click.echo(report.to_json())
    else:
        Console().print(report)
    if strict:
        report.refuse()
