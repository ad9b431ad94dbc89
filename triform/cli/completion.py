"""`triform completion`, and what the shell completes: commands, models, tasks, files."""

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from triform.errors import TriformError

if TYPE_CHECKING:
    TextType = click.ParamType[str]
else:
    TextType = click.ParamType  # not generic in older versions

SHELLS = ("bash", "zsh", "fish")


class ModelName(TextType):
    """A model: a stored one, a released size, or a folder."""

    name = "model"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from triform.families import NAMED
        from triform.weights.model_store import list_folders

        names = [*(folder.name for folder in list_folders()), *NAMED]
        found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="dir")]


class TaskName(TextType):
    """A task, with its line of help."""

    name = "task"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from triform.tasks import TASKS

        return [CompletionItem(name, help=row.summary) for name, row in TASKS.items() if name.startswith(incomplete)]


class FileName(TextType):
    """A file or folder."""

    name = "file"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


MODELS = {"model", "models", "base", "reranker", "embedding_model"}
FILES = {"file", "data", "valid", "train", "context", "index", "places", "source", "tokenizer", "config"}


def add_completion(command: click.Command) -> None:
    """Gives every parameter that is a plain text, and names a model, task or file, what completes it."""
    for param in command.params:
        if param.type is click.STRING:
            if param.name in MODELS:
                param.type = ModelName()
            elif param.name == "task":
                param.type = TaskName()
            elif param.name in FILES:
                param.type = FileName()


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that lets SHELL complete commands, model names, tasks and files.

    \b
    Examples:
      eval "$(triform completion bash)"                                   # now; or this line in ~/.bashrc
      eval "$(triform completion zsh)"
      triform completion fish > ~/.config/fish/completions/triform.fish
    """
    made = get_completion_class(shell)
    if made is None:
        raise TriformError(f"completion for {shell} is not known; use {', '.join(SHELLS)}")
    root = ctx.find_root()
    click.echo(made(root.command, {}, "triform", "_TRIFORM_COMPLETE").source())
