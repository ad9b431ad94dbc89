"""`--draft` and `--prefix-cache`, of commands that generate text."""

from pathlib import Path

import click

DRAFT_NAME, FOLDER_NAME = "triform.cli.draft", "triform.cli.prefix_cache"  # in click's context
GENERATING = ("complete", "chat", "translate", "summarize", "run", "serve")
KEEPING_PREFIXES = ("complete", "chat", "serve")


def choose(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[f"triform.cli.{option.name}"] = value


def chosen_draft() -> str | None:
    """The draft model that was chosen for the command that runs."""
    return find_chosen(DRAFT_NAME)


def chosen_prefix_folder() -> Path | None:
    """The folder of prompt prefixes that was chosen for the command that runs."""
    found = find_chosen(FOLDER_NAME)
    return None if found is None else Path(found)


def find_chosen(name: str) -> str | None:
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(name)


DRAFT = click.Option(
    ["--draft"],
    metavar="MODEL",
    expose_value=False,
    callback=choose,
    help="A smaller model of the same tokenizer that drafts tokens: the same answer, sooner where it guesses well.",
)
PREFIX_CACHE = click.Option(
    ["--prefix-cache"],
    metavar="FOLDER",
    expose_value=False,
    callback=choose,
    help="Keep what was computed of long prompts in this folder: a system prompt is read once, not after each start.",
)
