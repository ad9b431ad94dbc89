"""`triform sweep`"""

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from triform.cli import progress
from triform.cli.models import open_model
from triform.errors import TriformError

if TYPE_CHECKING:
    from triform.inspect.measures import Measure


@click.command()
@click.argument("model")
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...")
@click.option("--over", type=click.Choice(["heads", "sublayers", "positions"]), default="heads", show_default=True)
@click.option("--from", "source", help="Patch each location from this text; default: switch each off.")
@click.option("--target", help="Of an encoder-decoder.")
@click.option("--right", help="Measure the lead of this token or label over --wrong, or alone its probability.")
@click.option("--wrong", help="The other token or label.")
@click.option("--position", type=int, help="The token whose answer counts; default: the last, or the masked one.")
@click.option("--stack", type=click.Choice(["encoder", "decoder"]), help="Default: the one the head reads.")
@click.option("--kind", type=click.Choice(["self", "cross"]), default="self", show_default=True)
@click.option(
    "--component", default="stream", show_default=True, help="Over positions: stream, attention, feedforward."
)
@click.option("--out", type=click.Path(path_type=Path), help="A figure: .svg, .png or .pdf.")
@click.option("--caption", default="", help="Below the figure.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def sweep(
    model: str, texts: tuple[str, ...], over: str, source: str | None, target: str | None, right: str | None,
    wrong: str | None, position: int | None, stack: str | None, kind: str, component: str, out: Path | None,
    caption: str, as_json: bool,
) -> None:  # fmt: skip
    """Change every head, sublayer or position of MODEL in turn while it reads TEXT, and show what each does.

    Without --right the measure is how far the answer moves: KL divergence, or 1 − cosine of an embedding. In many
    vocabularies a word begins with its space: --right " Paris".

    \b
    Examples:
      triform sweep smollm2 "The capital of France is" --right " Paris" --wrong " London" --out heads.svg
      triform sweep smollm2 "The capital of France is" --over positions --from "The capital of Italy is"
      triform sweep minilm "sea lion" --over sublayers --json
    """
    if out is not None and out.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise TriformError(f"{out} does not end in .svg, .png or .pdf; choose one of these")
    loaded = open_model(model)
    with progress.counting("cells") as counted:
        found = loaded.sweep(
            texts, [target] * len(texts) if target is not None else None, over=over, source=source,
            measure=choose_measure(right, wrong), position=position, kind=kind, stack=stack, component=component,  # type: ignore[arg-type]
            progress=lambda done, total: counted.update(done, total=total),
        )  # fmt: skip
    if out is not None:
        found.save_figure(out, caption=caption)
        click.echo(out)
    elif as_json:
        click.echo(found.to_json())
    else:
        Console().print(found)


def choose_measure(right: str | None, wrong: str | None) -> "Measure | None":
    """The lead of one name over another, the probability of one, or how far the answer moves."""
    from triform.inspect.measures import LogitDifference, Probability

    if right is None:
        if wrong is not None:
            raise TriformError("--wrong needs --right, the token or label whose lead is measured")
        return None
    return Probability(right) if wrong is None else LogitDifference(right, wrong)
