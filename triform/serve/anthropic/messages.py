"""`/v1/messages`: Anthropic's body as a chat request, and the chat's answer as blocks, whole or as events."""

import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import msgspec

from triform.serve.anthropic import message_types as types
from triform.serve.anthropic.message_types import (
    ClientMessage,
    CountTokensRequest,
    MessageEvent,
    MessagesRequest,
    ModelMessage,
)
from triform.serve.http.http_errors import RequestError
from triform.serve.http.request_context import RequestContext
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
from triform.serve.openai.completions import answer_chat, render_chat, tokenize_chat
from triform.serve.openai.parts_builder import PartsBuilder
from triform.serve.openai.request_types import ChatRequest, NamedSchema, SchemaFormat
from triform.text.response_parser import ResponsePiece

OTHER_PARAMS = {"response_format": "output_config.format", "stop": "stop_sequences"}


async def send_message(call: RequestContext, body: MessagesRequest) -> ModelMessage | AsyncIterator[bytes]:
    """`POST /v1/messages`."""
    request = make_chat_request(body)
    try:
        answer: ModelMessage | AsyncIterator[bytes] = await answer_chat(
            call, request, partial(MessageBuilder, body=body)
        )
    except RequestError as error:
        error.param = rename_param(error.param)
        raise
    return answer


async def count_tokens(call: RequestContext, body: CountTokensRequest) -> types.TokenCount:
    """`POST /v1/messages/count_tokens`."""
    request = make_chat_request(body)
    served = call.find_model(body.model, task="chat")
    (ids,) = await tokenize_chat(served, (await render_chat(served, request)).text)
    return types.TokenCount(input_tokens=len(ids))


def rename_param(param: str | None) -> str | None:
    """The field of this route; several messages of a chat may come from one of its messages, so none is numbered."""
    first = (param or "").partition("[")[0]
    return "messages" if first == "messages" else OTHER_PARAMS.get(first, param)


# --- the request ----------------------------------------------------------------------------------------------------


def make_chat_request(body: CountTokensRequest) -> ChatRequest:
    """The same conversation as a chat request."""
    messages = [message for at, each in enumerate(body.messages) for message in make_messages(each, at)]
    if messages[-1].role == "assistant":
        raise RequestError("the last message must be the user's", param="messages")
    system = join_texts(body.system)
    if system:
        messages.insert(0, ChatMessage(role="system", content=system))
    fields = {} if not isinstance(body, MessagesRequest) else generation_fields(body)
    thinks = body.thinking is None or body.thinking.type != "disabled"
    return ChatRequest(
        model=body.model,
        messages=messages,
        tools=None if body.tools is None else [make_tool(tool) for tool in body.tools],
        tool_choice=choose(body.tool_choice),
        parallel_tool_calls=body.tool_choice is None or not body.tool_choice.disable_parallel_tool_use,
        reasoning_effort=None if thinks else "none",
        response_format=make_format(body.output_config),
        **fields,
    )


def generation_fields(body: MessagesRequest) -> dict[str, Any]:
    names = ("max_tokens", "temperature", "top_p", "top_k", "stream")
    return {name: getattr(body, name) for name in names} | {"stop": body.stop_sequences}


def make_tool(tool: types.ClientTool) -> FunctionTool:
    return FunctionTool(
        function=ToolFunction(name=tool.name, description=tool.description, parameters=tool.input_schema)
    )


def choose(choice: types.ClientToolChoice | None) -> Any:
    """The tool choice of a chat request."""
    if choice is None or choice.type in ("auto", "none"):
        return None if choice is None else choice.type
    if choice.type == "any":
        return "required"
    if choice.name is None:
        raise RequestError("tool_choice of type 'tool' needs a name", param="tool_choice.name")
    return NamedTool(function=ChosenFunction(name=choice.name))


def make_format(config: types.OutputConfig | None) -> SchemaFormat | None:
    if config is None or config.format is None:
        return None
    return SchemaFormat(json_schema=NamedSchema(schema=config.format.schema))


def make_messages(message: ClientMessage, at: int) -> Iterator[ChatMessage]:
    """Results of tools become messages of their own, before what the user says."""
    blocks = [types.TextBlock(text=message.content)] if isinstance(message.content, str) else message.content
    said: list[TextPart] = []
    calls: list[MessageCall] = []
    thought = ""
    for number, block in enumerate(blocks):
        refuse_misplaced(block, message.role, param=f"messages[{at}].content[{number}]")
        if isinstance(block, types.TextBlock):
            said.append(TextPart(text=block.text))
        elif isinstance(block, types.ThinkingBlock):
            thought += block.thinking
        elif isinstance(block, types.ToolUseBlock):
            arguments = msgspec.json.encode(block.input).decode()
            calls.append(MessageCall(id=block.id, function=CallFunction(name=block.name, arguments=arguments)))
        else:
            yield ChatMessage(role="tool", content=join_texts(block.content), tool_call_id=block.tool_use_id)
    if said or calls or message.role == "assistant":
        yield ChatMessage(role=message.role, content=said, tool_calls=calls or None, reasoning_content=thought or None)


