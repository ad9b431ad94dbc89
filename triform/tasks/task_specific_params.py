"""`task_specific_params`: a folder's defaults for each of several tasks (T5): how to write, and a prefix to every text.

A model that was trained here for a task was shown no prefix, so nothing of this is its own any more.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from triform.errors import InputError, UnknownName
from triform.model import Model
from triform.weights import generation_config
from triform.weights.config_fields import Config

SUMMARIZATION = "summarization"
TRANSLATION = "translation_"


class PreparedModel(NamedTuple):
    """A model with the generation defaults of one task, and what stands before every text it reads."""

    model: Model
    prefix: str = ""

    def add_prefix(self, text: str) -> str:
        return text if text.startswith(self.prefix) else self.prefix + text


def prepare(model: Model, name: str) -> PreparedModel:
    """For the task of this name, where the folder says something of it."""
    tasks = get_params(model)
    if name not in tasks:
        return PreparedModel(model)
    defaults = generation_config.apply_task(model.generation, model.config, name)
    return PreparedModel(model.replace(generation=defaults), get_prefix(tasks[name]))


def get_params(model: Model) -> dict[str, Config]:
    return {} if "task" in model.memo else generation_config.list_tasks(model.config)


def get_prefix(said: Mapping[str, object]) -> str:
    prefix = said.get(generation_config.PREFIX)
    return prefix if isinstance(prefix, str) else ""


def find_pair(texts: Sequence[str], *, model: Model, pair: str | None) -> str:
    """The task that translates these texts: the pair that is asked for, the only one, or that of their prefix."""
    tasks = {name: said for name, said in get_params(model).items() if name.startswith(TRANSLATION)}
    pairs = {name.removeprefix(TRANSLATION).replace("_to_", "-"): name for name in tasks}
    if pair is not None:
        asked = pair.removeprefix(TRANSLATION).replace("_to_", "-")
        if not pairs:
            raise InputError(
                f"this model's folder names no language pairs, so {pair!r} cannot be chosen; leave it out", field="pair"
            )
        if asked not in pairs:
            raise UnknownName("language pair", pair, pairs, field="pair")
        return pairs[asked]
    if len(tasks) <= 1:
        return next(iter(tasks), "")
    for name, said in tasks.items():
        if get_prefix(said) and all(text.startswith(get_prefix(said)) for text in texts):
            return name
    raise InputError(f"this model translates several pairs; say which: pair={' or '.join(map(repr, sorted(pairs)))}")
