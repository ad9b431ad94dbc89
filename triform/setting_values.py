"""Settings as typed (`key=value`) and from TOML, parsed by the type of their field.

The error for an invalid value names the setting, the value, and what is allowed. Knows no settings of its own.
"""

import tomllib
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from triform.errors import TriformError

T = TypeVar("T", bound=msgspec.Struct)
MAX_SHOWN_CHARACTERS = 80  # of a value in a message
TYPE_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", NoneType: "none"}


def parse_value(kind: type[msgspec.Struct], name: str, text: str) -> object:
    """The value of one field: `none`, a list by comma or in TOML, any TOML value, else a word."""
    types = _list_choices(get_type_hints(kind)[name])
    if text.lower() == "none" and NoneType in types:
        return None
    if any(get_origin(option) is tuple for option in types):
        return _parse_list(name, text)
    try:
        value: object = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return text if str in types and not isinstance(value, str) else value


def _parse_list(name: str, text: str) -> tuple[str, ...]:
    """`a, b`, or in TOML `["a", "b"]` and `"a", "b"`."""
    if not text.startswith("[") and not {'"', "'"} & set(text):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        items = tomllib.loads(f"value = {text if text.startswith('[') else f'[{text}]'}")["value"]
    except tomllib.TOMLDecodeError:
        raise TriformError(f'{name}={shorten(text)} is not a list; write a,b or ["a", "b"]') from None
    return tuple(items)


def convert(kind: type[T], values: Mapping[str, object]) -> T:
    """The settings, or an error about the first invalid value."""
    hints = get_type_hints(kind)
    for name, value in values.items():
        try:
            msgspec.convert(value, hints[name], strict=True)
        except msgspec.ValidationError:
            raise TriformError(f"{name}={shorten(value)} is not valid; use {describe(hints[name])}") from None
    try:
        return msgspec.convert(dict(values), kind, strict=True)
    except msgspec.ValidationError as error:  # from the struct's own check
        raise TriformError(str(error)) from None


def describe(kind: Any) -> str:
    """What a field of this type may hold: `float32 or bfloat16`, `a whole number or none`."""
    words = [word for option in _list_choices(kind) for word in _describe_choice(option)]
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def _list_choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _describe_choice(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [str(value) for value in get_args(kind)]
    if get_origin(kind) is tuple:
        return ['a list (a,b or ["a", "b"])']
    if get_origin(kind) is dict:
        return ['a table ({name = "value"})']
    return [TYPE_WORDS[kind]]


def shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}…"
