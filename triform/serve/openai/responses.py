"""`/v1/responses`: its body as a chat request, and the chat's answer as output items, whole or as events."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import msgspec

from triform.serve.http.http_errors import RequestError
from triform.serve.http.request_context import RequestContext
from triform.serve.openai import responses_types as types
from triform.serve.openai.answer_reader import identify
from triform.serve.openai.chat_types import (
    CallFunction,
    ChatMessage,
    ChosenFunction,
    FunctionTool,
    MessageCall,
    NamedTool,
    TextPart,
    ToolFunction,
)
from triform.serve.openai.completions import answer_chat
from triform.serve.openai.parts_builder import PartsBuilder
from triform.serve.openai.request_types import ChatRequest, JsonFormat, NamedSchema, SchemaFormat
from triform.serve.openai.responses_types import InputPart, ResponseBody, ResponseEvent, ResponsesItem, ResponsesRequest
from triform.text.response_parser import ResponsePiece


async def respond(call: RequestContext, body: ResponsesRequest) -> ResponseBody | AsyncIterator[bytes]:
    """`POST /v1/responses`."""
    if body.background:
        raise RequestError("responses are not kept, so none can be made in the background", param="background")
    request = make_chat_request(body)
    try:
        answer: ResponseBody | AsyncIterator[bytes] = await answer_chat(
            call, request, partial(ResponsesBuilder, body=body)
        )
    except RequestError as error:
        error.param = rename_param(error.param)
        raise
    return answer


OTHER_PARAMS = {"messages": "input", "max_tokens": "max_output_tokens", "response_format": "text.format"}


def rename_param(param: str | None) -> str | None:
    """The field of this route that a field of a chat request was made from; of a message only that it is the input."""
    first = (param or "").partition("[")[0]
    return OTHER_PARAMS.get(first, param)


# --- the request ----------------------------------------------------------------------------------------------------


def make_chat_request(body: ResponsesRequest) -> ChatRequest:
    """The same conversation as a chat request."""
    items = [ResponsesItem(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    opening = [ChatMessage(role="system", content=body.instructions)] if body.instructions else []
    choice = body.tool_choice
    if isinstance(choice, types.ResponsesNamedTool):
        choice = NamedTool(function=ChosenFunction(name=choice.name))  # type: ignore[assignment]
    return ChatRequest(
        model=body.model,
        messages=[*opening, *make_messages(items)],
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        stream=body.stream,
        tools=None if body.tools is None else [make_tool(tool) for tool in body.tools],
        tool_choice=choice,  # type: ignore[arg-type]
        parallel_tool_calls=body.parallel_tool_calls,
        reasoning_effort=None if body.reasoning is None else body.reasoning.effort,
        response_format=make_format(body.text),
    )


def make_tool(tool: types.ResponsesTool) -> FunctionTool:
    """A tool of a chat request."""
    return FunctionTool(
        function=ToolFunction(
            name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict
        )
    )


def make_format(text: types.TextSettings | None) -> JsonFormat | SchemaFormat | None:
    """The format of a chat request's answer."""
    asked = None if text is None else text.format
    if isinstance(asked, types.JsonFormatAsked):
        return JsonFormat()
    if isinstance(asked, types.SchemaFormatAsked):
        return SchemaFormat(json_schema=NamedSchema(schema=asked.schema, name=asked.name))
    return None


def make_messages(items: list[ResponsesItem]) -> Iterator[ChatMessage]:
    """Calls, and reasoning, become parts of one assistant's message with what it said before."""
    reasoning, waiting = "", ChatMessage(role="assistant")
    for at, item in enumerate(items):
        if item.type == "reasoning":
            reasoning += join_parts(item.content)
        elif item.type == "function_call":
            waiting = add_call(waiting, item, at, reasoning=reasoning)
            reasoning = ""
        else:
            if waiting.content is not None or waiting.tool_calls:
                yield waiting
            waiting = ChatMessage(role="assistant")
            message = make_message(item, at, reasoning=reasoning)
            reasoning = ""
            if message.role == "assistant":
                waiting = message
            else:
                yield message
    if waiting.content is not None or waiting.tool_calls:
        yield waiting


def add_call(message: ChatMessage, item: ResponsesItem, at: int, *, reasoning: str) -> ChatMessage:
    """The assistant's message with one more call."""
    name, id = require(item.name, at, "name"), require(item.call_id, at, "call_id")
    made = MessageCall(id=id, function=CallFunction(name=name, arguments=item.arguments or "{}"))
    kept = message.reasoning_content or reasoning or None
    calls = [*(message.tool_calls or ()), made]
    return msgspec.structs.replace(message, tool_calls=calls, reasoning_content=kept)


def make_message(item: ResponsesItem, at: int, *, reasoning: str) -> ChatMessage:
    """A message, or the result of a call."""
    if item.type == "function_call_output":
        id, output = require(item.call_id, at, "call_id"), require(item.output, at, "output")
        return ChatMessage(role="tool", content=join_parts(output), tool_call_id=id)
    role, content = require(item.role, at, "role"), require(item.content, at, "content")
    parts = content if isinstance(content, str) else [TextPart(text=part.text) for part in content]
    thought = reasoning if role == "assistant" and reasoning else None
    return ChatMessage(role=role, content=parts, reasoning_content=thought)


