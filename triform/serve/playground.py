"""The playground: each task that a served model supports, as a small form for the page.

A form has the fields of a question, with the task's example, and the options that are numbers, flags or choices. What
is wrong with them is said by the route itself. Refuses to know how a form is drawn.
"""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias, get_args, get_origin

import msgspec

from triform.serve.routes import ROUTES, Route
from triform.serve.worker.service import ServedModel
from triform.tasks import get_task
from triform.tasks.options import OptionField, fields_of

Kind: TypeAlias = Literal["text", "lines", "number", "flag", "choice", "messages"]
LABELS = {
    "input": "texts, one per line",
    "documents": "documents, one per line",
    "choices": "answers, one per line",
    "messages": "your message",
}


class FormField(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One field of a request; a number that is left empty is not sent."""

    name: str
    kind: Kind
    label: str
    value: str | float | bool = ""
    least: float | None = None
    most: float | None = None
    step: float | None = None
    options: tuple[str, ...] = ()


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """The playground's form of one task."""

    task: str
    path: str
    says: str
    streams: bool
    fields: tuple[FormField, ...]


def make_forms(served: ServedModel) -> tuple[Form, ...]:
    """In the order of the routes; a search needs an index that was made with this model."""
    return tuple(
        Form(
            task=route.task,
            path=route.path.removeprefix("/"),
            says=route.says,
            streams=route.pieces is not None,
            fields=(*input_fields(route, served), *option_fields(route)),
        )
        for route in ROUTES
        if route.task in served.tasks and not route.is_alias and (route.task != "search" or served.indexes)
    )


def input_fields(route: Route, served: ServedModel) -> Iterator[FormField]:
    """The parts of a question, with what only this model knows: its mask token, its indexes."""
    for name, example in get_task(route.task).example.items():
        yield FormField(name=name, kind=input_kind(name), label=LABELS.get(name, name), value=fit_mask(example, served))
    if route.task == "search":
        names = tuple(sorted(served.indexes))
        yield FormField(name="index", kind="choice", label="index", value=names[0], options=names)


def input_kind(name: str) -> Kind:
    return "messages" if name == "messages" else "lines" if name in ("input", "documents", "choices") else "text"


def fit_mask(text: str, served: ServedModel) -> str:
    tokenizer = served.model.tokenizer
    return text if tokenizer is None or tokenizer.mask is None else text.replace("[MASK]", tokenizer.special["mask"])


def option_fields(route: Route) -> Iterator[FormField]:
    """The options that the route takes and that a form can show."""
    bounds = {field.name: field for field in fields_of(route.takes)} if route.takes else {}
    for field in get_task(route.task).fields:
        shown = bounds.get(field.http_name or "")
        if shown is not None and field.extra.get("form") is not False and (made := option_field(field, shown)):
            yield made


def option_field(field: OptionField, shown: OptionField) -> FormField | None:
    """None for lists, tables and words, which are rarely set."""
    start = field.extra.get("form", field.default)
    value: Any = "" if start is None else start
    label = field.title or field.name.replace("_", " ")
    if field.plain is bool:
        return FormField(name=shown.name, kind="flag", label=label, value=value)
    if get_origin(field.plain) is Literal:
        return FormField(name=shown.name, kind="choice", label=label, value=value, options=get_args(field.plain))
    if field.plain not in (int, float):
        return None
    step = 1 if field.plain is int else 0.1
    return FormField(name=shown.name, kind="number", label=label, value=value, least=shown.ge, most=shown.le, step=step)