def refuse_misplaced(block: Any, role: str, *, param: str) -> None:
    """Calls and thoughts are the assistant's, results the user's."""
    owner: dict[Any, str] = {
        types.ToolUseBlock: "assistant",
        types.ThinkingBlock: "assistant",
        types.ToolResultBlock: "user",
    }
    if owner.get(type(block), role) != role:
        kind = type(block).__struct_config__.tag
        raise RequestError(f"a message of the {role} cannot hold a block of type {kind!r}", param=param)


def join_texts(content: str | list[Any] | None) -> str:
    return content or "" if content is None or isinstance(content, str) else "\n".join(part.text for part in content)


# --- the answer -----------------------------------------------------------------------------------------------------


class MessageBuilder(PartsBuilder):
    """Blocks in the order of the text: thinking, text, calls."""

    kind, reasoning, content = "msg", "thinking", "text"

    def __init__(self, *given: Any, body: MessagesRequest, **named: Any) -> None:
        super().__init__(*given, **named)
        self.body = body
        self.blocks: list[types.AnswerBlock] = []
        self.finish: str | None = None

    def begin(self) -> Iterator[MessageEvent]:
        yield MessageEvent(type="message_start", message=self.make_body(ended=False))

    def end(self) -> Iterator[MessageEvent]:
        ended = self.make_body(ended=True)
        delta = types.MessageDelta(stop_reason=ended.stop_reason, stop_sequence=ended.stop_sequence)
        yield MessageEvent(type="message_delta", delta=delta, usage=ended.usage)
        yield MessageEvent(type="message_stop")

    def finish_parts(self, finish: str) -> Iterator[MessageEvent]:
        self.finish = finish
        yield from self.close_part()

    def add_text(self, kind: str, text: str) -> Iterator[MessageEvent]:
        if self.open != kind:
            yield from self.close_part()
            self.open, self.text = kind, ""
            yield MessageEvent(type="content_block_start", index=len(self.blocks), content_block=self.make_block())
        self.text += text
        added = {"thinking": text} if kind == "thinking" else {"text": text}
        delta = msgspec.convert({"type": f"{kind}_delta"} | added, types.MessageDelta)
        yield MessageEvent(type="content_block_delta", index=len(self.blocks), delta=delta)

    def close_part(self) -> Iterator[MessageEvent]:
        if self.open is not None:
            yield MessageEvent(type="content_block_stop", index=len(self.blocks))
            self.blocks.append(self.make_block())
            self.open = None

    def make_block(self) -> types.AnswerBlock:
        if self.open == "thinking":
            return types.AnswerThinking(thinking=self.text)
        return types.AnswerText(text=self.text)

    def add_call(self, piece: ResponsePiece) -> Iterator[MessageEvent]:
        call, index = identify(piece), len(self.blocks)
        empty = types.AnswerToolUse(id=call.id, name=call.name, input={})
        yield MessageEvent(type="content_block_start", index=index, content_block=empty)
        delta = types.MessageDelta(type="input_json_delta", partial_json=call.arguments)
        yield MessageEvent(type="content_block_delta", index=index, delta=delta)
        yield MessageEvent(type="content_block_stop", index=index)
        self.blocks.append(msgspec.structs.replace(empty, input=json.loads(call.arguments)))

    def make_body(self, *, ended: bool) -> ModelMessage:
        stops = self.body.stop_sequences or []
        stopped = self.finish == "stop" and len(stops) == 1
        usage = types.MessageUsage(
            input_tokens=self.usage.prompt_tokens, output_tokens=self.usage.completion_tokens or 0
        )
        return ModelMessage(
            id=self.id,
            model=self.served.name,
            content=tuple(self.blocks),
            usage=usage,
            stop_reason=self.find_stop_reason(),
            stop_sequence=stops[0] if stopped else None,
        )

    def find_stop_reason(self) -> types.StopReason | None:
        if self.finish is None:
            return None
        if any(isinstance(block, types.AnswerToolUse) for block in self.blocks):
            return "tool_use"
        reasons: dict[str, types.StopReason] = {"length": "max_tokens", "stop": "stop_sequence"}
        return reasons.get(self.finish, "end_turn")
