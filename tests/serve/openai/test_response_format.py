"""`response_format`: what is written has the shape that was asked for, or the request is refused."""

import asyncio
import json
import re
from typing import Any

import pytest
from served_models import decoder, pair, run, serving

from triform.serve.openai import response_format
from triform.serve.worker.model_worker import ModelWorker

pytest.importorskip("llguidance")

SCHEMA = {
    "type": "object",
    "properties": {"animal": {"enum": ["cat", "mole"]}, "legs": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["animal", "legs"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "animal", "schema": SCHEMA, "strict": True}}


def ask(bodies: list[dict[str, Any]], path: str = "/v1/completions") -> list[Any]:
    async def asking() -> list[Any]:
        async with serving({"cat": decoder(), "pair": pair()}) as (_, client):
            return await asyncio.gather(*(client.post(path, json=body) for body in bodies))

    return run(asking())


def test_json_of_a_schema_whatever_the_model_thinks() -> None:
    """Different seeds at a high temperature, beside rows without a grammar, whose text does not change."""
    free = {"model": "cat", "prompt": "the cat", "max_tokens": 40, "temperature": 2.0}
    held = [free | {"seed": seed, "response_format": FORMAT} for seed in range(6)]
    answers = ask([*held, free | {"seed": 1}, free | {"seed": 1}])
    for answer in answers[:6]:
        assert answer.status_code == 200, answer.text
        choice = answer.json()["choices"][0]
        assert choice["finish_reason"] == "stop"
        found = json.loads(choice["text"])
        assert set(found) == {"animal", "legs"}
        assert found["animal"] in ("cat", "mole")
        assert 0 <= found["legs"] <= 9
    assert answers[6].json()["choices"][0]["text"] == answers[7].json()["choices"][0]["text"]


def test_text_of_an_expression() -> None:
    pattern = "(cat|mole)( and (cat|mole)){2}"
    body = {"model": "cat", "prompt": "the cat", "max_tokens": 60, "n": 3, "temperature": 1.5, "seed": 1}
    (answer,) = ask([body | {"response_format": {"type": "regex", "pattern": pattern}}])
    assert answer.status_code == 200, answer.text
    for choice in answer.json()["choices"]:
        assert re.fullmatch(pattern, choice["text"].strip()), choice


def test_chat_takes_it_too() -> None:
    body = {"model": "cat", "messages": [{"role": "user", "content": "an animal"}], "response_format": FORMAT}
    (answer,) = ask([body], "/v1/chat/completions")
    assert json.loads(answer.json()["choices"][0]["message"]["content"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "no such type"}}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "http://example.org/schema.json"}}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["a" * 70_000]}}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": json.loads('{"not":' * 40 + "{}" + "}" * 40)}},
        {"type": "regex", "pattern": "(unclosed"},
        {"type": "regex", "pattern": ""},
        {"type": "regex", "pattern": "a" * 5000},
    ],
    ids=["type", "reference", "large", "deep", "unclosed", "empty", "long"],
)
def test_what_is_no_grammar_is_refused(wrong: dict[str, Any]) -> None:
    (answer,) = ask([{"model": "cat", "prompt": "the cat", "response_format": wrong}])
    assert answer.status_code == 400, answer.text


HOSTILE = [
    {"type": "regex", "pattern": "a{1000000000}"},
    {"type": "regex", "pattern": "a{100000}"},
    {
        "type": "json_schema",
        "json_schema": {
            "name": "x",
            "schema": {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(2000)}},
        },
    },
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=["huge", "large", "many properties"])
def test_a_grammar_that_costs_too_much_reaches_no_worker(monkeypatch: pytest.MonkeyPatch, hostile: Any) -> None:
    """Its cost shows with the first tokens, which are tried beside the event loop; the client is told in one line."""
    monkeypatch.setattr(ModelWorker, "submit", lambda *_: pytest.fail("a worker was asked"))
    (answer,) = ask([{"model": "cat", "prompt": "the cat", "response_format": hostile}])
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "response_format")
    assert "\n" not in error["message"]
    assert "<state>" not in error["message"]


def test_a_grammar_that_fails_later_is_the_requests_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not tried beforehand, the same grammar fails in the worker: 400 as well, and its neighbour is answered."""
    monkeypatch.setattr(response_format, "TRIAL_TOKENS", 0)
    free = {"model": "cat", "prompt": "the cat", "max_tokens": 4}
    failed, neighbour = ask([free | {"response_format": HOSTILE[0]}, free])
    assert (failed.status_code, failed.json()["error"]["param"]) == (400, "response_format")
    assert neighbour.status_code == 200


def test_it_needs_an_end() -> None:
    body = {"model": "cat", "prompt": "the cat", "response_format": FORMAT, "ignore_eos": True}
    (answer,) = ask([body])
    assert "ignore_eos" in answer.json()["error"]["message"]


def test_a_tokenizer_the_library_cannot_read_is_said() -> None:
    (answer,) = ask([{"model": "pair", "prompt": "the cat", "response_format": FORMAT}])
    assert answer.status_code == 400
    assert "cannot be used" in answer.json()["error"]["message"]


def test_an_expression_that_explodes_elsewhere_is_only_long_here() -> None:
    """Work linear in the text: nested repeats cost no more than what is written."""
    pattern = "(a|b)" * 100 + "((a+)+)+" + "(c{1000}){1000}"
    (answer,) = ask([{"model": "cat", "prompt": "the cat", "response_format": {"type": "regex", "pattern": pattern}}])
    assert answer.status_code in (200, 400)
