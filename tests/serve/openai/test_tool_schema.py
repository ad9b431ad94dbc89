"""Schemas of tools: what is no JSON schema is said, with its place."""

from typing import Any

import pytest

from triform.serve.openai.tool_schema import MAX_DEPTH, check_schema

GOOD: list[Any] = [
    {},
    {"type": "object", "properties": {"city": {"type": ["string", "null"], "enum": ["Rome"]}}, "required": ["city"]},
    {"properties": {"a": {"anyOf": [{"type": "integer", "minimum": 1}, True]}, "b": {"$ref": "#/$defs/b"}}},
    {"additionalProperties": False, "properties": {"l": {"type": "array", "items": {"type": "number"}, "maxItems": 3}}},
]  # fmt: skip
BAD: list[tuple[Any, str]] = [
    ({"type": "string"}, "use 'object'"),
    ({"properties": {"city": {"type": "text"}}}, "properties.city is no JSON schema: type 'text'"),
    ({"properties": {"city": "string"}}, "properties.city is no JSON schema: an object or true or false"),
    ({"properties": []}, "'properties' must be an object"),
    ({"required": "city"}, "'required' must be a list of names"),
    ({"properties": {"n": {"minimum": "1"}}}, "'minimum' must be a number"),
    ({"properties": {"n": {"maxLength": -1}}}, "'maxLength' must be a whole number"),
    ({"properties": {"n": {"enum": []}}}, "'enum' must be a list"),
    ({"anyOf": {}}, "'anyOf' must be a list"),
]


@pytest.mark.parametrize("schema", GOOD, ids=range(len(GOOD)))
def test_schemas(schema: Any) -> None:
    assert check_schema(schema) == ""


@pytest.mark.parametrize(("schema", "said"), BAD, ids=[said for _, said in BAD])
def test_what_is_none(schema: Any, said: str) -> None:
    assert said in check_schema(schema)


def test_depth_is_bounded() -> None:
    schema: dict[str, Any] = {}
    for _ in range(MAX_DEPTH + 1):
        schema = {"properties": {"a": schema}}
    assert "nested more than" in check_schema(schema)
