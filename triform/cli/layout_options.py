"""Options for what a file's name and header do not tell: `--text-column` and its like, and `--format`.

    @click.command()
    @layout_options(Labelled)
    def lint(layout: Layout, **given: Any) -> None: ...

One place for every command that reads rows. Refuses to know files and what is done with rows.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from triform.data.column_suggestions import name_option
from triform.data.columns import Layout
from triform.data.formats import FORMAT_KEYS
from triform.data.rows import DataRow

format_option = click.option(
    "--format", type=click.Choice(FORMAT_KEYS), help="The file format, if the name does not tell it."
)


def layout_options(*kinds: type[DataRow]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option for the column of each field of these kinds of rows, and `--format`: the command gets a `layout`."""
    fields = tuple(dict.fromkeys(field for kind in kinds for field in (*kind.needs, *kind.may)))

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_layout(*args: Any, **given: Any) -> Any:
            named = {field: given.pop(_parameter(field)) for field in fields}
            columns = {field: parse_column(name) for field, name in named.items() if name is not None}
            return command(*args, layout=Layout(columns, given.pop("format")), **given)

        made: Callable[..., Any] = format_option(with_layout)
        for field in reversed(fields):
            made = _option(field, fields)(made)
        return made

    return decorate


def _option(field: str, fields: tuple[str, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """In the help the first stands for all of them; `--column` is an older name for that of the text."""
    others = ", ".join(map(name_option, fields[1:]))
    says = "The column or JSON key of the " + field + ": name, or 0-based number if there is no header."
    if others:
        says += f" Also {others}."
    names = (name_option(field), *(("--column",) if field == "text" else ()))
    return click.option(*names, _parameter(field), metavar="NAME", help=says, hidden=field != fields[0])


def _parameter(field: str) -> str:
    return f"{field}_column"


def parse_column(name: str) -> str | int:
    """A number is the place of a column, anything else its name."""
    return int(name) if name.isdecimal() else name
