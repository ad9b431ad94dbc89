"""Chats with tools: the prompt, forced calls, streams, and every field that OpenAI publishes."""

import json
from typing import Any

import msgspec
import pytest
from served_models import caller, run, serving
from served_process import list_events

from triform.serve.openai.chat_prompt import make_chat_prompt
from triform.serve.openai.request_types import ChatRequest, CompletionRequest, EmbeddingRequest
from triform.serve.openai.responses_types import ResponsesRequest
from triform.text.chat_template import ChatTemplate

ASK: dict[str, Any] = {"model": "cat", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 150}
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather.", "parameters": SCHEMA},
}
NAMED = {"type": "function", "function": {"name": "weather"}}
CALL = {"id": "abc", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
FORCED = ["required", NAMED, {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}]
OWN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}({{ c.function.arguments.city }}){% endfor %}{% endfor %}{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"  # noqa: E501


def post(*bodies: dict[str, Any], path: str = "/v1/chat/completions", model: Any = None) -> list[Any]:
    async def ask() -> list[Any]:
        async with serving({"cat": model or caller()}) as (_, client):
            return [await client.post(path, json=ASK | body) for body in bodies]

    answers: list[Any] = run(ask())
    return answers


def render(body: dict[str, Any], template: str = OWN) -> str:
    request = msgspec.json.decode(json.dumps(ASK | body), type=ChatRequest)
    return make_chat_prompt(request, ChatTemplate(template, special={})).text


def test_forced_calls_are_calls() -> None:
    pytest.importorskip("llguidance")
    answers = post(*({"tools": [TOOL], "tool_choice": choice} for choice in FORCED))
    for answer in answers:
        assert answer.status_code == 200, answer.text
        (choice,) = answer.json()["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] is None
        (call,) = choice["message"]["tool_calls"]
        assert call["function"]["name"] == "weather"
        assert json.loads(call["function"]["arguments"])["city"] in ("Rome", "Oslo")


def test_a_stream_says_the_same() -> None:
    pytest.importorskip("llguidance")
    body = {"tools": [TOOL], "tool_choice": "required", "temperature": 1, "seed": 3, "n": 2}
    whole, streamed = post(body, body | {"stream": True})
    called: dict[int, dict[str, str]] = {}
    reasons = {}
    for event in list_events(streamed):
        for choice in event["choices"]:
            for piece in choice["delta"].get("tool_calls", ()):
                said = called.setdefault(choice["index"], {"name": "", "arguments": ""})
                for name, text in piece["function"].items():
                    said[name] += text
            reasons[choice["index"]] = choice["finish_reason"]
    told = [choice["message"]["tool_calls"][0]["function"] for choice in whole.json()["choices"]]
    assert [called[index] for index in (0, 1)] == told
    assert reasons == {0: "tool_calls", 1: "tool_calls"}


def test_the_models_own_template_gets_tools_and_arguments() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Oslo?"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "abc", "content": "7 degrees"},
    ]
    text = render({"tools": [TOOL], "messages": messages})
    assert text == "<user>Oslo?<assistant>(Oslo)<tool>7 degrees[weather]"
    assert render({"tools": [TOOL], "tool_choice": "none"}) == "<user>hi"


def test_a_template_without_tools_gets_them_as_text() -> None:
    plain = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "abc", "content": "7"},
        {"role": "tool", "tool_call_id": "abc", "content": "8"},
    ]
    text = render({"tools": [TOOL], "messages": messages}, plain)
    system, _, rest = text.partition("<user>")
    assert system.startswith("<system>Be brief.\n\nYou can call these tools.")
    assert json.dumps(SCHEMA) in system
    assert rest == (
        'Oslo?<assistant>I look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
        "<user><tool_response>\n7\n</tool_response>\n<tool_response>\n8\n</tool_response>"
    )


def test_reasoning_is_apart_from_content() -> None:
    thinks = "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking != false %}<think>\n{% endif %}"
    model = caller(thinks)
    on, off = post({}, {"reasoning_effort": "none"}, model=model)
    told = on.json()["choices"][0]["message"]
    assert told["reasoning_content"]
    assert told["content"] == ""
    assert "reasoning_content" not in off.json()["choices"][0]["message"]


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"tool_choice": "required"}, "tool_choice", "needs tools"),
    ({"tools": [TOOL], "tool_choice": "sometimes"}, "tool_choice", "invalid"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice", "not among"),
    ({"tools": [TOOL, TOOL]}, "tools", "the same name"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "regex"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "invalid"),
    (
        {"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "text"}}}]},
        "tools[0].function.parameters",
        "use 'object'",
    ),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", "beside tool_calls"),
    ({"messages": [{"role": "user", "tool_calls": [CALL]}]}, "messages[0].tool_calls", "only an assistant"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [CALL | {"function": {"name": "a", "arguments": "[]"}}]}]},
        "messages[0].tool_calls[0].function.arguments",
        "JSON object",
    ),
    ({"web_search_options": {}}, "web_search_options", "leave it out"),
    ({"audio": {"voice": "x", "format": "wav"}}, "audio", "leave it out"),
    ({"modalities": ["text", "audio"]}, "modalities[1]", "invalid"),
    ({"chat_template_kwargs": {"messages": "x"}}, "chat_template_kwargs.messages", "set by the service"),
    ({"tools": [TOOL], "tool_choice": "required", "ignore_eos": True}, "tool_choice", "end token"),
]


@pytest.mark.parametrize(("body", "param", "said"), REFUSED, ids=[f"{param}: {said}" for _, param, said in REFUSED])
def test_refused_by_name(body: dict[str, Any], param: str, said: str) -> None:
    (answer,) = post(body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param), error
    assert said in error["message"]


def test_every_published_field_is_known() -> None:
    """Of OpenAI's own types: what is not done, or ignored, is refused by its name and not as unknown."""
    from openai.types import completion_create_params, embedding_create_params
    from openai.types.chat import completion_create_params as chat_params
    from openai.types.responses import response_create_params

    pairs: list[tuple[Any, Any]] = [
        (chat_params.CompletionCreateParamsStreaming, ChatRequest),
        (completion_create_params.CompletionCreateParamsStreaming, CompletionRequest),
        (embedding_create_params.EmbeddingCreateParams, EmbeddingRequest),
        (response_create_params.ResponseCreateParamsStreaming, ResponsesRequest),
    ]
    for theirs, ours in pairs:
        published = {name for kind in theirs.__mro__ for name in getattr(kind, "__annotations__", ())}
        published = published or set(theirs.__annotations__)
        assert published - set(ours.__struct_fields__) == set(), theirs


IGNORED: dict[str, Any] = {
    "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "safety_identifier": "x", "user": "x",
    "prediction": {"type": "content", "content": "x"}, "prompt_cache_key": "x", "prompt_cache_retention": "24h",
    "prompt_cache_options": {"mode": "implicit"}, "modalities": ["text"], "verbosity": "medium",
    "parallel_tool_calls": False, "stream_options": {"include_obfuscation": True}, "reasoning_effort": "low",
}  # fmt: skip


def test_what_changes_nothing_changes_nothing() -> None:
    bare, full = post({}, IGNORED)
    assert full.status_code == 200, full.text
    assert full.json()["choices"] == bare.json()["choices"]
