"""Which task a model is for: the one it was trained on, which its folder remembers; else the first that it supports."""

from typing import Any

from triform.model import Model
from triform.tasks import get_task, own_task_of
from triform.tasks.task import CannotDo, Task, describe_head, name_model


def own_task(model: Model) -> Task[Any, Any, Any]:
    """The task that a model was made for."""
    name = own_task_of(model)
    if name is None:
        raise CannotDo(f"{name_model(model)} is {describe_head(model)}, which can do none of the tasks")
    return get_task(name)


def choose_task(model: Model, task: str | None) -> Task[Any, Any, Any]:
    """The task of this name, if the model supports it; its own where none is named."""
    found = own_task(model) if task is None else get_task(task)
    found.check(model)
    return found
