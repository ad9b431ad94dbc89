"""Requests that must be refused, each with the status it is to be refused with."""

import random
from collections.abc import Callable
from typing import Any

import httpx2
from soak_cases import Case

JSON = {"content-type": "application/json"}
ASK = "/v1/completions"
CAT = {"model": "cat", "prompt": "the cat"}
BAD: list[tuple[str, str, Any, dict[str, str], int]] = [
    ("POST", ASK, b"{", JSON, 400),
    ("POST", ASK, b'{"model": "cat", "prompt": "a", "prompt": "b"}', JSON, 400),
    ("POST", ASK, b'{"model": "cat", "prompt": "\xff"}', JSON, 400),
    ("POST", ASK, b'{"model": "cat", "prompt": "a", "temperature": NaN}', JSON, 400),
    ("POST", ASK, b"[" * 10_000, JSON, 400),
    ("POST", ASK, CAT | {"no_such_field": 1}, JSON, 400),
    ("POST", ASK, CAT | {"max_tokens": 10**6}, JSON, 400),
    ("POST", ASK, CAT | {"temperature": -1}, JSON, 400),
    ("POST", ASK, CAT | {"prompt": [10**6]}, JSON, 400),
    ("POST", ASK, CAT | {"prompt": "cat " * 500}, JSON, 400),
    ("POST", ASK, CAT | {"model": "nobody"}, JSON, 404),
    ("POST", ASK, CAT | {"model": "tag"}, JSON, 400),
    ("POST", ASK, CAT, {"content-type": "text/plain"}, 415),
    ("POST", ASK, CAT, JSON | {"content-encoding": "gzip"}, 415),
    ("POST", ASK, b'{"model": "cat", "prompt": "' + b"a" * 2**20 + b'"}', JSON, 413),
    ("POST", "/v1/translate", {"model": "classify", "text": "the cat"}, JSON, 400),
    ("POST", "/v1/fill", {"model": "fill", "text": "no mask"}, JSON, 400),
    ("POST", "/v1/embeddings", {"model": "embed", "input": []}, JSON, 400),
    ("POST", "/v1/search", {"model": "embed", "text": "cat", "index": "nobody"}, JSON, 404),
    ("POST", "/v1/look", {"model": "cat", "ask": {"view": "nothing"}}, JSON, 400),
    ("POST", "/v1/tokenize", {"model": "cat", "text": 7}, JSON, 400),
    ("GET", ASK, None, {}, 405),
    ("GET", "/v1/nothing", None, {}, 404),
    ("GET", "/v1/models/nobody", None, {}, 404),
    ("GET", "/health?" + "a" * 20_000, None, {}, 400),
]


def expect_refusal(*statuses: int) -> Callable[[httpx2.Response], str]:
    """In the API's shape, with one of these statuses."""

    def find_fault(answer: httpx2.Response) -> str:
        if answer.status_code not in statuses:
            return f"status {answer.status_code} where {statuses} is due: {answer.text[:200]}"
        try:
            said = answer.json()["error"]
        except (ValueError, KeyError, TypeError):
            return f"a refusal that is not in its shape: {answer.text[:200]}"
        return "" if {"message", "type", "param", "code"} <= said.keys() else f"a refusal without its fields: {said}"

    return find_fault


def draw_bad(rng: random.Random) -> Case:
    method, path, body, headers, status = rng.choice(BAD)
    return Case(f"{method} (bad)", path, expect_refusal(status), body, headers)
