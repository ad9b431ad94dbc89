"""Whether the schema of a tool's arguments is a JSON schema: checked before a model reads it.

References are not followed.
"""

from collections.abc import Iterator
from typing import Any

MAX_DEPTH = 32
TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
ONE_SCHEMA = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SCHEMA_TABLES = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
TEXTS = ("pattern", "format", "title", "description", "$ref")


def check_schema(schema: Any) -> str:
    """What is wrong with the schema of an object's fields; "" if nothing is. Without recursion, which a client could
    exhaust."""
    if isinstance(schema, dict) and schema.get("type", "object") != "object":
        return f"the parameters have type {str(schema['type'])[:40]!r}; use 'object'"
    level = [("", schema)]
    for _ in range(MAX_DEPTH):
        inner: list[tuple[str, Any]] = []
        for path, one in level:
            if problem := find_problem(one):
                return f"{path or 'the schema'} is no JSON schema: {problem}"
            if isinstance(one, dict):
                inner += ((f"{path}.{name}".strip("."), part) for name, part in list_parts(one))
        if not inner:
            return ""
        level = inner
    return f"the schema is nested more than {MAX_DEPTH} levels deep"


def find_problem(schema: Any) -> str:
    """What is wrong with one level of a schema."""
    if isinstance(schema, bool):
        return ""
    if not isinstance(schema, dict):
        return f"an object or true or false is expected, not {type(schema).__name__}"
    types = schema.get("type", [])
    for name in types if isinstance(types, list) else [types]:
        if not isinstance(name, str) or name not in TYPES:
            return f"type {str(name)[:40]!r} is not one of {', '.join(sorted(TYPES))}"
    for name, wanted, said in SHAPES:
        if name in schema and not wanted(schema[name]):
            return f"{name!r} must be {said}"
    return ""


def list_parts(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas inside one, with their paths."""
    for name in ONE_SCHEMA:
        if name in schema:
            yield name, schema[name]
    for name in SCHEMA_LISTS:
        yield from ((f"{name}[{at}]", part) for at, part in enumerate(schema.get(name, ())))
    for name in SCHEMA_TABLES:
        yield from ((f"{name}.{key[:40]}", part) for key, part in schema.get(name, {}).items())


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_name_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


SHAPES = (
    *((name, is_number, "a number") for name in NUMBERS),
    *((name, is_count, "a whole number from 0 up") for name in COUNTS),
    *((name, lambda value: isinstance(value, str), "a text") for name in TEXTS),
    *((name, lambda value: isinstance(value, list) and value, "a list, not empty") for name in (*SCHEMA_LISTS, "enum")),
    *((name, lambda value: isinstance(value, dict), "an object") for name in SCHEMA_TABLES),
    ("required", is_name_list, "a list of names"),
)
