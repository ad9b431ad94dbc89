"""Browsers behind a key: the form, the cookie that stands for the key, and who may not use it."""

import io
import json
from http.cookies import SimpleCookie
from typing import Any

import httpx2
import pytest
from served_models import ASKS, decoder, run, serving

from triform.serve.http.app import make_app
from triform.serve.http.auth import COOKIE, Access
from triform.serve.http.limits import Limits
from triform.serve.http.log import Log
from triform.serve.http.sessions import MINUTE, Sessions
from triform.serve.worker.service import Service

KEY = "a-long-enough-key"
ACCESS = Access(keys=("another-long-key", KEY), hosts=("localhost", "models.example.org"))
HERE = {"origin": "http://localhost"}
PAGE = {"accept": "text/html"}


async def sign_in(client: Any, key: str = KEY, **given: str) -> Any:
    return await client.post("/sign-in", data={"key": key} | given, headers=HERE)


def cookie_of(answer: Any) -> Any:
    return SimpleCookie(answer.headers["set-cookie"])[COOKIE]


def test_a_cookie_opens_everything_a_key_opens() -> None:
    async def ask() -> None:
        async with serving(access=ACCESS) as (_, client):
            for path in ("/", "/docs"):
                page = await client.get(path, headers=PAGE)
                assert page.status_code == 401
                assert "<form method=post action=sign-in>" in page.text
            assert (await client.get("/v1/models", headers=PAGE)).json()["error"]["code"] == "invalid_api_key"
            answer = await sign_in(client, then="docs")
            assert (answer.status_code, answer.headers["location"]) == (303, "docs")
            cookie = cookie_of(answer)
            assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "strict", "/")
            assert cookie["max-age"] == "43200"
            assert not cookie["secure"]
            assert KEY not in answer.headers["set-cookie"]
            for path in ("/", "/docs", "/openapi.json", "/v1/models", "/metrics", "/page/main.js"):
                assert (await client.get(path, headers=PAGE)).status_code == 200, path
            assert (await client.get("/v1/look")).json()["signed_in"] is True
            written = await client.post("/v1/completions", json=ASKS["/v1/completions"], headers=HERE)
            assert written.status_code == 200

    run(ask())


def test_signing_out_ends_the_session() -> None:
    async def ask() -> None:
        async with serving(access=ACCESS) as (_, client):
            token = cookie_of(await sign_in(client)).value
            answer = await client.post("/sign-out", headers=HERE)
            assert (answer.status_code, cookie_of(answer)["max-age"]) == (204, "0")
            again = await client.get("/v1/models", headers={"cookie": f"{COOKIE}={token}"})
            assert again.status_code == 401

    run(ask())


@pytest.mark.parametrize(
    "headers",
    [{}, {"origin": "null"}, {"origin": "https://evil.example"}, {"origin": "http://localhost:3000"}],
    ids=["no origin", "null", "another site", "another port"],
)
def test_a_page_of_another_origin_may_not_use_the_cookie(headers: dict[str, str]) -> None:
    async def ask() -> None:
        async with serving(access=ACCESS) as (_, client):
            assert (await client.post("/sign-in", data={"key": KEY}, headers=headers)).status_code == 403
            await sign_in(client)
            for path, body in (("/v1/completions", ASKS["/v1/completions"]), ("/sign-out", {})):
                answer = await client.post(path, json=body, headers=headers)
                assert answer.status_code == 403, path
                assert answer.json()["error"]["type"] == "permission_error"
            keyed = await client.post(
                "/v1/completions", json=ASKS["/v1/completions"], headers=headers | {"authorization": f"Bearer {KEY}"}
            )
            # Browsers send a key of Basic authorization along by themselves: a page is asked where it is from.
            assert keyed.status_code == (403 if headers else 200)

    run(ask())


def test_behind_a_proxy_with_tls_the_cookie_is_secure() -> None:
    """The proxy passes the Host on; the browser's Origin says that it speaks TLS."""

    async def ask() -> None:
        async with serving(access=ACCESS) as (_, client):
            there = {"origin": "https://models.example.org", "host": "models.example.org"}
            cookie = cookie_of(await client.post("/sign-in", data={"key": KEY}, headers=there))
            assert cookie["secure"]
            with_cookie = there | {"cookie": f"{COOKIE}={cookie.value}"}
            answer = await client.post("/v1/completions", json=ASKS["/v1/completions"], headers=with_cookie)
            assert answer.status_code == 200

    run(ask())


