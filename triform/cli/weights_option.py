"""`--weights`, of every command that runs a model."""

import click

from triform.weight_kinds import AUTO, CHOICES, check_choice

CHOSEN = "triform.cli.weights"  # in click's context
HELP = f"Kind of weights: {', '.join(CHOICES)}. auto: as the folder has them; q8 and q4 are smaller and faster."


def choose_weights(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        check_choice(value)
        context.meta[CHOSEN] = value


def chosen_weights() -> str:
    """What was chosen for the command that runs, else "auto"."""
    context = click.get_current_context(silent=True)
    return AUTO if context is None else context.meta.get(CHOSEN, AUTO)


WEIGHTS = click.Option(["--weights"], metavar="KIND", expose_value=False, callback=choose_weights, help=HELP)
