"""The playground: each task that a served model can do, as a small form for the page.

Paths and sentences come from the table of routes; of a request's many fields a form has the few that a person would
turn. What is wrong with them is said by the route itself. Refuses to know how a form is drawn.
"""

from typing import Literal, TypeAlias

import msgspec

from triform.serve.page_routes import OPENING
from triform.serve.routes import ROUTES
from triform.serve.worker.service import Served

Kind: TypeAlias = Literal["text", "lines", "number", "flag", "choice", "messages"]


class Field(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
    task: str
    path: str
    says: str
    streams: bool
    fields: tuple[Field, ...]


def text(name: str, value: str, label: str = "") -> Field:
    return Field(name=name, kind="text", label=label or name, value=value)


def count(name: str, label: str, value: str | float = "", *, most: float | None = None) -> Field:
    return Field(name=name, kind="number", label=label, value=value, least=1, most=most, step=1)


TEMPERATURE = Field(name="temperature", kind="number", label="temperature", value=0, least=0, most=2, step=0.1)
SEED = Field(name="seed", kind="number", label="seed", least=0, step=1)
WRITING = (count("max_tokens", "tokens at most", 48), TEMPERATURE, SEED)
SEARCHING = (count("max_tokens", "tokens at most"), count("beams", "beams", most=8))
CONTEXT = "The fat ginger cat sat on a mat. A mole dug a hole beside it."

FIELDS: dict[str, tuple[Field, ...]] = {
    "complete": (text("prompt", "The fat ginger cat"), *WRITING),
    "chat": (Field(name="messages", kind="messages", label="your message", value="Who sat on the mat?"), *WRITING),
    "translate": (
        text("text", f"The {OPENING[4:]}."),
        *SEARCHING,
        Field(name="alignment", kind="flag", label="who looked at whom", value=False),
    ),
    "summarize": (text("text", CONTEXT), *SEARCHING),
    "classify": (text("text", OPENING), count("top", "labels at most", 5)),
    "tag": (text("text", "A sea lion from Lima sat on a mat."),),
    "answer": (text("question", "Who sat on the mat?"), text("context", CONTEXT)),
    "fill": (text("text", OPENING), count("k", "words a mask", 5)),
    "embed": (Field(name="input", kind="lines", label="texts, one a line", value="sea lion\nlion\ncuddly toy\nmole"),),
    "search": (text("text", "Who digs holes?"), count("k", "passages at most", 5)),
}


def forms(served: Served) -> tuple[Form, ...]:
    """In the order of the routes; a search needs an index that was made with this model."""
    return tuple(
        Form(
            task=route.task,
            path=route.path.removeprefix("/"),
            says=route.says,
            streams=route.pieces is not None,
            fields=fields(route.task, served),
        )
        for route in ROUTES
        if route.task in served.tasks and (route.task != "search" or served.indexes)
    )


def fields(task: str, served: Served) -> tuple[Field, ...]:
    """With what only this model knows: how it writes its mask, which indexes are its own."""
    found = FIELDS[task]
    if task == "search":
        names = tuple(sorted(served.indexes))
        return *found, Field(name="index", kind="choice", label="index", value=names[0], options=names)
    if task == "fill" and served.model.tokenizer is not None:
        mask = served.model.tokenizer.special["mask"]
        return msgspec.structs.replace(found[0], value=OPENING.replace("sat", mask)), *found[1:]
    return found
