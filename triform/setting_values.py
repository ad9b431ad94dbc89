"""Settings as people type them (`key=value`) and as TOML has them, read by the type of their field.

Owns what is said of a value that does not fit: the setting, the value, and what may stand there instead. Knows no
settings of its own.
"""

import tomllib
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from triform.errors import TriformError

T = TypeVar("T", bound=msgspec.Struct)
LONGEST = 80  # characters of a value that are repeated
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", NoneType: "none"}


def parse_value(kind: type[msgspec.Struct], name: str, text: str) -> object:
    """The value of one field: `none` for absence, lists by comma or as TOML, else as TOML has it, else a word."""
    types = _choices(get_type_hints(kind)[name])
    if text.lower() == "none" and NoneType in types:
        return None
    if any(get_origin(each) is tuple for each in types):
        return _parse_list(name, text)
    try:
        value: object = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return text if str in types and not isinstance(value, str) else value


def _parse_list(name: str, text: str) -> tuple[str, ...]:
    """`a, b` as it is typed, `["a", "b"]` and `"a", "b"` as TOML has them."""
    if not text.startswith("[") and not {'"', "'"} & set(text):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        found = tomllib.loads(f"value = {text if text.startswith('[') else f'[{text}]'}")["value"]
    except tomllib.TOMLDecodeError:
        raise TriformError(f'{name}={shorten(text)} is not a list; write a,b or ["a", "b"]') from None
    return tuple(found)


def convert(kind: type[T], values: Mapping[str, object]) -> T:
    """The settings, or one line about the first value that does not fit."""
    hints = get_type_hints(kind)
    for name, value in values.items():
        try:
            msgspec.convert(value, hints[name], strict=True)
        except msgspec.ValidationError:
            raise TriformError(f"{name}={shorten(value)} is not possible; use {describe(hints[name])}") from None
    try:
        return msgspec.convert(dict(values), kind, strict=True)
    except msgspec.ValidationError as error:  # of the struct's own check, whose words they are
        raise TriformError(str(error)) from None


def describe(kind: Any) -> str:
    """What a field of this type may hold: `float32 or bfloat16`, `a whole number or none`."""
    words = [word for each in _choices(kind) for word in _words(each)]
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def _choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _words(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [str(value) for value in get_args(kind)]
    if get_origin(kind) is tuple:
        return ['a list (a,b or ["a", "b"])']
    if get_origin(kind) is dict:
        return ['a table ({name = "value"})']
    return [WORDS[kind]]


def shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
