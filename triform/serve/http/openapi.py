"""`/openapi.json` and `/docs`, made from the table of routes, the request types and the limits of this service."""

from collections.abc import Iterator
from html import escape
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.responses import Response

from triform.page.export_html import hashed
from triform.serve.http.http_errors import ErrorAnswer
from triform.serve.http.limits import BOUNDS
from triform.serve.http.request_context import Call
from triform.serve.routes import ROUTES, Route
from triform.serve.worker.service import Service

Json = dict[str, Any]
REF = "#/components/schemas/{name}"
EVENT = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
REFUSED = {
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


def description(service: Service) -> Json:
    """OpenAPI 3.1"""
    types = [kind for route in ROUTES for kind in (route.takes, route.gives, route.pieces) if kind is not None]
    schemas, components = msgspec.json.schema_components([*types, ErrorAnswer], ref_template=REF)
    for component in components.values():
        plain_tuples(component)
    schema_of = dict(zip(map(id, [*types, ErrorAnswer]), schemas, strict=True))
    for route in ROUTES:
        if route.takes is not None:
            name = schema_of[id(route.takes)]["$ref"].rpartition("/")[2]
            narrow(components[name], service, task=route.task)
    paths: Json = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = operation(route, service, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Triform", "version": version("triform"), "summary": "Every task of the served models."},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }


def operation(route: Route, service: Service, schema_of: dict[int, Json]) -> Json:
    kind = "text/plain" if route.gives is str else "application/json"
    content: Json = {kind: {"schema": schema_of[id(route.gives)]}}
    if route.pieces is not None:
        content["text/event-stream"] = {"schema": EVENT}
    refused = {"application/json": {"schema": schema_of[id(ErrorAnswer)]}}
    described: Json = {
        "operationId": route.does.__name__,
        "summary": route.says,
        "responses": {
            "200": {"description": "The response.", "content": content},
            **{str(status): {"description": says, "content": refused} for status, says in REFUSED.items()},
        },
    }
    if route.takes is not None:
        body = {"schema": schema_of[id(route.takes)]}
        described["requestBody"] = {"required": True, "content": {"application/json": body}}
    if "{model}" in route.path:
        schema = {"type": "string", "enum": list(service.models)}
        described["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": schema}]
    return described


def narrow(component: Json, service: Service, *, task: str) -> None:
    """Adds the limits of this service, and the models that support the task."""
    for name, schema in component["properties"].items():
        is_bounded = name in BOUNDS or schema.get("type") == "array"
        if is_bounded and name not in ("prompt", "input"):  # a list of ids may be longer than one of texts
            bound(schema, getattr(service.limits, BOUNDS.get(name, "items")))
        if name == "stop":
            for text in strings(schema):
                text["maxLength"] = service.limits.stop_characters
        if name == "logit_bias":
            schema["anyOf"][0]["propertyNames"] = {"pattern": "^(0|[1-9][0-9]{0,8})$"}
        if name == "model":
            able = [model for model, served in service.models.items() if not task or task in served.tasks]
            owners = [model for model in able if service.models[model].indexes]
            schema["enum"] = (owners if task == "search" and service.indexes else able) or [""]
            if "default" in schema:  # may be left out if only one model is served
                one_of(component, schema, several=len(service.models) > 1)
        if name == "index":
            schema["enum"] = list(service.indexes) or [""]


def one_of(component: Json, schema: Json, *, several: bool) -> None:
    """With one model the default "" is allowed, and must be among the values; with several, `model` is required."""
    if several:
        del schema["default"]
        component["required"] = [*component.get("required", ()), "model"]
    else:
        schema["enum"] = [*schema["enum"], schema["default"]]


def plain_tuples(schema: Any) -> None:
    """Describes [from, to] as a list: client generators know neither `prefixItems` nor `items: false`."""
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        plain_tuples(part)
    if isinstance(schema, dict) and schema.get("items") is False:
        first, *others = schema.pop("prefixItems")
        if any(other != first for other in others):
            raise TypeError(f"a tuple of different types cannot be described: {first}, {others}")
        schema["items"] = first


def bound(schema: Json, most: int) -> None:
    for part in (schema, *schema.get("anyOf", ())):
        match part.get("type"):
            case "integer":
                part.pop("exclusiveMaximum", None)
                part["maximum"] = most
            case "array":
                part["maxItems"] = most
            case "object":
                part["maxProperties"] = most


def strings(schema: Json) -> Iterator[Json]:
    for part in (schema, *schema.get("anyOf", ())):
        if part.get("type") == "string":
            yield part
        elif part.get("type") == "array":
            yield from strings(part["items"])


# --- for people -----------------------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 2.5rem; font-size: 1.1rem } code, h2 { font-family: ui-monospace, monospace }
table { border-collapse: collapse; width: 100%; font-size: .9rem }
th, td { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #8884 }
td { overflow-wrap: anywhere }
"""


def page(service: Service) -> str:
    described = description(service)
    schemas = described["components"]["schemas"]
    parts = [part for route in ROUTES for part in section(route, described["paths"], schemas)]
    models = ", ".join(f"<code>{escape(name)}</code>" for name in service.models)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Triform: the API</title><style>{STYLE}</style><h1>The API of this service</h1>"
        f"<p>Models: {models}. For programs: <a href=openapi.json>openapi.json</a>. OpenAI's clients work with the "
        f"base URL <code>/v1</code>. Errors are <code>{{'error': {{'message', 'type', 'param', 'code'}}}}"
        f"</code>; every response has an <code>x-request-id</code>.</p>" + "".join(parts)
    )


def section(route: Route, paths: Json, schemas: Json) -> Iterator[str]:
    yield f"<h2>{route.method} {escape(route.path)}</h2><p>{escape(route.says)}"
    yield " It can be streamed.</p>" if route.pieces is not None else "</p>"
    described = paths[route.path][route.method.lower()]
    if route.takes is not None:
        yield fields("request (* required)", described["requestBody"]["content"]["application/json"]["schema"], schemas)
    content = described["responses"]["200"]["content"]
    if "application/json" in content and "$ref" in content["application/json"]["schema"]:
        yield fields("response", content["application/json"]["schema"], schemas)


def fields(title: str, reference: Json, schemas: Json) -> str:
    schema = schemas[reference["$ref"].rpartition("/")[2]]
    required = schema.get("required", ())
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code>{' *' if name in required else ''}<td>{escape(kind(field))}"
        f"<td>{escape(repr(field['default'])) if field.get('default') is not None else ''}"
        for name, field in schema.get("properties", {}).items()
    )
    return f"<table><tr><th>{title}<th>type<th>default{rows}</table>"


def kind(schema: Json) -> str:
    """A type in a few words."""
    if "enum" in schema:
        return " | ".join(map(repr, schema["enum"]))
    if "anyOf" in schema:
        return " | ".join(map(kind, schema["anyOf"]))
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if schema.get("type") == "array":
        most = f", at most {schema['maxItems']:,}" if "maxItems" in schema else ""
        parts = schema.get("prefixItems") or ([schema["items"]] if schema.get("items") else [{}])
        return f"list of {', '.join(map(kind, parts))}{most}"
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<", "maxLength": "length ≤"}
    bounds = " ".join(f"{sign} {schema[name]:,}" for name, sign in signs.items() if name in schema)
    return f"{schema.get('type', 'any value')} {bounds}".strip()


CSP = f"default-src 'none'; style-src {hashed(STYLE)}; base-uri 'none'"


async def openapi(call: Call) -> Json:
    """This description."""
    return description(call.service)


async def docs(call: Call) -> Response:
    return Response(page(call.service), media_type="text/html", headers={"content-security-policy": CSP})


DESCRIBING = (
    Route("/openapi.json", openapi, "The API for programs.", gives=Json),
    Route("/docs", docs, "The API for people.", gives=str),
)
