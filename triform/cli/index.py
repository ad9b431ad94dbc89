"""`triform index`"""

import click

from triform.cli import progress
from triform.cli.layout_options import layout_options
from triform.cli.models import open_model
from triform.data.columns import Layout
from triform.data.rows import Text


@click.command()
@click.argument("places", nargs=-1, required=True, metavar="FOLDER_OR_FILE...")
@click.option("--model", required=True, help="The embedding model.")
@click.option("--out", required=True, help="The folder of the index; an existing one is updated.")
@click.option("--hnsw", is_flag=True, help="Also a graph for very large indexes, nearly exact (needs usearch).")
@click.option(
    "--windows/--no-windows",
    default=None,
    help="Read passages longer than the model reads whole, as the mean over windows. Default: their beginning.",
)
@layout_options(Text)
def index(places: tuple[str, ...], model: str, out: str, hnsw: bool, windows: bool | None, layout: Layout) -> None:
    """Build a search index: split files into passages and embed them. Run again, only changed files are embedded.

    An index stores how its passages were read, and queries are read the same way.

    \b
    Examples:
      triform index docs --model minilm --out docs.index
      triform index articles.csv --text-column body --model minilm --out articles.index
      triform index notes.txt faq.jsonl --model minilm --out all.index
    """
    from triform.tasks.vector_index import make

    loaded = open_model(model)
    with progress.counting("files") as counted:
        done = make(
            places,
            model=loaded,
            name=model,
            out=out,
            graph=hnsw,
            layout=layout,
            windows=windows,
            progress=lambda at: counted.update(at.files, total=at.total, note=f", {at.passages:,} passages embedded"),
        )
    for file, why in done.skipped.items():
        click.echo(f"skipped {file}: {why}", err=True)
    files = (
        f"{done.added:,} files added, {done.kept:,} as they were, {done.removed:,} gone, {len(done.skipped):,} skipped"
    )
    click.echo(f"{out}: {len(done.made.passages):,} passages; {files}")
