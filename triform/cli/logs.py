"""`triform logs`, and how chats and answers get into the history: only after `triform logs --on`."""

import json
import sqlite3

import click
from rich.console import Console
from rich.text import Text

from triform.errors import TriformError
from triform.files.history import HistoryFile
from triform.hints import Hint


def find_history() -> HistoryFile:
    from triform.weights.model_store import home_folder

    return HistoryFile(home_folder() / "history.db")


def remember(command: str, model: str, prompt: str, answer: str) -> None:
    """Adds to the history, where it is on; a history that cannot be written hinders nothing."""
    history = find_history()
    if history.exists():
        try:
            history.add(command, model, prompt, answer)
        except sqlite3.Error as error:
            click.echo(f"the history {history.path} cannot be written: {error}", err=True)


@click.command()
@click.option(
    "-n", "count", type=click.IntRange(1, 100_000), default=5, show_default=True, help="How many, newest last."
)
@click.option("--find", "words", default="", metavar="TEXT", help="Only those with this text.")
@click.option("--on", "turn_on", is_flag=True, help="Begin to keep prompts and answers.")
@click.option("--off", "turn_off", is_flag=True, help="Stop, and delete what was kept.")
@click.option("--path", "show_path", is_flag=True, help="Print where the history is.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def logs(count: int, words: str, turn_on: bool, turn_off: bool, show_path: bool, as_json: bool) -> None:
    """Show the last prompts and answers. Nothing is kept before `triform logs --on`; it stays on this machine.

    Kept are chats and single prompts of `chat` and `ask`, in an SQLite file.

    \b
    Examples:
      triform logs --on
      triform logs -n 20 --find lions
      triform logs --off
    """
    history = find_history()
    try:
        if turn_on or turn_off:
            switch(history, on=turn_on)
        elif show_path:
            click.echo(history.path)
        elif not history.exists():
            raise TriformError(f"the history is off; turn it on with: {Hint.LOGS_ON}")
        else:
            show_entries(history, count, words, as_json=as_json)
    except sqlite3.Error as error:
        raise TriformError(f"the history {history.path} cannot be read: {error}; --off deletes it") from None


def switch(history: HistoryFile, *, on: bool) -> None:
    """Begins the history, or ends and deletes it."""
    if on:
        history.create()
        click.echo(f"prompts and answers are kept in {history.path}")
    else:
        history.path.unlink(missing_ok=True)
        click.echo("nothing is kept any more, and what was kept is deleted")


def show_entries(history: HistoryFile, count: int, words: str, *, as_json: bool) -> None:
    """Prints the entries, the oldest of them first."""
    console = Console()
    for entry in reversed(list(history.read(count=count, words=words))):
        if as_json:
            click.echo(json.dumps(entry._asdict(), ensure_ascii=False))
        else:
            console.print(Text(f"{entry.at}  {entry.command}  {entry.model}", style="bold"))
            console.print(Text(f"> {entry.prompt}"), soft_wrap=True)
            console.print(Text(f"{entry.answer}\n"), soft_wrap=True)
