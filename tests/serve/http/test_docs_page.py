"""`/docs`: every route has an example that is answered, and a form to send it from."""

import re
from html import unescape
from pathlib import Path

from served_callers import until
from served_models import all_models, run, serving

from triform.serve.http.docs_page import make_example, render_docs
from triform.serve.http.openapi import describe_api
from triform.serve.routes import ROUTES
from triform.tasks.vector_index import read_index


def test_every_example_is_answered(folders: Path) -> None:
    async def ask() -> None:
        indexes = {"texts": read_index(folders / "index")}
        async with serving(all_models(), indexes=indexes) as (service, client):
            schemas = describe_api(service)["components"]["schemas"]
            page = render_docs(service)
            await until(lambda: not service.why_not_ready)
            for route in ROUTES:
                path = route.path.replace("{model}", "cat")
                if route.takes is None:
                    assert (await client.get(path)).status_code == 200, path
                else:
                    body = make_example(route, schemas, service)
                    answer = await client.post(path, json=body)
                    assert answer.status_code == 200, (path, body, answer.text)
                assert f"data-path='{path[1:]}'" in page
            assert page.count("<form") == len(ROUTES)
            shown = unescape(" ".join(re.findall(r"<pre>(.*?)</pre>", page)))
            assert "curl -s $URL/v1/chat/completions -H 'content-type: application/json' -d '{" in shown
            told = await client.get("/docs")
            assert "script-src 'sha256-" in told.headers["content-security-policy"]

    run(ask())
