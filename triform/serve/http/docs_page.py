"""`/docs`: the API for people, with a line for a shell and a request to try for every route."""

import json
from collections.abc import Iterator
from html import escape
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from triform.page.export_html import csp_hash
from triform.serve.http.openapi import Json, describe_api
from triform.serve.http.request_context import RequestContext
from triform.serve.routes import ROUTES, Route
from triform.serve.worker.service import Service
from triform.tasks import get_task

QUESTION = "Who sat on the mat?"
EXAMPLES: dict[str, Json] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 30},
    "/v1/completions": {"prompt": "The fat ginger cat", "max_tokens": 20},
    "/v1/responses": {"input": QUESTION, "max_output_tokens": 30},
    "/v1/messages": {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 30},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": QUESTION}]},
    "/v1/tokenize": {"text": "the fat ginger cat"},
    "/v1/look": {"ask": {"view": "start", "run": {"text": "the fat cat"}}},
    "/v1/cost": {"phase": "reading"},
}

STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 2.5rem; font-size: 1.1rem } code, h2 { font-family: ui-monospace, monospace }
table { border-collapse: collapse; width: 100%; font-size: .9rem }
th, td { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #8884 }
td { overflow-wrap: anywhere }
pre, textarea, output { font: .85rem/1.45 ui-monospace, monospace }
pre { overflow-x: auto; padding: .6rem .8rem; background: #8881; border-radius: .3rem }
textarea { width: 100%; box-sizing: border-box; min-height: 5.5rem; padding: .5rem }
output { display: block; white-space: pre-wrap; overflow-wrap: anywhere; max-height: 24rem; overflow-y: auto }
details { margin: .6rem 0 } summary { cursor: pointer } button { margin: .5rem 0; padding: .3rem 1rem; font: inherit }
"""
SCRIPT = """
const pretty = (text) => { try { return JSON.stringify(JSON.parse(text), null, 2) } catch { return text } }
for (const form of document.querySelectorAll("form")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault()
    const body = form.querySelector("textarea"), out = form.querySelector("output")
    const headers = { "content-type": "application/json" }
    out.textContent = "waiting …"
    try {
      const answer = await fetch(form.dataset.path, body ? { method: "POST", headers, body: body.value } : {})
      out.textContent = `${answer.status} ${answer.statusText}\\n${pretty(await answer.text())}`
    } catch (error) {
      out.textContent = String(error)
    }
  })
}
"""


def render_docs(service: Service) -> str:
    """The whole page."""
    described = describe_api(service)
    schemas = described["components"]["schemas"]
    parts = [part for route in ROUTES for part in render_route(route, described["paths"], schemas, service)]
    models = ", ".join(f"<code>{escape(name)}</code>" for name in service.models)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Triform: the API</title><style>{STYLE}</style><h1>The API of this service</h1>"
        f"<p>Models: {models}. For programs: <a href=openapi.json>openapi.json</a>. OpenAI's clients work with the "
        f"base URL <code>/v1</code>. Errors are <code>{{'error': {{'message', 'type', 'param', 'code'}}}}"
        f"</code>; every response has an <code>x-request-id</code>.</p>" + "".join(parts) + f"<script>{SCRIPT}</script>"
    )


def render_route(route: Route, paths: Json, schemas: Json, service: Service) -> Iterator[str]:
    """The section of one route: what it does, an example, its fields."""
    yield f"<h2>{route.method} {escape(route.path)}</h2><p>{escape(route.says)}"
    yield " It can be streamed.</p>" if route.pieces is not None else "</p>"
    yield from render_example(route, schemas, service)
    described = paths[route.path][route.method.lower()]
    if route.takes is not None:
        yield render_fields(
            "request (* required)", described["requestBody"]["content"]["application/json"]["schema"], schemas
        )
    content = described["responses"]["200"]["content"]
    if "application/json" in content and "$ref" in content["application/json"]["schema"]:
        yield render_fields("response", content["application/json"]["schema"], schemas)


def render_example(route: Route, schemas: Json, service: Service) -> Iterator[str]:
    """A line for a shell, and the same request to be tried here."""
    path = route.path.removeprefix("/").replace("{model}", quote(next(iter(service.models), "MODEL")))
    if route.takes is None:
        yield f"<pre>curl -s $URL/{escape(path)}</pre>"
        field = ""
    else:
        body = json.dumps(make_example(route, schemas, service), ensure_ascii=False)
        quoted = body.replace("'", "'\\''")
        yield f"<pre>curl -s $URL/{path} -H 'content-type: application/json' -d '{escape(quoted)}'</pre>"
        field = f"<textarea aria-label='body of the request' spellcheck=false>{escape(body)}</textarea>"
    yield (
        f"<details><summary>try it</summary><form data-path='{escape(path)}'>{field}<button>Send</button>"
        "<output aria-live=polite></output></form></details>"
    )


def make_example(route: Route, schemas: Json, service: Service) -> Json:
    """A small request, to the first model that can answer it."""
    schema = schemas[route.takes.__name__]["properties"] if route.takes is not None else {}
    fields = EXAMPLES.get(route.path) or {
        name: split_lines(name, text) for name, text in (get_task(route.task).example if route.task else {}).items()
    }
    return {
        **{name: schema[name]["enum"][0] for name in ("model", "index") if "enum" in schema.get(name, {})},
        **{name: fit_mask(value, service) if name == "text" else value for name, value in fields.items()},
    }


def split_lines(name: str, text: str) -> Any:
    return text.splitlines() if name in ("input", "documents", "choices") else text


def fit_mask(text: Any, service: Service) -> Any:
    """The mask token of the model that fills."""
    for served in service.models.values():
        tokenizer = served.model.tokenizer
        if "fill" in served.tasks and tokenizer is not None and tokenizer.mask is not None and isinstance(text, str):
            return text.replace("[MASK]", tokenizer.special["mask"])
    return text


def render_fields(title: str, reference: Json, schemas: Json) -> str:
    """A table of fields with their types and defaults."""
    schema = schemas[reference["$ref"].rpartition("/")[2]]
    required = schema.get("required", ())
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code>{' *' if name in required else ''}<td>{escape(describe_type(field))}"
        f"<td>{escape(repr(field['default'])) if field.get('default') is not None else ''}"
        for name, field in schema.get("properties", {}).items()
    )
    return f"<table><tr><th>{title}<th>type<th>default{rows}</table>"


def describe_type(schema: Json) -> str:
    """A type in a few words."""
    if "enum" in schema:
        return " | ".join(map(repr, schema["enum"]))
    if "anyOf" in schema:
        return " | ".join(map(describe_type, schema["anyOf"]))
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if schema.get("type") == "array":
        most = f", at most {schema['maxItems']:,}" if "maxItems" in schema else ""
        parts = schema.get("prefixItems") or ([schema["items"]] if schema.get("items") else [{}])
        return f"list of {', '.join(map(describe_type, parts))}{most}"
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<", "maxLength": "length ≤"}
    bounds = " ".join(f"{sign} {schema[name]:,}" for name, sign in signs.items() if name in schema)
    return f"{schema.get('type', 'any value')} {bounds}".strip()


CSP = (
    f"default-src 'none'; style-src {csp_hash(STYLE)}; script-src {csp_hash(SCRIPT)}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)


async def openapi(call: RequestContext) -> Json:
    """This description."""
    return describe_api(call.service)


async def docs(call: RequestContext) -> Response:
    return Response(render_docs(call.service), media_type="text/html", headers={"content-security-policy": CSP})


DOCS_ROUTES = (
    Route("/openapi.json", openapi, "The API for programs.", gives=Json),
    Route("/docs", docs, "The API for people.", gives=str),
)
