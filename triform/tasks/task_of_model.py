"""Which task a model is for: the one it was trained on, which its folder remembers; else the first that it fits."""

from typing import Any

from triform.hints import Hint
from triform.model import Model
from triform.tasks import TASKS, named
from triform.tasks.chat import conversation
from triform.tasks.task import CannotDo, Task

# A head that can do several things does the first of these, unless its folder says otherwise.
PREFERRED = ("classify", "tag", "fill", "translate", "embed", "complete")


def own_task(model: Model) -> Task[Any, Any, Any]:
    known = model.memo.get("task")
    if isinstance(known, str) and known in TASKS:
        return named(known)
    for name in (*(("chat",) if model.template else ()), *PREFERRED, *TASKS):
        if named(name).fits(model):
            return named(name)
    raise CannotDo(f"this model ({model.spec.form}, head {type(model.spec.head).__name__}) can do none of the tasks")


def chosen(model: Model, task: str | None) -> Task[Any, Any, Any]:
    """The task that is asked for, if the model can do it; its own where none is."""
    found = own_task(model) if task is None else named(task)
    found.check(model)
    return found


def question_of(task: Task[Any, Any, Any], text: str) -> Any:
    """What a lone text asks of a task."""
    match task.name:
        case "chat":
            return conversation(text)
        case "answer":
            raise CannotDo(f"this model answers questions about a text: {Hint.ANSWER}")
        case "search":
            raise CannotDo(f"this model searches an index: {Hint.INDEX.format(folder='INDEX')}; then {Hint.SEARCH}")
    return text
