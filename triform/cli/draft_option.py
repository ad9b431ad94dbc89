"""`--draft`, of every command that generates text."""

import click

CHOSEN = "triform.cli.draft"  # in click's context
HELP = "A smaller model of the same tokenizer that drafts tokens: the same answer, sooner where it guesses well."
GENERATING = ("complete", "chat", "translate", "summarize", "run", "serve")


def choose_draft(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[CHOSEN] = value


def chosen_draft() -> str | None:
    """What was chosen for the command that runs."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(CHOSEN)


DRAFT = click.Option(["--draft"], metavar="MODEL", expose_value=False, callback=choose_draft, help=HELP)
