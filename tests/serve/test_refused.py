"""Bad input on every route: refused in the API's shape, before anything is asked of a worker."""

import json
from typing import Any

import pytest
from served_models import all_models, run, serving

from triform.serve.routes import ROUTES
from triform.serve.worker import Worker

GOOD: dict[str, dict[str, Any]] = {
    "/v1/completions": {"model": "cat", "prompt": "the cat"},
    "/v1/chat/completions": {"model": "cat", "messages": [{"role": "user", "content": "hi"}]},
    "/v1/embeddings": {"model": "embed", "input": "the cat"},
    "/v1/tokenize": {"model": "cat", "text": "the cat"},
    "/v1/translate": {"model": "pair", "text": "the cat"},
    "/v1/summarize": {"model": "pair", "text": "the cat"},
    "/v1/classify": {"model": "classify", "text": "the cat"},
    "/v1/tag": {"model": "tag", "text": "the cat"},
    "/v1/answer": {"model": "answer", "question": "who?", "context": "the cat"},
    "/v1/fill": {"model": "fill", "text": "the [MASK]"},
    "/v1/search": {"model": "embed", "text": "the cat", "index": "texts"},
    "/v1/look": {"model": "cat", "ask": {"view": "start", "run": {"text": "the cat"}}},
    "/v1/cost": {"model": "cat"},
}


def raw(path: str, **changed: Any) -> bytes:
    return json.dumps(GOOD[path] | changed).encode()


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


EVERYWHERE: dict[str, tuple[Any, int]] = {
    "empty": (lambda path: b"", 400),
    "no object": (lambda path: b"[]", 400),
    "no JSON": (lambda path: b"{'model'}", 400),
    "something behind": (lambda path: raw(path) + b"{}", 400),
    "unknown field": (lambda path: raw(path, bogus=1), 400),
    "a name twice": (lambda path: raw(path)[:-1] + b', "model": "cat"}', 400),
    "a name twice inside": (lambda path: raw(path)[:-1] + b', "user": {"a": 1, "a": 2}}', 400),
    "no model": (lambda path: b"{}", 400),
    "a model that is a number": (lambda path: raw(path, model=3), 400),
    "unknown model": (lambda path: raw(path, model="gpt-5"), 404),
    "not UTF-8": (lambda path: raw(path).replace(b'"model"', b'"mod\xff"'), 400),
    "half a surrogate": (lambda path: raw(path).replace(b'"model": "', b'"model": "\\ud800'), 400),
    "deep JSON": (lambda path: raw(path)[:-1] + b', "x": ' + deep(100_000) + b"}", 400),
    "NaN": (lambda path: raw(path)[:-1] + b', "x": NaN}', 400),
    "too large": (lambda path: raw(path)[:-1] + b" " * 2**20 + b"}", 413),
}


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """No refusal may reach a worker."""

    def never(self: Worker, job: Any) -> Any:
        raise AssertionError("a worker was asked")

    monkeypatch.setattr(Worker, "submit", never)


@pytest.mark.usefixtures("untouched")
def test_what_no_route_takes() -> None:
    assert set(GOOD) == {route.path for route in ROUTES if route.takes is not None}

    async def ask() -> None:
        async with serving(all_models()) as (_, client):
            for path in GOOD:
                for what, (make, status) in EVERYWHERE.items():
                    headers = {"content-type": "application/json"}
                    answer = await client.post(path, content=make(path), headers=headers)
                    said = f"{path}: {what}: {answer.text}"
                    assert answer.status_code == status, said
                    error = answer.json()["error"]
                    assert set(error) == {"message", "type", "param", "code"}, said
                    assert error["message"], said
                for headers in (
                    {"content-type": "text/plain"},
                    {"content-type": "application/json", "content-encoding": "gzip"},
                ):
                    assert (await client.post(path, content=raw(path), headers=headers)).status_code == 415
                assert (await client.post(path, content=raw(path))).status_code == 415
                assert (await client.put(path)).status_code == 405
            for path in ("/nothing", "/v1", "/v1/models/", "/V1/models"):
                assert (await client.get(path)).status_code == 404

    run(ask())


