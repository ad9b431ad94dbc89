"""The page over HTTP: what is refused, and with which words."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from page_models import page_servers

Post = Callable[..., tuple[int, dict[str, object]]]
START = {"ask": {"view": "start", "run": {"text": "the cat"}}}


@pytest.fixture(scope="module")
def served() -> Iterator[Callable[[str], str]]:
    with page_servers() as address:
        yield address


@pytest.fixture
def post(served: Callable[[str], str]) -> Post:
    def send(body: object, kind: str = "application/json", host: str = "") -> tuple[int, dict[str, object]]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": kind} | ({"host": host} if host else {})
        request = urllib.request.Request(f"{served('decoder')}v1/look", data, headers)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                body = error.read()
            return error.code, json.loads(body) if body.startswith(b"{") else {}

    return send


def test_a_question_is_answered(post: Post) -> None:
    status, found = post(START)
    assert (status, found["name"]) == (200, "tiny decoder")


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (400, b"{", "input data was truncated"),
        (400, b"\xff", "JSON is malformed: invalid character"),
        (400, b"[" * 100_000, "expected 'object', got 'array'"),
        (400, {"ask": {"view": "nothing"}}, "invalid value 'nothing'"),
        (400, {"ask": START["ask"], "more": 1}, "'more' is not supported"),
        (400, {"ask": {"view": "start", "run": {"text": "x" * 300_000}}}, "length <= 200000"),
        (404, START | {"model": "other"}, "the model 'other' is not served here; served: tiny decoder"),
        (413, b" " * 1_100_000, "at most 1,048,576 are accepted"),
        (400, {"ask": {"view": "steps", "run": {"text": "the"}, "count": 10**9}}, "<= 64"),
    ],
)
def test_bad_requests_are_one_line(post: Post, status: int, body: object, says: str) -> None:
    found, answer = post(body)
    error = answer["error"]
    assert isinstance(error, dict)
    assert found == status
    assert says in error["message"]
    assert "\n" not in error["message"]


def test_other_pages_cannot_ask(post: Post) -> None:
    """Not without a preflight, which is never answered; nor under another name for this machine."""
    assert post(START, kind="text/plain")[0] == 415
    assert post(START, host="evil.example")[0] == 400


def test_the_page_says_what_may_run(served: Callable[[str], str]) -> None:
    with urllib.request.urlopen(served("decoder")) as answer:
        policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'")