@pytest.mark.parametrize("key", ["", "wrong", KEY[:-1], "schlüssel-schlüssel", "\x00" * 9])
def test_a_wrong_key_gets_the_form_again(key: str) -> None:
    async def ask() -> None:
        async with serving(access=ACCESS) as (_, client):
            answer = await sign_in(client, key, then="//evil.example")
            assert answer.status_code == 401
            assert "key is not valid" in answer.text
            assert "evil" not in answer.text
            assert "set-cookie" not in answer.headers

    run(ask())


def test_only_pages_of_this_service_are_gone_to() -> None:
    async def ask() -> None:
        async with serving(access=ACCESS) as (_, client):
            for then in ("//evil.example", "https://evil.example", "..", "\\evil"):
                assert (await sign_in(client, then=then)).headers["location"] == "./"

    run(ask())


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{}", "application/json", 415),
        (b"key=%ff", "application/x-www-form-urlencoded", 400),
        ("key=ü".encode(), "application/x-www-form-urlencoded", 400),
        (b"&".join([b"a=1"] * 9), "application/x-www-form-urlencoded", 400),
        (b"key=" + b"x" * 2**21, "application/x-www-form-urlencoded", 413),
    ],
)
def test_what_is_no_form_is_refused(content: bytes, kind: str, status: int) -> None:
    async def ask() -> int:
        async with serving(access=ACCESS) as (_, client):
            headers = HERE | {"content-type": kind}
            return int((await client.post("/sign-in", content=content, headers=headers)).status_code)

    assert run(ask()) == status


def test_guessing_is_slowed_down_but_sessions_go_on() -> None:
    async def ask() -> None:
        async with serving(access=ACCESS, wrong_keys=3) as (_, client):
            await sign_in(client)
            assert [(await sign_in(client, "wrong-wrong")).status_code for _ in range(4)] == [401, 401, 401, 429]
            refused = await sign_in(client)  # the right one is not looked at either
            assert refused.status_code == 429
            assert 0 < int(refused.headers["retry-after"]) <= MINUTE + 1
            assert (await client.get("/v1/models")).status_code == 200

    run(ask())


def test_without_a_key_there_is_nothing_to_sign_in_to() -> None:
    async def ask() -> None:
        async with serving() as (_, client):
            for answer in (await client.get("/sign-in"), await sign_in(client)):
                assert (answer.status_code, answer.headers["location"]) == (303, "./")
                assert "set-cookie" not in answer.headers
            assert (await client.get("/v1/look")).json()["signed_in"] is False

    run(ask())


def test_no_secret_is_logged_and_nothing_outlives_the_process() -> None:
    out = io.StringIO()

    async def ask(cookie: str) -> tuple[str, int]:
        made = make_app(Service({"cat": decoder()}, log=Log(out)), access=ACCESS)
        client = httpx2.AsyncClient(transport=httpx2.ASGITransport(made), base_url="http://localhost")
        async with client:
            before = await client.get("/v1/models", headers={"cookie": f"{COOKIE}={cookie}"})
            return cookie_of(await sign_in(client)).value, before.status_code

    token, _ = run(ask("nothing"))
    _, status = run(ask(token))
    assert status == 401
    assert KEY not in out.getvalue()
    assert token not in out.getvalue()
    assert [json.loads(line)["status"] for line in out.getvalue().splitlines()] == [401, 303, 401, 303]


# --- sessions and guesses, with a clock of the test's own ------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_session_ends_by_its_time_and_by_newer_ones() -> None:
    clock = Clock()
    sessions = Sessions(Limits(sessions=2, session_seconds=10), clock=clock)
    first, second = sessions.start(), sessions.start()
    assert sessions.has(first)
    third = sessions.start()
    assert [sessions.has(token) for token in (first, second, third, "", "\udcff")] == [False, True, True, False, False]
    clock.now += 10
    assert not sessions.has(third)


def test_wrong_keys_are_forgotten_after_a_minute() -> None:
    clock = Clock()
    sessions = Sessions(Limits(wrong_keys=2), clock=clock)
    for _ in range(2):
        sessions.check_guesses("a")
        sessions.count_wrong_key("a")
    with pytest.raises(ValueError, match="try again in 61 s"):
        sessions.check_guesses("a")
    sessions.check_guesses("b")
    clock.now += MINUTE
    sessions.check_guesses("a")
