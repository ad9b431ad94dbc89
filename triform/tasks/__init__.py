"""One file a task: its rows, its objective, its metric, how it is run, what it answers.

This door knows their names only; a task's file is imported when it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from triform.errors import UnknownName

if TYPE_CHECKING:
    from triform.tasks.task import Task

TASKS: dict[str, str] = {
    "answer": "triform.tasks.answer:Answer",
    "chat": "triform.tasks.chat:Chat",
    "classify": "triform.tasks.classify:Classify",
    "complete": "triform.tasks.complete:Complete",
    "embed": "triform.tasks.embed:Embed",
    "fill": "triform.tasks.fill:Fill",
    "search": "triform.tasks.search:Search",
    "summarize": "triform.tasks.summarize:Summarize",
    "tag": "triform.tasks.tag:Tag",
    "translate": "triform.tasks.translate:Translate",
}


def named(name: str) -> "Task[Any, Any, Any]":
    """The task of this name."""
    if name not in TASKS:
        raise UnknownName("task", name, TASKS)
    module, kind = TASKS[name].split(":")
    task: Task[Any, Any, Any] = getattr(import_module(module), kind)()
    return task
