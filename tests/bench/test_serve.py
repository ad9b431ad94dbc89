"""The load generator counts what was really answered: tokens as told, and nothing of answers that broke off."""

import asyncio
import json
from typing import Any

import httpx2
import pytest

from bench.serve import ask, summed

PIECE: dict[str, Any] = {"choices": [{"index": 0, "text": "t5 ", "finish_reason": None}]}
USAGE: dict[str, Any] = {"choices": [], "usage": {"completion_tokens": 3}}
ERROR: dict[str, Any] = {"error": {"message": "broken", "code": "generation_failed"}}


class Told:
    """A server that says these events."""

    name, url, last = "triform", "http://127.0.0.1:9", "data: [DONE]"

    def body(self, seed: int, new: int) -> dict[str, Any]:
        return {}


STREAMS: list[tuple[list[dict[str, Any]], bool, int, int]] = [
    ([PIECE, PIECE, USAGE], True, 200, 3),
    ([PIECE, PIECE, USAGE], False, 0, 0),  # it broke off
    ([PIECE, ERROR], True, 0, 0),
    ([PIECE, PIECE], True, 0, 0),  # nobody said how many
]


@pytest.mark.parametrize(("events", "done", "status", "tokens"), STREAMS)
def test_only_whole_answers_count(events: list[dict[str, Any]], done: bool, status: int, tokens: int) -> None:
    lines = [json.dumps(event, separators=(",", ":")) for event in events] + ["[DONE]"] * done
    body = "".join(f"data: {line}\n\n" for line in lines)
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, text=body))

    async def run() -> Any:
        async with httpx2.AsyncClient(transport=transport) as client:
            return await ask(client, Told(), 7, 64)  # type: ignore[arg-type]

    found = asyncio.run(run())
    assert (found.status, found.tokens) == (status, tokens)
    load = summed("x", Told(), [found], 1.0)  # type: ignore[arg-type]
    assert (load.tokens, load.failed) == (tokens, status != 200)
    assert len(load.texts) == (status == 200)
    if status == 200:
        assert (found.seed, found.text, len(found.gaps)) == (7, "t5 t5 ", 1)
