"""Commands and page lessons that other packages add, found through entry points.

A package names an `Extension` in its metadata, under the group `triform.extensions`:

    [project.entry-points."triform.extensions"]
    lectures = "triform_lectures:EXTENSION"

The library works without any of them. An extension's module must be cheap to import: `triform --help` reads it.
"""

from functools import cache
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol

GROUP = "triform.extensions"


class Lessons(Protocol):
    """A module with lessons for the page, as JSON values."""

    def contents(self) -> list[dict[str, Any]]:
        """The chapters with the titles of their lessons; runs nothing."""

    def chapter(self, name: str) -> dict[str, Any]:
        """One chapter with the results of its lessons."""

    def everything(self) -> dict[str, Any]:
        """All chapters, for a page saved as a file."""


class Extension(NamedTuple):
    """`commands`: name → ("module:function", one line of help); `lessons`: the name of a `Lessons` module."""

    commands: dict[str, tuple[str, str]] = {}  # noqa: RUF012
    lessons: str = ""


@cache
def find_extensions() -> tuple[Extension, ...]:
    """The extensions of all installed packages, in the order of their names."""
    return tuple(point.load() for point in sorted(entry_points(group=GROUP), key=lambda point: point.name))


def find_commands() -> dict[str, tuple[str, str]]:
    """The commands that extensions add."""
    return {name: command for extension in find_extensions() for name, command in extension.commands.items()}


@cache
def find_lessons() -> Lessons | None:
    """The lessons for the page, or None if no package has any."""
    from importlib import import_module

    for extension in find_extensions():
        if extension.lessons:
            module: Any = import_module(extension.lessons)
            return module
    return None