HUGE = 10**30
PARTICULAR: list[tuple[str, dict[str, Any], str]] = [
    *[("/v1/completions", {"temperature": bad}, "temperature") for bad in (-1, 3, "1", True, HUGE, [])],
    *[("/v1/completions", {"top_p": bad}, "top_p") for bad in (0, 1.5, -1)],
    *[("/v1/completions", {"n": bad}, "n") for bad in (0, 9, 1.5, HUGE, -1)],
    *[("/v1/completions", {"max_tokens": bad}, "max_tokens") for bad in (0, -1, 5000, HUGE, 2**31)],
    *[("/v1/completions", {"logprobs": bad}, "logprobs") for bad in (-1, 21, True)],
    *[("/v1/completions", {"seed": bad}, "seed") for bad in (-1, 2**64, 0.5)],
    *[("/v1/completions", {"presence_penalty": bad}, "presence_penalty") for bad in (-3, 3)],
    *[("/v1/completions", {"stop": bad}, "") for bad in ("", ["a"] * 5, ["a" * 300], [1], [""])],
    *[("/v1/completions", {"logit_bias": bad}, "") for bad in ({"a": 1}, {"1": 101}, {"-1": 1}, {"9999": 1}, [1])],
    ("/v1/completions", {"logit_bias": {str(id): 1 for id in range(301)}}, "logit_bias"),
    *[
        ("/v1/completions", {"prompt": bad}, "")
        for bad in ("", [], [[]], [1, "a"], [None], [-1], [10**9], [[1], 1], {})
    ],
    ("/v1/completions", {"prompt": ["a"] * 257}, "prompt"),
    ("/v1/completions", {"prompt": [1] * 129}, "prompt"),
    ("/v1/completions", {"prompt": "the cat " * 300}, "prompt"),
    ("/v1/completions", {"model": "embed"}, "model"),
    ("/v1/completions", {"response_format": {"type": "xml"}}, ""),
    ("/v1/chat/completions", {"messages": []}, ""),
    ("/v1/chat/completions", {"messages": [{"role": "king", "content": ""}]}, ""),
    ("/v1/chat/completions", {"messages": [{"role": "user"}]}, ""),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image", "text": ""}]}]}, ""),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}] * 513}, "messages"),
    ("/v1/chat/completions", {"top_logprobs": 3}, "top_logprobs"),
    ("/v1/chat/completions", {"model": "pair"}, "model"),
    ("/v1/embeddings", {"input": ""}, ""),
    ("/v1/embeddings", {"input": []}, ""),
    ("/v1/embeddings", {"input": ["a"] * 257}, "input"),
    ("/v1/embeddings", {"encoding_format": "int8"}, ""),
    ("/v1/translate", {"beams": 9}, "beams"),
    ("/v1/classify", {"top": 101}, "top"),
    ("/v1/fill", {"k": 0}, "k"),
    ("/v1/cost", {"phase": "sleeping"}, ""),
    ("/v1/cost", {"length": 10**6}, ""),
]


@pytest.mark.usefixtures("untouched")
def test_what_a_field_may_not_be() -> None:
    async def ask() -> None:
        async with serving(all_models()) as (_, client):
            for path, changed, param in PARTICULAR:
                answer = await client.post(path, json=GOOD[path] | changed)
                assert answer.status_code == 400, (path, changed, answer.text)
                assert not param or answer.json()["error"]["param"] == param, (changed, answer.text)

    run(ask())


def test_too_long_says_both_counts() -> None:
    async def ask() -> list[str]:
        async with serving() as (_, client):
            asked = [{"model": "cat", "prompt": prompt} for prompt in ([1] * 200, "the cat " * 5000)]
            answers = [await client.post("/v1/completions", json=body) for body in asked]
            assert {answer.json()["error"]["code"] for answer in answers} == {"context_length_exceeded"}
            return [answer.json()["error"]["message"] for answer in answers]

    ids, text = run(ask())
    assert "200 tokens" in ids
    assert "128" in ids
    assert "40,000 characters" in text
    assert "128" in text


@pytest.mark.parametrize("path", [path for path in GOOD if path != "/v1/search"])
def test_what_is_good_is_answered(path: str) -> None:
    """The negative control: the same bodies without the fault."""

    async def ask() -> int:
        models = all_models()
        async with serving({GOOD[path]["model"]: models[GOOD[path]["model"]]}) as (_, client):
            return (
                await client.post(path, content=raw(path), headers={"content-type": "application/json"})
            ).status_code

    assert run(ask()) == 200
