"""`/v1/messages`: the chat's own answer in Anthropic's form, whole and as events; tokens counted."""

import json
from typing import Any

import pytest
from served_models import caller, run, serving
from served_process import list_events

from triform.serve.http.auth import Access

HI = [{"role": "user", "content": "hi"}]
BASE: dict[str, Any] = {"model": "cat", "max_tokens": 120, "messages": HI}
TOOL: dict[str, Any] = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]},
}
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": ""},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c", "name": "weather", "input": {"city": "Oslo"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "7"}]},
            {"type": "text", "text": "so?"},
        ],
    },
]


def post(*bodies: dict[str, Any], path: str = "/v1/messages", **headers: str) -> list[Any]:
    access = Access(keys=("secret-key",)) if headers else None
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def ask() -> list[Any]:
        async with serving({"cat": caller()}, access=access) as (_, client):
            return [await client.post(path, json=body, headers=named) for body in bodies]

    answers: list[Any] = run(ask())
    return answers


def test_it_answers_what_a_chat_answers_and_counts_its_tokens() -> None:
    messages = [{"role": "system", "content": "Be brief."}, *HI]
    (there,) = post({"model": "cat", "max_tokens": 120, "messages": messages}, path="/v1/chat/completions")
    (here,) = post(BASE | {"system": [{"type": "text", "text": "Be brief."}]})
    (block,) = here.json()["content"]
    assert block["text"] == there.json()["choices"][0]["message"]["content"]
    (counted,) = post({"model": "cat", "messages": HI, "system": "Be brief."}, path="/v1/messages/count_tokens")
    assert counted.json()["input_tokens"] == here.json()["usage"]["input_tokens"]


@pytest.mark.parametrize("body", [{}, {"messages": HISTORY, "tools": [TOOL], "tool_choice": {"type": "any"}}])
def test_the_events_build_the_whole_answer(body: dict[str, Any]) -> None:
    if "tools" in body:
        pytest.importorskip("llguidance")
    whole, streamed = post(BASE | body, BASE | body | {"stream": True})
    told = whole.json()
    blocks: list[dict[str, Any]] = []
    ended: dict[str, Any] = {}
    types = []
    for event in list_events(streamed):
        types.append(event["type"])
        if event["type"] == "content_block_start":
            blocks.append(event["content_block"] | {"json": ""})
        if event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            if delta["type"] == "text_delta":
                block["text"] += delta["text"]
            else:
                block["json"] += delta["partial_json"]
        if event["type"] == "message_delta":
            ended = event
    assert (types[0], types[-1]) == ("message_start", "message_stop")
    assert ended["delta"].get("stop_reason") == told["stop_reason"]
    assert ended["delta"].get("stop_sequence") == told["stop_sequence"]
    assert ended["usage"] == told["usage"]
    assert [block["type"] for block in blocks] == [block["type"] for block in told["content"]]
    assert [block.get("text") for block in blocks] == [block.get("text") for block in told["content"]]
    if "tools" in body:
        assert json.loads(blocks[0]["json"]) == told["content"][0]["input"]
        assert told["stop_reason"] == "tool_use"


def test_the_stop_sequence_is_said() -> None:
    (free,) = post(BASE)
    text = free.json()["content"][0]["text"]
    (stopped,) = post(BASE | {"stop_sequences": [text[20:24]]})
    told = stopped.json()
    assert (told["stop_reason"], told["stop_sequence"]) == ("stop_sequence", text[20:24])
    assert text.startswith(told["content"][0]["text"])


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0].type"),
    (
        {"messages": [{"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "x"}]}, *HI]},
        "messages[0].content[0]",
    ),
    ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
    ({"container": "x"}, "container"),
    ({"max_tokens": 10**6}, "max_tokens"),
    ({"stop_sequences": ["x" * 300]}, "stop_sequences"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "param"), REFUSED, ids=[param for _, param in REFUSED])
def test_refused_by_name_in_anthropics_form(body: dict[str, Any], param: str) -> None:
    (answer,) = post(BASE | body)
    told = answer.json()
    assert (answer.status_code, told["type"]) == (400, "error")
    assert told["error"]["param"] == param, told
    assert told["error"]["type"] == "invalid_request_error"


def test_its_clients_send_their_key_in_a_header_of_its_own() -> None:
    (right,) = post(BASE, x_api_key="secret-key")
    (wrong,) = post(BASE, x_api_key="another")
    assert (right.status_code, wrong.status_code) == (200, 401)
