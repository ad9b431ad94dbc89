"""Bad input on every route: refused in the API's shape, before anything is asked of a worker."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served_callers import until
from served_models import ASKS, all_models, run, serving

from triform.serve.http.http_errors import RequestError
from triform.serve.http.openapi import describe_api
from triform.serve.http.request_body import refuse_duplicates
from triform.serve.routes import ROUTES
from triform.serve.worker.model_worker import ModelWorker
from triform.tasks.vector_index import read_index as read_index
from triform.text.tokenizer import Tokenizer


def raw(path: str, **changed: Any) -> bytes:
    return json.dumps(ASKS[path] | changed).encode()


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


JSON = {"content-type": "application/json"}
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
    "a value that is not UTF-8": (lambda path: raw(path, model="cat").replace(b'"cat"', b'"c\xc3"'), 400),
    "too large": (lambda path: raw(path)[:-1] + b" " * 2**22 + b"}", 413),
}


# Which field each of them is about, where it is about one.
FIELDS: dict[str, Any] = {
    "unknown field": lambda path: "bogus",
    "a name twice": lambda path: "model",
    "no model": lambda path: "ask" if path == "/v1/look" else "model",
    "a model that is a number": lambda path: "model",
    "unknown model": lambda path: "index" if path == "/v1/search" else "model",
}


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """No refusal may reach a worker."""

    def never(self: ModelWorker, job: Any) -> Any:
        raise AssertionError("a worker was asked")

    monkeypatch.setattr(ModelWorker, "submit", never)


@pytest.mark.usefixtures("untouched")
def test_what_no_route_takes() -> None:
    assert set(ASKS) == {route.path for route in ROUTES if route.takes is not None}

    async def ask() -> None:
        async with serving(all_models()) as (_, client):
            for path in ASKS:
                for what, (make, status) in EVERYWHERE.items():
                    headers = {"content-type": "application/json"}
                    answer = await client.post(path, content=make(path), headers=headers)
                    said = f"{path}: {what}: {answer.text}"
                    assert answer.status_code == status, said
                    error = answer.json()["error"]
                    assert set(error) == {"message", "type", "param", "code"}, said
                    assert error["message"], said
                    assert ("surrogate" in error["message"]) is (what == "half a surrogate"), said
                    assert what not in FIELDS or error["param"] == FIELDS[what](path), said
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
    *[("/v1/completions", {"repetition_penalty": bad}, "repetition_penalty") for bad in (0, 5e-324, 11)],
    *[("/v1/completions", {"stop": bad}, "") for bad in ("", ["a"] * 5, ["a" * 300], [1], [""])],
    *[("/v1/completions", {"logit_bias": bad}, "") for bad in ({"a": 1}, {"1": 101}, {"-1": 1}, {"9999": 1}, [1])],
    ("/v1/completions", {"logit_bias": {str(id): 1 for id in range(301)}}, "logit_bias"),
    *[
        ("/v1/completions", {"prompt": bad}, "")
        for bad in ("", [], [[]], [1, "a"], [None], [-1], [10**9], [[1], 1], {})
    ],
    ("/v1/completions", {"prompt": ["a"] * 257}, "prompt"),
    ("/v1/completions", {"prompt": [1] * 129}, "prompt"),
    ("/v1/completions", {"prompt": [1] * 100_000}, "prompt"),
    ("/v1/completions", {"prompt": [[1] * 1000] * 100}, "prompt"),
    ("/v1/completions", {"logit_bias": {str(id): 1 for id in range(80_000)}}, "logit_bias"),
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
    ("/v1/embeddings", {"input": ["a"] * 2049}, "input"),
    ("/v1/embeddings", {"encoding_format": "int8"}, ""),
    ("/v1/translate", {"beams": 9}, "beams"),
    ("/v1/classify", {"top": 101}, "top"),
    ("/v1/fill", {"k": 0}, "k"),
    ("/v1/cost", {"phase": "sleeping"}, ""),
    ("/v1/cost", {"length": 10**6}, ""),
    ("/v1/cost", {"phase": "generation", "new": 2**31 - 1}, "length"),
    ("/v1/cost", {"phase": "generation", "new": 2**31 - 1, "batch": 2**20, "length": 1}, "length"),
    ("/v1/cost", {"source": 10}, ""),
    ("/v1/look", {"ask": {"view": "start", "run": {"text": ""}}}, ""),
    ("/v1/look", {"ask": {"view": "start", "run": {"text": "cat " * 200}}}, ""),
    ("/v1/look", {"ask": {"view": "start", "run": {"text": "a" * 200_001}}}, ""),
    ("/v1/look", {"ask": {"view": "nothing"}}, ""),
    ("/v1/look", {"ask": {"view": "stream", "stack": "encoder", "tokens": [0, 1], "run": {"text": "cat"}}}, ""),
    ("/v1/look", {"ask": {"view": "steps", "run": {"text": "cat"}, "count": 65}}, ""),
    ("/v1/look", {"ask": {"view": "contexts", "texts": ["cat"] * 7, "word": "cat"}}, ""),
    ("/v1/embeddings", {"input": ["the cat " * 500] * 310}, "input"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "the cat " * 300}]}, "messages"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a b c d e f g h " * 9}]}, "messages"),
    ("/v1/chat/completions", {"messages": [{"role": "user"}]}, "messages[0].content"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a", "x": 1}]}, "messages[0].x"),
    *[(path, {"text": ["a", " "]}, "text") for path in ("/v1/classify", "/v1/tag", "/v1/translate", "/v1/summarize")],
    ("/v1/fill", {"text": "nothing is missing"}, "text"),
    ("/v1/answer", {"question": " "}, "question"),
    ("/v1/answer", {"context": " "}, "context"),
    ("/v1/embeddings", {"input": " "}, "input"),
    ("/v1/embeddings", {"input": [[9999]]}, "input"),
    ("/v1/embeddings", {"input": [1] * 200}, "input"),
    ("/v1/tokenize", {"text": "a" * 100_000}, "text"),
    ("/v1/cost", {"model": "embed", "phase": "step"}, "phase"),
    ("/v1/cost", {"new": 3}, "new"),
    ("/v1/look", {"model": ""}, "model"),
    ("/v1/look", {"ask": {"view": "heads", "run": {"text": "cat"}}}, "ask.stack"),
]


@pytest.mark.usefixtures("untouched")
def test_what_a_field_may_not_be() -> None:
    async def ask() -> None:
        async with serving(all_models()) as (_, client):
            for path, changed, param in PARTICULAR:
                answer = await client.post(path, json=ASKS[path] | changed)
                assert answer.status_code == 400, (path, changed, answer.text)
                told = answer.json()["error"]["param"]  # the field, or what is wrong inside it
                assert told.startswith(param or next(iter(changed))), (changed, answer.text)

    run(ask())


NUMBERS = (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"1" * 5000, b"0x10", b"01", b"1_0", b'"1"', b"null1")


@pytest.mark.usefixtures("untouched")
def test_what_is_no_number() -> None:
    async def ask() -> None:
        async with serving() as (_, client):
            for field in (b"temperature", b"max_tokens", b"seed", b"logit_bias"):
                for number in NUMBERS:
                    value = b'{"1": ' + number + b"}" if field == b"logit_bias" else number
                    body = raw("/v1/completions")[:-1] + b', "' + field + b'": ' + value + b"}"
                    answer = await client.post("/v1/completions", content=body, headers=JSON)
                    assert answer.status_code == 400, (field, number, answer.text)

    run(ask())


def test_a_name_twice_among_very_many() -> None:
    """The last two are the same: found in one walk over them, for whoever compares each with each never comes back."""
    with pytest.raises(RequestError, match="'299999' is given twice"):
        refuse_duplicates([*((str(number), None) for number in range(300_000)), ("299999", None)])
    refuse_duplicates([(str(number), None) for number in range(300_000)])


def misplaced_object(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """An object with a value that belongs nowhere; none where the field takes any object (`state` of /v1/systemone)."""
    objects = [part for part in schema.get("anyOf", (schema,)) if part.get("type") == "object"]
    return [{"bogus": {}}] if all(part.get("additionalProperties") for part in objects) else []


@pytest.mark.usefixtures("untouched")
def test_every_field_of_every_route_has_its_type_and_its_range() -> None:
    """From the description: an object where none belongs, and numbers just beyond their bounds."""

    async def ask() -> int:
        tried = 0
        async with serving(all_models()) as (service, client):
            schemas = describe_api(service)["components"]["schemas"]
            for route in ROUTES:
                if route.takes is None:
                    continue
                for name, schema in schemas[route.takes.__name__]["properties"].items():
                    for wrong in (*misplaced_object(schema), *beyond(schema)):
                        answer = await client.post(route.path, json=ASKS[route.path] | {name: wrong})
                        assert answer.status_code == 400, (route.path, name, wrong, answer.text)
                        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
                        assert answer.json()["error"]["param"].startswith(name), answer.text
                        tried += 1
        return tried

    assert run(ask()) > 150


def beyond(schema: dict[str, Any]) -> Iterator[Any]:
    steps = {"minimum": -1, "maximum": 1, "exclusiveMinimum": 0, "exclusiveMaximum": 0}
    for part in (schema, *schema.get("anyOf", ())):
        yield from (part[name] + step for name, step in steps.items() if name in part)
        if part.get("type") in ("integer", "number", "boolean"):
            yield "1"
        if "enum" in part:
            yield 3


@pytest.mark.usefixtures("untouched")
def test_a_task_that_a_model_cannot_do(folders: Path) -> None:
    """Every route with every model that is not for it."""

    async def ask() -> int:
        refused = 0
        async with serving(all_models(), indexes={"texts": read_index(folders / "index")}) as (service, client):
            for route in ROUTES:
                unable = [name for name, one in service.models.items() if route.task and route.task not in one.tasks]
                for name in unable:
                    answer = await client.post(route.path, json=ASKS[route.path] | {"model": name})
                    error = answer.json()["error"]
                    assert (answer.status_code, error["code"], error["param"]) == (400, "wrong_task", "model"), name
                    refused += 1
        return refused

    assert run(ask()) > 30


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


def test_texts_to_embed_are_refused_before_all_of_them_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """One very long text is never cut into tokens; of many, only those up to the bound are."""
    cut: list[str] = []
    ids_many = Tokenizer.ids_many
    monkeypatch.setattr(
        Tokenizer, "ids_many", lambda self, texts, **way: cut.extend(texts) or ids_many(self, texts, **way)
    )

    async def ask() -> list[Any]:
        limits = {"characters": 100, "input_characters": 2000, "input_tokens": 50, "batch_characters": 80}
        async with serving({"embed": all_models()["embed"]}, **limits) as (service, client):
            await until(lambda: not service.why_not_ready)
            cut.clear()
            bodies = [{"model": "embed", "input": given} for given in (["cat", "a " * 51], ["a " * 40] * 20)]
            return [await client.post("/v1/embeddings", json=body) for body in bodies]

    long, many = run(ask())
    assert [answer.json()["error"]["code"] for answer in (long, many)] == ["context_length_exceeded"] * 2
    assert "one text has 102 characters; at most 100" in long.json()["error"]["message"]
    assert len(cut) == 2


@pytest.mark.parametrize("path", [path for path in ASKS if path != "/v1/search"])
def test_what_is_good_is_answered(path: str) -> None:
    """The negative control: the same bodies without the fault."""

    async def ask() -> int:
        models = all_models()
        async with serving({ASKS[path]["model"]: models[ASKS[path]["model"]]}) as (_, client):
            return (
                await client.post(path, content=raw(path), headers={"content-type": "application/json"})
            ).status_code

    assert run(ask()) == 200