def require(value: Any, at: int, name: str) -> Any:
    if value is None:
        raise RequestError(f"{name!r} is required here", param=f"input[{at}].{name}")
    return value


def join_parts(content: str | list[InputPart] | None) -> str:
    return content or "" if content is None or isinstance(content, str) else "".join(part.text for part in content)


# --- the answer -----------------------------------------------------------------------------------------------------


class ResponsesBuilder(PartsBuilder):
    """Items of the output, in the order of the text: reasoning, a message, calls."""

    kind, reasoning, content = "resp", "reasoning", "message"

    def __init__(self, *given: Any, body: ResponsesRequest, **named: Any) -> None:
        super().__init__(*given, **named)
        self.body = body
        self.items: list[types.OutputItem] = []
        self.sent = -1  # the last event's number
        self.truncated = False

    def begin(self) -> Iterator[ResponseEvent]:
        for name in ("response.created", "response.in_progress"):
            yield self.event(name, response=self.make_body(ended=False))

    def end(self) -> Iterator[ResponseEvent]:
        name = "response.incomplete" if self.truncated else "response.completed"
        yield self.event(name, response=self.make_body(ended=True))

    def finish_parts(self, finish: str) -> Iterator[ResponseEvent]:
        self.truncated = finish == "length"
        if not self.items and self.open is None:
            yield from self.add_text("message", "")
        yield from self.close_part()

    def add_text(self, kind: str, text: str) -> Iterator[ResponseEvent]:
        if self.open != kind:
            yield from self.close_part()
            self.open, self.text = kind, ""
            yield self.item_event("added", self.make_item("", "in_progress", empty=True))
            if kind == "message":
                part = types.OutputText(text="")
                yield self.event("response.content_part.added", part=part, content_index=0, **self.place)
        self.text += text
        if kind == "message":
            yield self.event("response.output_text.delta", delta=text, content_index=0, logprobs=(), **self.place)
        else:
            yield self.event("response.reasoning_text.delta", delta=text, content_index=0, **self.place)

    def close_part(self) -> Iterator[ResponseEvent]:
        if self.open is None:
            return
        text, kind = self.text, self.open
        if kind == "message":
            part = types.OutputText(text=text)
            yield self.event("response.output_text.done", text=text, content_index=0, logprobs=(), **self.place)
            yield self.event("response.content_part.done", part=part, content_index=0, **self.place)
        else:
            yield self.event("response.reasoning_text.done", text=text, content_index=0, **self.place)
        item = self.make_item(text, "incomplete" if self.truncated else "completed")
        yield self.item_event("done", item)
        self.items.append(item)
        self.open = None

    def add_call(self, piece: ResponsePiece) -> Iterator[ResponseEvent]:
        call = identify(piece)
        item = types.CallItem(
            id=self.place["item_id"], call_id=call.id, name=call.name, arguments="", status="in_progress"
        )
        yield self.item_event("added", item)
        yield self.event("response.function_call_arguments.delta", delta=call.arguments, **self.place)
        yield self.event(
            "response.function_call_arguments.done", name=call.name, arguments=call.arguments, **self.place
        )
        item = msgspec.structs.replace(item, arguments=call.arguments, status="completed")
        yield self.item_event("done", item)
        self.items.append(item)

    @property
    def place(self) -> dict[str, Any]:
        """Of the item that is written next."""
        return {"item_id": f"item_{self.call.id}_{len(self.items)}", "output_index": len(self.items)}

    def make_item(self, text: str, status: types.Status, *, empty: bool = False) -> types.OutputItem:
        id = self.place["item_id"]
        if self.open == "reasoning":
            thoughts = () if empty else (types.ReasoningText(text=text),)
            return types.ReasoningItem(id=id, status=status, content=thoughts)
        return types.MessageItem(id=id, status=status, content=() if empty else (types.OutputText(text=text),))

    def item_event(self, what: str, item: types.OutputItem) -> ResponseEvent:
        return self.event(f"response.output_item.{what}", item=item, output_index=len(self.items))

    def event(self, type: str, **fields: Any) -> ResponseEvent:
        self.sent += 1
        return ResponseEvent(type=type, sequence_number=self.sent, **fields)

    def make_body(self, *, ended: bool) -> ResponseBody:
        body, usage = self.body, None
        if ended:
            usage = types.ResponsesUsage(
                input_tokens=self.usage.prompt_tokens,
                output_tokens=self.usage.completion_tokens or 0,
                total_tokens=self.usage.total_tokens,
            )
        return ResponseBody(
            id=self.id,
            created_at=self.created,
            model=self.served.name,
            status="in_progress" if not ended else "incomplete" if self.truncated else "completed",
            incomplete_details=types.IncompleteDetails() if ended and self.truncated else None,
            output=tuple(self.items),
            usage=usage,
            instructions=body.instructions,
            max_output_tokens=body.max_output_tokens,
            metadata=body.metadata or {},
            parallel_tool_calls=body.parallel_tool_calls is not False,
            temperature=body.temperature,
            top_p=body.top_p,
            text={"format": {"type": "text"} if body.text is None or body.text.format is None else body.text.format},
            tool_choice="auto" if body.tool_choice is None else body.tool_choice,
            tools=tuple(body.tools or ()),
            reasoning={"effort": None if body.reasoning is None else body.reasoning.effort},
        )
