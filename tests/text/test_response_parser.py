"""Answers divided into reasoning, content and calls: whole, and piece by piece however they are cut."""

import json
import random
from itertools import pairwise
from typing import Any

import pytest

from triform.text.response_parser import ResponseParser, ResponsePiece
from triform.text.response_template import ResponseTemplate, make_template, read_response_template

QWEN: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"\s*(?:<\|im_end\|>|<\|endoftext\|>)"},
    },
}
TAGS: dict[str, Any] = {
    "start_anchor": "assistant:",
    "fields": {
        "tool_calls": {
            "open_pattern": r"<call>\s*<function=(?P<name>[^>\n]+)>",
            "close_pattern": r"</function>\s*</call>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</parameter>"},
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {},
    },
}
ODD: dict[str, Any] = {
    "start_anchor": ["<|turn>model\n"],
    "fields": {
        "thinking": {"open": "<|channel>thought\n", "close": "<channel|>"},
        "tool_calls": {
            "open_pattern": r"<\|tool_call>call:(?P<name>\w+)",
            "close": "<tool_call|>",
            "repeats": True,
            "content": "json",
            "content_args": {"unquoted_keys": True, "string_delims": [["<q>", "<q>"]]},
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"close": ["<turn|>", "<eos>"]},
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome <b> ü"}}\n</tool_call>'
CASES = [
    (QWEN, "<|im_start|>assistant\n", "Hello there, a < b and <thin air."),
    (QWEN, "<|im_start|>assistant\n", "<think>\nwell <tool_call>\n</think>\n\nIt is 7.<|im_end|>"),
    (QWEN, "<|im_start|>assistant\n<think>\n", "still thinking</think>Done."),
    (QWEN, "<|im_start|>assistant\n<think>\n\n</think>\n\n", "Done."),
    (QWEN, "<|im_start|>assistant\n", f"I look.\n{CALL}\n{CALL}<|im_end|>\n<|endoftext|>"),
    (TAGS, "assistant:", "See: <call>\n<function=go>\n<parameter=to>\nRome\n</parameter>\n</function>\n</call>"),
    (ODD, "<|turn>model\n",
     "<|channel>thought\nhm<channel|>Hi.<|tool_call>call:go{to:<q>a, b: c<q>,n:3}<tool_call|><eos>"),
]  # fmt: skip


def parse(template: ResponseTemplate, text: str, *, prompt: str = "", cuts: list[int] | None = None) -> dict[str, Any]:
    parser = ResponseParser(template, prompt=prompt)
    places = [0, *(range(1, len(text)) if cuts is None else sorted(cuts)), len(text)]
    pieces: list[ResponsePiece] = []
    for start, end in pairwise(places):
        pieces += parser.feed(text[start:end])
    pieces += parser.finish()
    return {
        "reasoning": "".join(piece.reasoning for piece in pieces),
        "content": "".join(piece.content for piece in pieces),
        "calls": [(piece.call.name, json.loads(piece.call.arguments)) for piece in pieces if piece.call is not None],
    }


@pytest.mark.parametrize(("source", "prompt", "text"), CASES, ids=range(len(CASES)))
def test_as_the_reference_reads_it_however_it_is_cut(source: dict[str, Any], prompt: str, text: str) -> None:
    from transformers.utils.chat_parsing import parse_response

    there = parse_response(text, source, prefix=prompt)
    wanted = {
        "reasoning": there.get("reasoning_content", there.get("thinking", "")),
        "content": there.get("content", ""),
        "calls": [(call["function"]["name"], call["function"]["arguments"]) for call in there.get("tool_calls", ())],
    }
    template = read_response_template(source, what="here")
    assert parse(template, text, prompt=prompt, cuts=[]) == wanted
    assert parse(template, text, prompt=prompt) == wanted
    dice = random.Random(0)
    for _ in range(20):
        assert parse(template, text, prompt=prompt, cuts=dice.sample(range(len(text)), 5)) == wanted


def test_a_delimiter_in_two_pieces_is_held_back() -> None:
    """The planted mistake: without holding back, `<tool_` would be content."""
    template = make_template("<tool_call>", tools=True)
    assert template is not None
    parser = ResponseParser(template)
    assert list(parser.feed("Hi <tool_")) == [ResponsePiece(content="Hi")]
    template = template._replace(parts=tuple(part._replace(opens=None) for part in template.parts))
    assert "<tool_" in "".join(piece.content for piece in ResponseParser(template).feed("Hi <tool_"))


def test_forms_that_follow_from_the_chat_template() -> None:
    mistral = make_template("x [TOOL_CALLS] tools", tools=True)
    llama = make_template("x tools", tools=True)
    plain = make_template("x", tools=True)
    assert mistral is not None
    assert llama is not None
    assert plain is not None
    text = '[TOOL_CALLS][{"name": "a", "arguments": {}}, {"name": "b", "arguments": "{}"}]'
    assert parse(mistral, text)["calls"] == [("a", {}), ("b", {})]
    bare = '{"name": "a", "parameters": {"x": 1}}'
    assert parse(llama, bare)["calls"] == [("a", {"x": 1})]
    assert parse(llama, f"No: {bare}")["content"] == f"No: {bare}"
    assert parse(plain, bare) == {"reasoning": "", "content": bare, "calls": []}
    assert make_template("x tools", tools=False) is None
    thinks = make_template("<think>", tools=False)
    assert thinks is not None
    assert parse(thinks, "so</think>7", prompt="assistant\n<think>\n") == {
        "reasoning": "so", "content": "7", "calls": [],
    }  # fmt: skip


@pytest.mark.parametrize("body", ["oops", '{"name": 3}', "[]", '{"name": "a", "arguments": 3}', '{"name": "a", "arg'])
def test_what_is_no_call_stays_text(body: str) -> None:
    template = make_template("<tool_call>", tools=True)
    assert template is not None
    text = f"<tool_call>{body}</tool_call>"
    assert parse(template, text) == {"reasoning": "", "content": text, "calls": []}


def test_calls_can_be_limited_and_an_unended_call_counts_if_it_is_whole() -> None:
    template = make_template("<tool_call>", tools=True)
    assert template is not None
    parser = ResponseParser(template, most_calls=1)
    pieces = [*parser.feed(CALL + CALL), *parser.finish()]
    assert sum(piece.call is not None for piece in pieces) == 1
    assert parse(template, CALL.removesuffix("</tool_call>"))["calls"] == [("weather", {"city": "Rome <b> ü"})]
