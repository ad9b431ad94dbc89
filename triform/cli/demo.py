"""`triform demo`"""

import click
from rich.console import Console


@click.command()
def demo() -> None:
    """Build one model of each form, show who sees whom in it, and prove its roads equal.

    \b
    Example:
      triform demo
    """
    from triform.families import NAMED
    from triform.inventory import parameters
    from triform.model import build

    out = Console()
    for name in ("tiny-encoder", "tiny-decoder", "tiny-encoder-decoder"):
        model = build(NAMED[name], seed=0)
        with out.status(f"proving on {name}"):
            report = model.check()
        out.print(f"\n[bold]{name}[/]: {parameters(model.spec):,} parameters")
        out.print(report)
    out.print("\nNext: [bold]triform families[/], [bold]triform check gpt2-small[/]")
