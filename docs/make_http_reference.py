"""Write docs/http.md, the reference of the HTTP API, from the table of routes: `make docs`.

Bounds are those of a server with its default limits. `tests/test_docs.py` compares the file with what this would write.
"""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import triform
from triform.serve.http.docs_page import describe_type
from triform.serve.http.log import Log
from triform.serve.http.openapi import describe_api
from triform.serve.routes import ROUTES
from triform.serve.worker.service import Service

PAGE = Path(__file__).resolve().parent / "http.md"
NAMES = ("model", "index")  # a running server lists its own
BEGIN = """# The HTTP API

Every route with the fields of its request and its answer, from the table that the server itself is made of. Written by
`make docs`. A running server shows the same for its own models at `/docs`, where requests can be tried, and for
programs at `/openapi.json`. [Serving models](serve.md) says how to use them, and which fields of other services are
done, ignored or refused.

`*` marks required fields; bounds are the defaults of `triform serve --limit`. Errors are
`{"error": {"message", "type", "param", "code"}}` with a status of 4xx or 5xx, and every response has an `x-request-id`.
"""


def make_reference() -> str:
    """The page."""
    model = triform.build(triform.families.named("tiny-decoder"), seed=0)
    described = describe_api(Service({"MODEL": model}, log=Log(io.StringIO())))
    paths, schemas = described["paths"], described["components"]["schemas"]
    lines, shown = [BEGIN], set()
    for route in ROUTES:
        operation = paths[route.path][route.method.lower()]
        streams = " It can be streamed." if route.pieces is not None else ""
        lines += [f"## {route.method} {route.path}", "", f"{route.says}{streams}", ""]
        if route.takes is not None:
            body = operation["requestBody"]["content"]["application/json"]["schema"]
            lines += render_fields("request", name_of(body), schemas)
            shown.add(name_of(body))
        for content in operation["responses"]["200"]["content"].values():
            if "$ref" in content["schema"]:
                lines += render_fields("answer", name_of(content["schema"]), schemas)
                shown.add(name_of(content["schema"]))
    lines += ["## Types", "", "What the fields above are made of.", ""]
    for name in sorted(schemas.keys() - shown):
        lines += render_fields(name, name, schemas)
    return "\n".join(lines).rstrip() + "\n"


def name_of(schema: dict[str, str]) -> str:
    """Of the type that a schema refers to."""
    return schema["$ref"].rpartition("/")[2]


def render_fields(title: str, name: str, schemas: dict[str, Any]) -> Iterator[str]:
    """A table of the fields of one type."""
    schema = schemas[name]
    if not schema.get("properties"):
        return
    yield from (f"| {title} | type | default |", "|---|---|---|")
    for field, described in schema["properties"].items():
        required = " *" if field in schema.get("required", ()) else ""
        default = f"`{json.dumps(described['default'])}`" if described.get("default") is not None else ""
        kind = "string" if field in NAMES else describe_type(described).replace("|", "\\|")
        yield f"| `{field}`{required} | {kind} | {default} |"
    yield ""


if __name__ == "__main__":
    PAGE.write_text(make_reference(), encoding="utf-8")
    print("docs/http.md")
