"""`/openapi.json`, made from the table of routes, the request types and the limits of this service."""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import msgspec

from triform.serve.http.http_errors import ErrorResponse
from triform.serve.http.limits import FIELD_LIMITS
from triform.serve.routes import ROUTES, Route
from triform.serve.worker.service import Service

Json = dict[str, Any]
REF = "#/components/schemas/{name}"
EVENT = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
ERROR_DESCRIPTIONS = {
    400: "Invalid request; the message says which field, why, and what is accepted.",
    401: "An API key is required.",
    404: "No such model, index or path.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    421: "This host name is not allowed.",
    429: "The queue is full; Retry-After says when to retry.",
    431: "Path and headers are too large.",
    500: "Internal error in this request.",
    503: "Not ready, or stopping.",
    504: "The request took too long.",
}


def describe_api(service: Service) -> Json:
    """OpenAPI 3.1"""
    types = [kind for route in ROUTES for kind in (route.takes, route.gives, route.pieces) if kind is not None]
    schemas, components = msgspec.json.schema_components([*types, ErrorResponse], ref_template=REF)
    for component in components.values():
        simplify_tuples(component)
    schema_of = dict(zip(map(id, [*types, ErrorResponse]), schemas, strict=True))
    for route in ROUTES:
        if route.takes is not None:
            name = schema_of[id(route.takes)]["$ref"].rpartition("/")[2]
            apply_limits(components[name], service, task=route.task)
    paths: Json = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = describe_operation(route, service, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Triform", "version": version("triform"), "summary": "Every task of the served models."},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }


def describe_operation(route: Route, service: Service, schema_of: dict[int, Json]) -> Json:
    """One route as an OpenAPI operation."""
    kind = "text/plain" if route.gives is str else "application/json"
    content: Json = {kind: {"schema": schema_of[id(route.gives)]}}
    if route.pieces is not None:
        content["text/event-stream"] = {"schema": EVENT}
    refused = {"application/json": {"schema": schema_of[id(ErrorResponse)]}}
    described: Json = {
        "operationId": route.does.__name__,
        "summary": route.says,
        "responses": {
            "200": {"description": "The response.", "content": content},
            **{str(status): {"description": says, "content": refused} for status, says in ERROR_DESCRIPTIONS.items()},
        },
    }
    if route.takes is not None:
        body = {"schema": schema_of[id(route.takes)]}
        described["requestBody"] = {"required": True, "content": {"application/json": body}}
    if "{model}" in route.path:
        schema = {"type": "string", "enum": list(service.models)}
        described["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": schema}]
    return described


def apply_limits(component: Json, service: Service, *, task: str) -> None:
    """Adds the limits of this service, and the models that support the task."""
    for name, schema in component["properties"].items():
        is_bounded = name in FIELD_LIMITS or schema.get("type") == "array"
        if is_bounded and name not in ("prompt", "input"):  # a list of ids may be longer than one of texts
            set_maximum(schema, getattr(service.limits, FIELD_LIMITS.get(name, "items")))
        if name == "stop":
            for text in find_strings(schema):
                text["maxLength"] = service.limits.stop_characters
        if name == "logit_bias":
            schema["anyOf"][0]["propertyNames"] = {"pattern": "^(0|[1-9][0-9]{0,8})$"}
        if name == "model":
            able = [model for model, served in service.models.items() if not task or task in served.tasks]
            owners = [model for model in able if service.models[model].indexes]
            schema["enum"] = (owners if task == "search" and service.indexes else able) or [""]
            if "default" in schema:  # may be left out if only one model is served
                require_model(component, schema, several=len(service.models) > 1)
        if name == "index":
            schema["enum"] = list(service.indexes) or [""]


def require_model(component: Json, schema: Json, *, several: bool) -> None:
    """With one model the default "" is allowed, and must be among the values; with several, `model` is required."""
    if several:
        del schema["default"]
        component["required"] = [*component.get("required", ()), "model"]
    else:
        schema["enum"] = [*schema["enum"], schema["default"]]


def simplify_tuples(schema: Any) -> None:
    """Describes [from, to] as a list: client generators know neither `prefixItems` nor `items: false`."""
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        simplify_tuples(part)
    if isinstance(schema, dict) and schema.get("type") == "array":
        schema.setdefault("items", {})  # of any kind; the generators expect it to be said
    if isinstance(schema, dict) and schema.get("items") is False:
        first, *others = schema.pop("prefixItems")
        if any(other != first for other in others):
            raise TypeError(f"a tuple of different types cannot be described: {first}, {others}")
        schema["items"] = first


def set_maximum(schema: Json, most: int) -> None:
    """Sets the largest value or length in a field's schema."""
    for part in (schema, *schema.get("anyOf", ())):
        match part.get("type"):
            case "integer":
                part.pop("exclusiveMaximum", None)
                part["maximum"] = most
            case "array":
                part["maxItems"] = most
            case "object":
                part["maxProperties"] = most


def find_strings(schema: Json) -> Iterator[Json]:
    """The string schemas within a field's schema."""
    for part in (schema, *schema.get("anyOf", ())):
        if part.get("type") == "string":
            yield part
        elif part.get("type") == "array":
            yield from find_strings(part["items"])
