"""The bodies and answers of `/v1/messages` and `/v1/messages/count_tokens`."""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from triform.serve.openai.chat_types import MAX_TOOLS, ToolName
from triform.serve.openai.request_types import ModelRequest
from triform.tasks.options import Count, Line


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a request; `cache_control` is not used."""


# --- messages -------------------------------------------------------------------------------------------------------


class TextBlock(Part, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """Text in a message."""

    text: str
    citations: list[msgspec.Raw] | None = None
    cache_control: dict[str, str] | None = None


class ThinkingBlock(Part, frozen=True, kw_only=True, tag_field="type", tag="thinking"):
    """What the model thought; the signature is not used."""

    thinking: str
    signature: str = ""


class ToolUseBlock(Part, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    """A call that the assistant made."""

    id: str
    name: str
    input: dict[str, msgspec.Raw]
    cache_control: dict[str, str] | None = None
    caller: dict[str, str] | None = None


class ToolResultBlock(Part, frozen=True, kw_only=True, tag_field="type", tag="tool_result"):
    """What a tool returned."""

    tool_use_id: str
    content: str | list[TextBlock] | None = None
    is_error: bool | None = None
    cache_control: dict[str, str] | None = None


class SystemText(Part, frozen=True, kw_only=True):
    """Text of the system prompt."""

    text: str
    type: Literal["text"]
    citations: list[msgspec.Raw] | None = None
    cache_control: dict[str, str] | None = None


class ClientMessage(Part, frozen=True, kw_only=True):
    """A message of the conversation."""

    role: Literal["user", "assistant"]
    content: str | list[TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock]


# --- tools and settings ---------------------------------------------------------------------------------------------


class ClientTool(Part, frozen=True, kw_only=True):
    """A tool with the JSON schema of its input; `strict` holds wherever a call is forced."""

    name: ToolName
    input_schema: dict[str, msgspec.Raw]
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    cache_control: dict[str, str] | None = None


class ClientToolChoice(Part, frozen=True, kw_only=True):
    """`name` belongs to the type "tool"."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class Thinking(Part, frozen=True, kw_only=True):
    """Models that think do so unless this says "disabled"; there is no budget beside `max_tokens`."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None
    display: str | None = None


class SchemaOutput(Part, frozen=True, kw_only=True):
    """JSON of this schema."""

    schema: dict[str, msgspec.Raw]
    type: Literal["json_schema"]


class OutputConfig(Part, frozen=True, kw_only=True):
    """The form of the answer; `effort` is not used."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: SchemaOutput | None = None


class CountTokensRequest(ModelRequest, frozen=True, kw_only=True):
    """A conversation whose tokens are counted."""

    task = "chat"
    messages: Annotated[list[ClientMessage], Meta(min_length=1)]
    system: str | list[SystemText] | None = None
    tools: Annotated[list[ClientTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: ClientToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: dict[str, str] | None = None


class MessagesRequest(CountTokensRequest, frozen=True, kw_only=True):
    """A conversation that the model continues."""

    max_tokens: Count
    stop_sequences: list[Line] | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, lt=2**31)] | None = None
    stream: bool | None = False

    # of no effect on an answer
    metadata: dict[str, str | None] | None = None
    service_tier: str | None = None
    inference_geo: str | None = None
    speed: Literal["standard", "fast"] | None = None
    user_profile_id: str | None = None
    workspace_id: str | None = None
    diagnostics: None = None
    container: None = None


# --- answers --------------------------------------------------------------------------------------------------------


class AnswerText(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """Text of the answer."""

    text: str
    citations: None = None


class AnswerThinking(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="thinking"):
    """What the model thought."""

    thinking: str
    signature: str = ""


class AnswerToolUse(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    """A tool that the model calls."""

    id: str
    name: str
    input: dict[str, Any]


AnswerBlock: TypeAlias = AnswerText | AnswerThinking | AnswerToolUse
StopReason: TypeAlias = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class MessageUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens read and generated."""

    input_tokens: int
    output_tokens: int


class ModelMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer; `stop_sequence` is given where the request had only one."""

    id: str
    model: str
    content: tuple[AnswerBlock, ...]
    usage: MessageUsage
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    role: Literal["assistant"] = "assistant"
    type: Literal["message"] = "message"


class TokenCount(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a conversation, as the model reads it."""

    input_tokens: int


class MessageDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an event adds to a block, or, of the last one, why the answer ended."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None


class MessageEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event of a stream; `type` says which fields it has."""

    type: str
    message: ModelMessage | None = None
    index: int | None = None
    content_block: AnswerBlock | None = None
    delta: MessageDelta | None = None
    usage: MessageUsage | None = None
