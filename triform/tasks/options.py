"""The options of a task: one frozen struct, from which flags, HTTP fields, forms and Python's keywords are made.

    class Options(TaskOptions, frozen=True, kw_only=True):
        top: Annotated[int, Meta(ge=1, description="how many labels to show")] = 5

`Meta(extra=…)`: `flags` ["-k", "--candidates"] instead of the name; `http` another name over HTTP, False: not offered;
`form` what the playground begins with, False: not shown; `only` "python": neither flag nor HTTP nor form.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from triform.errors import TriformError
from triform.generate.settings import SettingsError

Count: TypeAlias = Annotated[int, Meta(ge=1, lt=2**31)]
Line: TypeAlias = Annotated[str, Meta(min_length=1)]
Lines: TypeAlias = Line | Annotated[list[Line], Meta(min_length=1)]


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a task; the base has none."""


class UnknownOption(TriformError, TypeError):
    """An option that does not exist: the same words on the command line, over HTTP, in the client and in Python."""

    def __init__(self, task: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = get_close_matches(name, names, n=1, cutoff=0.6)
        way_out = f"it has {', '.join(names) or 'none'}"
        super().__init__(f"{task} has no option {name[:80]!r}; " + (f"did you mean {near[0]!r}?" if near else way_out))
        self.field = name[:80]


class OptionField(NamedTuple):
    """One option: its type without None and without `Annotated`, its bounds and words, and where it is offered."""

    name: str
    type: Any  # as it was written
    plain: Any  # int, float, bool, str, a Literal, a tuple or a dict
    default: Any
    is_optional: bool
    ge: float | None = None
    le: float | None = None
    title: str = ""
    description: str = ""
    extra: Mapping[str, Any] = {}

    @property
    def http_name(self) -> str | None:
        """Its name in a request; None where it is not offered over HTTP."""
        return None if self.is_python_only else self.extra.get("http", self.name) or None

    @property
    def is_python_only(self) -> bool:
        return self.extra.get("only") == "python"

    @property
    def flags(self) -> list[str]:
        return [] if self.is_python_only else self.extra.get("flags", [f"--{self.name.replace('_', '-')}"])

    def check(self, value: Any) -> Any:
        """The value, if it fits."""
        try:
            return msgspec.convert(value, self.type, strict=True)
        except msgspec.ValidationError:
            raise SettingsError(f"{self.name}={value!r} is out of range; use {self.describe()}") from None

    def describe(self) -> str:
        if get_origin(self.plain) is Literal:
            return " or ".join(map(repr, get_args(self.plain)))
        words = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}
        least = "" if self.ge is None else f" from {self.ge:g}"
        most = "" if self.le is None else f" to {self.le:g}"
        return words.get(self.plain, "a list") + least + most


def fields_of(options: type[msgspec.Struct]) -> tuple[OptionField, ...]:
    hints = get_type_hints(options, include_extras=True)
    return tuple(_field(one.name, hints[one.name], _default(one)) for one in msgspec.structs.fields(options))


def _default(field: Any) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _field(name: str, kind: Any, default: Any) -> OptionField:
    metas: list[Meta] = []
    parts = [_unwrap(part, metas) for part in _alternatives(_unwrap(kind, metas))]
    plain = next((part for part in parts if part is not NoneType), NoneType)
    said = {key: getattr(one, key) for key in KEYS for one in reversed(metas) if getattr(one, key) is not None}
    return OptionField(name, kind, plain, default, NoneType in parts, **said)


KEYS = ("ge", "le", "title", "description", "extra")


def _unwrap(kind: Any, metas: list[Meta]) -> Any:
    if get_origin(kind) is not Annotated:
        return kind
    inner, *found = get_args(kind)
    metas += found
    return inner


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
