"""Who may come in, and what is told of it: keys, hosts, origins, ids, logs."""

import base64
import io
import json
from typing import Any

import httpx2
import pytest
from served_models import decoder, run, serving

from triform.errors import TriformError
from triform.serve.http import auth
from triform.serve.http.app import make_app
from triform.serve.http.auth import Access
from triform.serve.http.docs_page import DOCS_ROUTES
from triform.serve.http.log import Log
from triform.serve.routes import ROUTES
from triform.serve.worker.service import Service

KEY = "a-long-enough-key"


def basic(key: str) -> str:
    return "Basic " + base64.b64encode(f"me:{key}".encode()).decode()


def test_every_route_but_health_needs_the_key() -> None:
    wrong = [{}, {"authorization": KEY}, {"authorization": "Bearer " + KEY[:-1]}, {"authorization": "Bearer"}]
    wrong += [{"authorization": basic("x")}, {"authorization": "Basic !"}, {"x-api-key": KEY[:-1]}]
    right = [
        {"authorization": f"Bearer {KEY}"},
        {"authorization": f"bearer {KEY}"},
        {"authorization": basic(KEY)},
        {"x-api-key": KEY},
    ]

    async def ask() -> None:
        async with serving(access=Access(keys=("another-long-key", KEY))) as (_, client):
            assert (await client.get("/health")).status_code == 200
            paths = [(route.method, route.path) for route in (*ROUTES, *DOCS_ROUTES) if route.path != "/health"]
            for method, path in [*paths, ("GET", "/"), ("GET", "/nothing"), ("GET", "/health/"), ("GET", "/%68ealth")]:
                for headers in wrong:
                    answer = await client.request(method, path, headers=headers)
                    assert answer.status_code == 401, (path, headers)
                    assert answer.headers["www-authenticate"]
            for headers in right:
                assert (await client.get("/v1/models", headers=headers)).status_code == 200
            page = await client.get("/", headers={"accept": "text/html"})
            assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (401, "text/html")

    run(ask())


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 200) for host in ("localhost:80", "127.0.0.1", "[::1]:8000", "LOCALHOST")),
        *((host, 421) for host in ("evil.example", "localhost.evil.example", "", "127.0.0.1.evil")),
        *((host, 421) for host in ("[::1]evil", "localhost:evil", "localhost:@evil.com", "127.0.0.1:99999", "[::1")),
    ],
)
def test_only_known_hosts(host: str, status: int) -> None:
    async def ask() -> int:
        async with serving() as (_, client):
            return (await client.get("/health", headers={"host": host})).status_code

    assert run(ask()) == status


def test_other_origins_are_not_answered_unless_given() -> None:
    asked = {"origin": "https://a.example", "access-control-request-method": "POST"}

    async def ask(access: Access) -> tuple[Any, Any]:
        async with serving(access=access) as (_, client):
            return await client.options("/v1/completions", headers=asked), await client.get("/health", headers=asked)

    closed, plain = run(ask(Access()))
    assert closed.status_code == 405
    assert not [name for name in plain.headers if name.startswith("access-control")]
    opened, plain = run(ask(Access(origins=("https://a.example",))))
    assert opened.headers["access-control-allow-origin"] == plain.headers["access-control-allow-origin"]
    other, _ = run(ask(Access(origins=("https://b.example",))))
    assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize("keys", [(), (KEY,)])
