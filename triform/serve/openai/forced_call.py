"""The grammar of an answer that must call a tool: the call's form as the model writes it, arguments by their schema."""

import json
from typing import Any, NamedTuple

from triform.serve.openai.chat_prompt import OfferedTools
from triform.text.response_template import JSON_CALL, LIST_OF_CALLS, ResponsePart, ResponseTemplate
from triform.text.tokenizer import Tokenizer

PLAIN_TRANSFORMS = (None, "{content}", {"type": "function", "function": "{content}"})


class ForcedCall(NamedTuple):
    """A grammar in llguidance's Lark, and the template that reads what is written under it."""

    grammar: str
    answer: ResponseTemplate


def force_call(answer: ResponseTemplate | None, offered: OfferedTools, tokenizer: Tokenizer) -> ForcedCall:
    """In the model's own form where that is JSON between two literal texts, else in the common one."""
    part = find_call_part(answer)
    contents = ResponsePart("content")
    opening, closing = spell_ends(part)
    rules = [f"start: {quote_literal(opening, tokenizer)} call {quote_literal(closing, tokenizer)}".rstrip()]
    rules.append("call: " + " | ".join(f"call_{at}" for at in range(len(offered.tools))))
    for at, (tool, schema) in enumerate(zip(offered.tools, offered.schemas, strict=True)):
        head = f'{{"name": {json.dumps(tool.function.name)}, "arguments": '
        rules.append(f'call_{at}: {json.dumps(head)} arguments_{at} "}}"')
        compact = close_object(schema) | {"x-guidance": {"whitespace_flexible": False}}
        rules.append(f"arguments_{at}: %json {json.dumps(compact)}")
    return ForcedCall("\n".join(rules), ResponseTemplate((contents, part)))


def close_object(schema: dict[str, Any]) -> dict[str, Any]:
    """No argument that the tool does not have, unless its schema speaks of others."""
    opened = {"additionalProperties", "patternProperties", "anyOf", "oneOf", "allOf", "$ref"} & set(schema)
    return schema if opened else {"type": "object", "additionalProperties": False} | schema


def find_call_part(answer: ResponseTemplate | None) -> ResponsePart:
    """The part that holds calls, where a grammar can write it; else the common one."""
    for part in () if answer is None else answer.parts:
        literal = part.opens is not None and part.opens.literals and (part.closes is None or part.closes.literals)
        if part.name == "tool_calls" and literal and part.content == "json" and part.transform in PLAIN_TRANSFORMS:
            return part
    return JSON_CALL


def spell_ends(part: ResponsePart) -> tuple[str, str]:
    """What stands before and after a call."""
    opening = part.opens.literals[0] if part.opens is not None else ""
    closing = part.closes.literals[0] if part.closes is not None else ""
    if part == LIST_OF_CALLS:
        return f"{opening}[", "]"
    return f"{opening}\n", f"\n{closing}" if closing else ""


def quote_literal(text: str, tokenizer: Tokenizer) -> str:
    """A text in a grammar; where it begins or ends with a special token, the token itself."""
    word = text.strip("[\n") if not text.startswith("[TOOL_CALLS]") else "[TOOL_CALLS]"
    id = tokenizer.id_of(word) if word else None
    if id is None or id not in tokenizer.special_ids:
        return json.dumps(text) if text else ""
    before, _, after = text.partition(word)
    return " ".join([*([json.dumps(before)] if before else []), f"<[{id}]>", *([json.dumps(after)] if after else [])])
