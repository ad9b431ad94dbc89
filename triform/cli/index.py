"""`triform index`"""

from typing import Any

import click
import msgspec

from triform.cli import progress
from triform.cli.index_store import choose_store, store_option
from triform.cli.layout_options import layout_options
from triform.cli.models import open_model
from triform.data.columns import Layout
from triform.data.rows import TextRow


@click.command()
@click.argument("places", nargs=-1, required=True, metavar="FOLDER_OR_FILE...")
@click.option("--model", required=True, help="The embedding model.")
@click.option(
    "--out", required=True, help="The folder of the index; an existing one is updated. With --store its name."
)
@store_option
@click.option("--hnsw", is_flag=True, help="Also a graph for very large indexes, nearly exact (needs usearch).")
@click.option(
    "--vectors",
    type=click.Choice(("float32", "float16", "int8")),
    help="What a search reads of all vectors, before the best are compared in float32: the same results from a half or "
    "a quarter of the memory. Default: float32, or as the index was made.",
)
@click.option(
    "--windows/--no-windows",
    default=None,
    help="Read passages longer than the model reads whole, as the mean over windows. Default: their beginning.",
)
@click.option("--keep", multiple=True, metavar="COLUMN", help="A column to keep beside the text, for search --where.")
@click.option(
    "--longest",
    type=click.IntRange(100, 100_000),
    metavar="CHARACTERS",
    help="Of a passage; default: 700. A text that is one unit (an abstract, a ticket) is better left whole.",
)
@click.option("--dimensions", type=int, help="Keep this many dimensions of each vector (Matryoshka models).")
@layout_options(TextRow)
def index(
    places: tuple[str, ...],
    model: str,
    out: str,
    store: str | None,
    hnsw: bool,
    vectors: Any,
    windows: bool | None,
    keep: tuple[str, ...],
    longest: int | None,
    dimensions: int | None,
    layout: Layout,
) -> None:
    """Build a search index: split files into passages and embed them. Run again, only changed files are embedded.

    Text, Markdown, HTML, PDF (pip install pypdf), tables and JSON are read; what cannot be read is listed.
    An index stores how its passages were read, and queries are read the same way. Where the model's folder has prompts
    for documents and queries, passages get the one, and queries of `triform search` the other.

    \b
    Examples:
      triform index docs --model minilm --out docs.index
      triform index articles.csv --text-column body --model minilm --out articles.index
      triform index notes.txt faq.jsonl --model minilm --out all.index
      triform index archive --vectors int8 --model minilm --out archive.index
      triform index docs --store postgresql://me@db/search --model minilm --out docs
      triform index faq.csv --keep author --model minilm --out faq.index
    """
    from triform.tasks.embed import find_prompt
    from triform.tasks.vector_index import build_index

    chosen = choose_store(out, store)
    loaded = open_model(model)
    if prompt := find_prompt(loaded, role="document"):
        click.echo(f"each passage is read behind the prompt {prompt!r} of this model", err=True)
    with progress.counting("files") as counted:
        done = build_index(
            places,
            model=loaded,
            name=model,
            out=chosen,
            graph=hnsw,
            vectors=vectors,
            layout=msgspec.structs.replace(layout, keep=keep, longest=longest),
            windows=windows,
            dimensions=dimensions,
            progress=lambda at: counted.update(at.files, total=at.total, note=f", {at.passages:,} passages embedded"),
        )
    for file, why in done.skipped.items():
        click.echo(f"skipped {file}: {why}", err=True)
    files = (
        f"{done.added:,} files added, {done.kept:,} as they were, {done.removed:,} gone, {len(done.skipped):,} skipped"
    )
    click.echo(f"{chosen}: {len(done.made):,} passages; {files}")
