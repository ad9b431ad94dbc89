"""Commands made from tasks: `triform classify MODEL TEXT… --top 3` has its help, flags and output from the task's file.

    triform.cli.task_command:classify     the command of the task of that name

Refuses to know single tasks; what a file of questions is and how answers are written down is in `task_io`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
from rich.console import Console
from rich.text import Text

from triform.cli import input_rows, task_io
from triform.cli.answer_formats import InputItem
from triform.cli.run_identity import hash_input, hash_text
from triform.data import rows
from triform.errors import TriformError
from triform.tasks import get_task

if TYPE_CHECKING:
    from triform.tasks.options import OptionField
    from triform.tasks.task import Task

AnyCommand = Callable[..., Any]
CONTEXT_HELP = "The file with the text that the questions are about."


def __getattr__(name: str) -> click.Command:
    """The command of a task, by its name."""
    from triform.tasks import TASKS

    if name not in TASKS:
        raise AttributeError(name)
    return make_command(get_task(name))


def make_command(task: "Task[Any, Any, Any]") -> click.Command:
    """The command of a task: its flags come from the task's options."""

    def command(model: str, url: str | None, **given: Any) -> None:
        chosen = take_options(task, given)
        run = task_io.make_runner(task.name, model, url=url, chosen=chosen)
        answer_questions(task, run, about=chosen, chosen=chosen, **given)

    command = add_flags(task)(command)
    if is_about_context(task):
        command = click.option("--context", help=CONTEXT_HELP)(command)
    command = task_io.add_input_options(*task.input_rows)(task_io.add_url_option(command))
    if task.texts_are == "passages":
        command = click.argument("query")(command)
    return finish_command(task, click.argument("model")(command))


def finish_command(task: "Task[Any, Any, Any]", command: AnyCommand) -> click.Command:
    return click.command(task.name, cls=TaskCommand, help=task.help)(command)


class TaskCommand(click.Command):
    """Says of an unknown flag what the server and Python say of an unknown option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from triform.tasks.options import UnknownOption

        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            known = {flag.lstrip("-") for param in self.params for flag in param.opts if flag.startswith("-")}
            raise UnknownOption(str(self.name), error.option_name.lstrip("-"), known) from None


# --- flags ----------------------------------------------------------------------------------------------------------


def add_flags(task: "Task[Any, Any, Any]", **defaults: Any) -> Callable[[AnyCommand], AnyCommand]:
    """One flag per option of the task."""

    def decorate(command: AnyCommand) -> AnyCommand:
        for field in reversed(task.fields):
            if field.flags:
                command = make_flag(field, default=defaults.get(field.name))(command)
        return command

    return decorate


def make_flag(field: "OptionField", *, default: Any) -> Callable[[AnyCommand], AnyCommand]:
    """None, or False, where it was not given: then the task's default holds."""
    words: dict[str, Any] = {"help": field.description, "default": default, "show_default": default is not None}
    if field.plain is bool:
        return click.option(*field.flags, field.name, is_flag=True, help=field.description)
    if get_origin(field.plain) is Literal:
        return click.option(*field.flags, field.name, type=click.Choice(get_args(field.plain)), **words)
    if get_origin(field.plain) is tuple:
        separator = field.extra.get("separator")
        split = None if separator is None else lambda ctx, param, values: split_values(values, separator)
        return click.option(*field.flags, field.name, multiple=True, callback=split, help=field.description)
    return click.option(*field.flags, field.name, type=field.plain, **words)  # its range is checked by the task


def split_values(values: tuple[str, ...], separator: str) -> tuple[str, ...]:
    """All values of a flag that holds several at once."""
    parts = (part.strip() for value in values for part in value.split(separator))
    return tuple(part for part in parts if part)


def take_options(task: "Task[Any, Any, Any]", given: dict[str, Any]) -> dict[str, Any]:
    """Takes the task's options out of what was given; only those that were set, so that defaults hold."""
    values = {field.name: given.pop(field.name) for field in task.fields if field.flags}
    return {name: value for name, value in values.items() if value not in (None, ()) and value is not False}


# --- questions ------------------------------------------------------------------------------------------------------


def is_about_context(task: "Task[Any, Any, Any]") -> bool:
    return "context" in task.input.__struct_fields__


def answer_questions(
    task: "Task[Any, Any, Any]",
    run: task_io.Run,
    *,
    about: Mapping[str, Any],
    chosen: Mapping[str, Any],
    query: str | None = None,
    context: str | None = None,
    only_texts: bool = False,
    **given: Any,
) -> None:
    """Reads the questions from where they are, and prints or writes the answers; `only_texts`: of files with texts."""
    ask, about = task_io.CommandInput(**given), dict(about) | {"task": task.name}
    kind: type[rows.DataRow] = rows.TextRow
    of_row, of_text = task.question_of_row, task.question_of
    if only_texts:
        of_row = lambda row: of_text(row.text)  # noqa: E731
    elif ask.file is not None:
        kind = task.row_kind(Path(ask.file), ask.layout)
    if query is not None:
        from_passages = read_passages(ask)
        about |= {"query": query, "passages": hash_text("\n".join(from_passages))}
        ask = ask._replace(texts=(query,), file=None, whole=False)
        of_text = lambda text: task.question_about(text, from_passages)  # noqa: E731
    elif is_about_context(task):
        about |= {"context": hash_input(context)}
        if context is None and (ask.texts or ask.file is None):
            raise TriformError("a question needs a text to answer it from: --context FILE, or --file with both")
        old, new = ("text", "question") if context is None else ("question", "text")
        ask = ask._replace(layout=ask.layout.rename_field(old, new))
        if context is not None:
            known, kind = input_rows.read_whole_text(context), rows.TextRow
            of_text = lambda text: task.question_about(text, [known])  # noqa: E731
            of_row = lambda row: of_text(row.text)  # noqa: E731
    task_io.answer_input(
        ask,
        run,
        about=about,
        kind=kind,
        of_row=of_row,
        of_text=of_text,
        show=lambda answer: print_parts(task.render(answer, chosen=chosen)),
        line=lambda answer: task.line(answer, chosen=chosen),
        columns=lambda answer: task.columns(answer, chosen=chosen),
    )


def read_passages(ask: task_io.CommandInput) -> list[str]:
    """All texts of the input, which together belong to one question."""
    if ask.texts and ask.file:
        raise TriformError(f"there are texts and the file {ask.file}; give one or the other")
    here = [InputItem(number, text, input_rows.check_text(text)) for number, text in enumerate(ask.texts, start=1)]
    items, _ = task_io.read_items(ask, here, kind=rows.TextRow, of_row=lambda row: row.text, of_text=lambda text: text)
    passages = [item.question for item in items]
    for passage in passages:
        if isinstance(passage, rows.BadRow) and passage.kind != "blank":
            raise TriformError(str(passage))
    return [passage for passage in passages if isinstance(passage, str)]


def print_parts(parts: Sequence[Any]) -> None:
    """Prints strings and rich renderables, one below another."""
    for part in parts:
        if isinstance(part, str):
            click.echo(part)
        else:
            Console().print(part, soft_wrap=isinstance(part, Text))
