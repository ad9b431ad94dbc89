"""Messages and tools of chat requests, as OpenAI's clients send them; what a client echoes of an answer is accepted."""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

MAX_TOOLS = 128
ToolName: TypeAlias = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]


# --- messages -------------------------------------------------------------------------------------------------------


class TextPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Text of a message."""

    text: str
    type: Literal["text"] = "text"


class CallFunction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was called; `arguments` is a JSON object, as text."""

    name: str
    arguments: str


class MessageCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call that an assistant's message made."""

    id: str
    function: CallFunction
    type: Literal["function"] = "function"
    index: int | None = None  # of a streamed call; not used


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`content` may be null only beside tool calls."""

    role: Role
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[MessageCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None

    # parts of an answer that clients send back, of no use here
    refusal: str | None = None
    annotations: list[msgspec.Raw] | None = None
    audio: None = None
    function_call: None = None


# --- tools ----------------------------------------------------------------------------------------------------------


class ToolFunction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`parameters` is a JSON schema; `strict` holds wherever a call is forced."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, msgspec.Raw] | None = None
    strict: bool | None = None


class FunctionTool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool that may be called."""

    function: ToolFunction
    type: Literal["function"] = "function"


class ChosenFunction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool by its name."""

    name: str


class NamedTool(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="function"
):
    """This tool is called."""

    function: ChosenFunction


class ToolSubset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some of the tools, and whether one must be called."""

    mode: Literal["auto", "required"]
    tools: list[NamedTool]


class AllowedTools(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="allowed_tools"
):
    """Only some of the tools are there for this request."""

    allowed_tools: ToolSubset


ToolChoice: TypeAlias = Literal["none", "auto", "required"] | NamedTool | AllowedTools
Tools: TypeAlias = Annotated[list[FunctionTool], Meta(max_length=MAX_TOOLS)]
