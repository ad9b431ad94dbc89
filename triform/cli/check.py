"""`triform check`"""

import click
from rich.console import Console
from rich.markup import escape

from triform.cli import progress
from triform.cli.models import open_model


@click.command()
@click.argument("model")
@click.option("--seed", default=0, show_default=True, help="Of the random texts and of a random model.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: all checks with their errors.")
@click.pass_context
def check(ctx: click.Context, model: str, seed: int, as_json: bool) -> None:
    """Check that batching, padding and caching do not change the results of MODEL, and that nothing leaks.

    In every dtype that a model is loaded in: float64, float32, bfloat16, float16. Exit code 1 if a check fails.

    MODEL is a model folder, a name of `triform models`, or a name of `triform families` (random weights).

    \b
    Examples:
      triform check tiny-encoder-decoder
      triform check minilm
      triform check gpt2-small --json
    """
    from triform.check.run_checks import check as prove
    from triform.parameters import parameters

    with progress.status(f"opening {model}") as status:
        opened = open_model(model, seed=seed)
        report = prove(
            opened.spec, opened.network, seed=seed, said=lambda name: status.update(f"proving on {model}: {name}")
        )
    if as_json:
        click.echo(report.to_json())
    else:
        out = Console()
        out.print(f"[bold]{escape(model)}[/]: {opened.spec.form}, {parameters(opened.spec):,} parameters")
        out.print(report)
        verdict = "all hold" if report.holds else f"BROKEN: {', '.join(report.broken)}"
        out.print(f"{len(report.proofs)} proofs, {sum(p.cases for p in report.proofs):,} cases: {verdict}")
    ctx.exit(0 if report.holds else 1)
