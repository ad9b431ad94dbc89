"""`triform data`"""

from pathlib import Path
from typing import Any

import click

WORLD = "little-world"


@click.command()
@click.argument("name", type=click.Choice([WORLD]))
@click.option("--task", required=True, help="Whose rows: translate, tag, classify, answer, …")
@click.option("--out", required=True, help="The file; its ending says the format (.jsonl .csv .txt .conll .en-de …).")
@click.option("--split", type=click.Choice(["train", "valid", "test"]), default="train", show_default=True)
@click.option("--count", default=10_000, show_default=True, help="How many rows.")
@click.option("--seed", default=1, show_default=True, help="The same seed gives the same rows.")
@click.option("--label", type=click.Choice(["topic", "sentiment"]), default="topic", show_default=True)
def data(name: str, **options: Any) -> None:
    """Write rows of the little world: small true sentences in English and German, labelled for every task.

    What one split combines, no other does: words of the test rows are known from training, sentences are not.

    \b
    Examples:
      triform data little-world --task translate --out train.en-de
      triform data little-world --task tag --split test --out test.conll
      triform data little-world --task answer --out train.json
    """
    from little_world import write

    path = Path(options["out"])
    write(
        options["task"],
        path,
        split=options["split"],
        seed=options["seed"],
        count=options["count"],
        label=options["label"],
    )
    click.echo(f"{options['count']:,} rows to {options['task']}: {path}", err=True)
