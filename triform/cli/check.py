"""`triform check`"""

import click
from rich.console import Console
from rich.markup import escape

from triform.cli import progress
from triform.cli.input_rows import read_whole_text
from triform.cli.models import open_model
from triform.errors import InputError
from triform.weight_kinds import CHOICES, check_choice


@click.command()
@click.argument("model")
@click.option("--seed", default=0, show_default=True, help="Of the random texts and of a random model.")
@click.option(
    "--weights", metavar="KIND", help=f"Instead: what this kind of weights changes, one of {', '.join(CHOICES)}."
)
@click.option("--text", "texts", multiple=True, metavar="FILE", help="With --weights: measure it on this text too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: all checks with their errors.")
@click.pass_context
def check(
    ctx: click.Context, model: str, seed: int, weights: str | None, texts: tuple[str, ...], as_json: bool
) -> None:
    """Check that batching, padding and caching do not change the results of MODEL, and that nothing leaks.

    In every dtype that a model is loaded in: float64, float32, bfloat16, float16. Exit code 1 if a check fails.

    With --weights, how far the model with 8 or 4 bits per weight is from itself in float32: KL, same likeliest token,
    perplexity; of labels the same answer, of embeddings cosine and the same nearest sentence.

    MODEL is a model folder, a name of `triform models`, or a name of `triform families` (random weights).

    \b
    Examples:
      triform check tiny-encoder-decoder
      triform check minilm
      triform check gpt2-small --json
      triform check smollm2 --weights q8 --text my-notes.txt
      triform check minilm --weights q8
    """
    if weights is not None:
        print_quality(model, weights, texts=texts, as_json=as_json)
        return
    if texts:
        raise InputError("--text is for --weights; add --weights q8, or another kind of weights")
    from triform.check.run_checks import check as prove
    from triform.parameters import count_parameters

    with progress.status(f"opening {model}") as status:
        opened = open_model(model, seed=seed, weights="float32")
        report = prove(
            opened.spec, opened.network, seed=seed, on_check=lambda name: status.update(f"proving on {model}: {name}")
        )
    if as_json:
        click.echo(report.to_json())
    else:
        out = Console()
        out.print(f"[bold]{escape(model)}[/]: {opened.spec.form}, {count_parameters(opened.spec):,} parameters")
        out.print(report)
        verdict = "all hold" if report.holds else f"BROKEN: {', '.join(report.failed)}"
        out.print(f"{len(report.proofs)} proofs, {sum(p.cases for p in report.proofs):,} cases: {verdict}")
    ctx.exit(0 if report.holds else 1)


def print_quality(model: str, weights: str, *, texts: tuple[str, ...], as_json: bool) -> None:
    """The model in this kind of weights beside itself in float32."""
    from triform.pipeline.quantize_model import compare_with_float32

    check_choice(weights)
    read = {name: read_whole_text(name) for name in texts}
    with progress.status(f"opening {model}") as status:
        reference, other = (open_model(model, weights=kind) for kind in ("float32", weights))
        status.update(f"reading texts with {model}, in float32 and in {weights}")
        report = compare_with_float32(reference, other, texts=read)
    if as_json:
        click.echo(report.to_json())
    else:
        Console().print(report)