def test_pages_of_other_origins_change_nothing(keys: tuple[str, ...]) -> None:
    """A page can send a form or plain text to any address without asking first; only its Origin tells."""
    access = Access(keys=keys, origins=("https://a.example",))
    headers = {"authorization": f"Bearer {KEY}"} if keys else {}
    statuses = {
        "http://evil.example": 403, "http://localhost:3000": 403, "null": 403, "http://[::1": 403, "": 403,
        "https://a.example.evil": 403, "http://localhost": 200, "https://a.example": 200, None: 200,
    }  # fmt: skip

    async def ask() -> None:
        async with serving(access=access) as (_, client):
            for origin, status in statuses.items():
                sent = headers | ({} if origin is None else {"origin": origin})
                answer = await client.post("/v1/tokenize", json={"model": "cat", "text": "the cat"}, headers=sent)
                assert answer.status_code == status, origin
                assert (await client.get("/v1/models", headers=sent)).status_code == 200, origin
        async with serving(access=Access(keys=keys, origins=("*",))) as (_, client):
            sent = headers | {"origin": "http://evil.example"}
            answer = await client.post("/v1/tokenize", json={"model": "cat", "text": "the cat"}, headers=sent)
            assert answer.status_code == 200

    run(ask())


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "example.org", "::"])
def test_no_open_port_without_a_key(host: str) -> None:
    with pytest.raises(TriformError, match="no API key"):
        auth.make_access(host=host, keys=[], hosts=[], origins=[])
    assert auth.make_access(host=host, keys=[KEY], hosts=[], origins=[]).keys == (KEY,)


@pytest.mark.parametrize("key", ["short", "with a space", "tabs\tand\x00", "schlüssel-schlüssel"])
def test_keys_that_are_none(key: str) -> None:
    with pytest.raises(TriformError, match="API key needs"):
        auth.make_access(host="127.0.0.1", keys=[key], hosts=[], origins=[])


def test_key_files(tmp_path: Any) -> None:
    (tmp_path / "keys").write_text(f"# mine\n{KEY}\n\n")
    assert auth.read_keys(tmp_path / "keys") == [KEY]
    (tmp_path / "none").write_text("# nothing\n")
    for name in ("none", "missing"):
        with pytest.raises(TriformError):
            auth.read_keys(tmp_path / name)


SECRETS = ("PROMPT-SECRET", "ANSWER-SECRET", KEY, "QUERY-SECRET")


def test_the_log_has_one_line_an_event_and_no_secrets() -> None:
    out = io.StringIO()

    async def ask() -> None:
        service = Service({"cat": decoder()}, log=Log(out))
        made = make_app(service, access=Access(keys=(KEY,)))
        headers = {"authorization": f"Bearer {KEY}", "x-request-id": "mine-1"}
        async with made.router.lifespan_context(made):
            client = httpx2.AsyncClient(transport=httpx2.ASGITransport(made), base_url="http://localhost")
            async with client:
                body = {"model": "cat", "prompt": "PROMPT-SECRET", "max_tokens": 3, "user": "ANSWER-SECRET"}
                answer = await client.post("/v1/completions", json=body, headers=headers)
                assert answer.headers["x-request-id"] == "mine-1"
                await client.get("/v1/models?key=QUERY-SECRET", headers=headers | {"x-request-id": "a\tb"})
                await client.get('/a%0A{"event":"forged"}%1b[31m', headers=headers)
                await client.post("/v1/completions", json=body | {"model": 'x"\n{"event":"forged"}'}, headers=headers)
                await client.post("/v1/tokenize", json={"model": "cat", "text": "PROMPT-SECRET" * 2}, headers=headers)

    run(ask())
    text = out.getvalue()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["event"] for line in lines] == ["request"] * 5
    assert lines[0] | {"time": "", "seconds": 0} == {
        "time": "", "event": "request", "id": "mine-1", "method": "POST", "path": "/v1/completions", "status": 200,
        "seconds": 0, "model": "cat", "read": lines[0]["read"], "written": 3,
    }  # fmt: skip
    assert lines[1]["id"] != "a\tb"
    assert "\x1b" not in text
    for secret in SECRETS:
        assert secret not in text


def test_an_error_of_ours_is_logged_without_its_words() -> None:
    out = io.StringIO()
    try:
        raise RuntimeError("PROMPT-SECRET")
    except RuntimeError as error:
        Log(out)("failed", error=error)
    line = json.loads(out.getvalue())
    assert line["error"] == "RuntimeError"
    assert "test_auth.py" in line["at"][-1]
    assert "SECRET" not in out.getvalue()
