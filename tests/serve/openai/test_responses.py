"""`/v1/responses`: the chat's own answer in OpenAI's newer form, whole and as events."""

from typing import Any

import pytest
from served_models import caller, run, serving
from served_process import list_events

BASE: dict[str, Any] = {"model": "cat", "max_output_tokens": 120}
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]},
}
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "function_call", "call_id": "c", "name": "weather", "arguments": '{"city": "Oslo"}', "id": "f"},
    {"type": "function_call_output", "call_id": "c", "output": "7"},
]


def post(*bodies: dict[str, Any], path: str = "/v1/responses") -> list[Any]:
    async def ask() -> list[Any]:
        async with serving({"cat": caller()}) as (_, client):
            return [await client.post(path, json=body) for body in bodies]

    answers: list[Any] = run(ask())
    return answers


def test_it_answers_what_a_chat_answers() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    (there,) = post({"model": "cat", "max_tokens": 120, "messages": messages}, path="/v1/chat/completions")
    here, items = post(BASE | {"input": "hi", "instructions": "Be brief."}, BASE | {"input": messages})
    for answer in (here, items):
        (item,) = answer.json()["output"]
        assert item["content"][0]["text"] == there.json()["choices"][0]["message"]["content"]
        assert answer.json()["usage"]["input_tokens"] == there.json()["usage"]["prompt_tokens"]


@pytest.mark.parametrize("body", [{"input": "hi"}, {"input": HISTORY, "tools": [TOOL], "tool_choice": "required"}])
def test_the_events_build_the_whole_answer(body: dict[str, Any]) -> None:
    if "tools" in body:
        pytest.importorskip("llguidance")
    whole, streamed = post(BASE | body, BASE | body | {"stream": True})
    events = list(list_events(streamed))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    last = events[-1]["response"]
    assert events[-1]["type"] in ("response.completed", "response.incomplete")
    assert events[-1]["type"].endswith(last["status"])
    volatile = {"id", "call_id"}
    told = [{key: value for key, value in item.items() if key not in volatile} for item in whole.json()["output"]]
    assert [{key: value for key, value in item.items() if key not in volatile} for item in last["output"]] == told
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == last["output"]
    deltas = "".join(event["delta"] for event in events if event["type"].endswith(".delta"))
    item = last["output"][-1]
    assert deltas == (item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"])
    if "tools" in body:
        assert [item["type"] for item in last["output"]] == ["function_call"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"input": "hi", "previous_response_id": "resp_1"}, "previous_response_id"),
    ({"input": "hi", "background": True}, "background"),
    ({"input": "hi", "truncation": "auto"}, "truncation"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{"type": "function_call", "name": "a"}]}, "input[0].call_id"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0].type"),
    ({"input": "hi", "tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"input": "hi", "tool_choice": "required"}, "tool_choice"),
    ({"input": "hi", "max_output_tokens": 10**6}, "max_output_tokens"),
]


@pytest.mark.parametrize(("body", "param"), REFUSED, ids=[param for _, param in REFUSED])
def test_refused_by_name(body: dict[str, Any], param: str) -> None:
    (answer,) = post(BASE | body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(param.partition(".type")[0]), answer.text
