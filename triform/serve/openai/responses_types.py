"""The body and the answer of `/v1/responses`: OpenAI's newer form of a chat, here without memory between requests."""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from triform.serve.openai.chat_types import MAX_TOOLS, ToolName
from triform.serve.openai.request_types import AlwaysFalse, Effort, ModelRequest, PromptCacheOptions
from triform.tasks.options import Count

Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a request."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an answer."""


# --- input ----------------------------------------------------------------------------------------------------------


class InputPart(Body, frozen=True, kw_only=True):
    """Text of an input item."""

    text: str
    type: Literal["input_text", "output_text", "text", "reasoning_text", "summary_text"]
    annotations: list[msgspec.Raw] | None = None  # of an answer that is sent back; not used
    logprobs: list[msgspec.Raw] | None = None


class ResponsesItem(Body, frozen=True, kw_only=True):
    """A message, a call, its result, or reasoning: `type` says which of the fields belong to it."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None

    # what clients send back of an answer; not used
    id: str | None = None
    status: Status | None = None
    phase: str | None = None
    summary: list[InputPart] | None = None
    encrypted_content: str | None = None


class ResponsesTool(Body, frozen=True, kw_only=True):
    """A function that may be called; `strict` holds wherever a call is forced."""

    name: ToolName
    type: Literal["function"]
    description: str | None = None
    parameters: dict[str, msgspec.Raw] | None = None
    strict: bool | None = None


class ResponsesNamedTool(Body, frozen=True, kw_only=True):
    """This function is called."""

    name: str
    type: Literal["function"]


class TextFormatAsked(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="text"
):
    """Unconstrained text."""


class JsonFormatAsked(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="json_object"
):
    """Any JSON object."""


class SchemaFormatAsked(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="json_schema"
):
    """JSON of this schema."""

    schema: dict[str, msgspec.Raw]
    name: str = ""
    description: str | None = None
    strict: bool | None = None


class TextSettings(Body, frozen=True, kw_only=True):
    """The form of the answer's text."""

    format: TextFormatAsked | JsonFormatAsked | SchemaFormatAsked | None = None
    verbosity: Literal["medium"] | None = None


class ReasoningSettings(Body, frozen=True, kw_only=True):
    """How much a model that thinks should think."""

    effort: Effort | None = None
    summary: str | None = None  # not used: reasoning is given whole
    generate_summary: str | None = None


class ResponsesStreamOptions(Body, frozen=True, kw_only=True):
    """Options of a stream."""

    include_obfuscation: bool = False  # not used


class ResponsesRequest(ModelRequest, frozen=True, kw_only=True):
    """A conversation or a text, and what may be called; nothing is kept afterwards."""

    task = "chat"
    input: str | Annotated[list[ResponsesItem], Meta(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    stream: bool | None = False
    stream_options: ResponsesStreamOptions | None = None
    text: TextSettings | None = None
    tools: Annotated[list[ResponsesTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ResponsesNamedTool | None = None
    parallel_tool_calls: bool | None = True
    reasoning: ReasoningSettings | None = None

    # of no effect on an answer
    metadata: dict[str, str] | None = None
    store: bool | None = None
    include: list[Literal["reasoning.encrypted_content"]] | None = None
    max_tool_calls: Count | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: str | None = None
    user: str | None = None

    # accepted only with values that change nothing
    background: AlwaysFalse | None = None
    truncation: Literal["disabled"] | None = None
    top_logprobs: Literal[0] | None = None
    previous_response_id: None = None
    conversation: None = None
    prompt: None = None
    moderation: None = None
    context_management: None = None
    access_programs: None = None
    image: None = None


# --- output ---------------------------------------------------------------------------------------------------------


class OutputText(Answer, frozen=True, kw_only=True):
    """Text of the answer."""

    text: str
    type: Literal["output_text"] = "output_text"
    annotations: tuple[str, ...] = ()
    logprobs: tuple[str, ...] = ()


class ReasoningText(Answer, frozen=True, kw_only=True):
    """What the model thought."""

    text: str
    type: Literal["reasoning_text"] = "reasoning_text"


class MessageItem(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """A message of the model."""

    id: str
    status: Status
    content: tuple[OutputText, ...]
    role: Literal["assistant"] = "assistant"


class CallItem(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    """A function that the model calls."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: Status


class ReasoningItem(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    """What the model thought before."""

    id: str
    status: Status
    content: tuple[ReasoningText, ...]
    summary: tuple[str, ...] = ()


OutputItem: TypeAlias = MessageItem | CallItem | ReasoningItem


class IncompleteDetails(Answer, frozen=True, kw_only=True):
    """Why the answer is not complete."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class CachedTokens(Answer, frozen=True, kw_only=True):
    """Prompt tokens from a cache; not counted here."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class ReasoningTokens(Answer, frozen=True, kw_only=True):
    """Tokens of reasoning; not counted apart here."""

    reasoning_tokens: int = 0


class ResponsesUsage(Answer, frozen=True, kw_only=True):
    """Tokens read and generated."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: CachedTokens = CachedTokens()
    output_tokens_details: ReasoningTokens = ReasoningTokens()


class ResponseBody(Answer, frozen=True, kw_only=True):
    """The answer; the settings of the request come back with it."""

    id: str
    created_at: int
    model: str
    status: Status
    output: tuple[OutputItem, ...]
    usage: ResponsesUsage | None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] = {}
    parallel_tool_calls: bool = True
    temperature: float | None = None
    top_p: float | None = None
    text: dict[str, Any] = {}
    tool_choice: Any = "auto"
    tools: tuple[ResponsesTool, ...] = ()
    reasoning: dict[str, Any] = {}
    error: None = None
    previous_response_id: None = None
    store: bool = False
    truncation: Literal["disabled"] = "disabled"
    object: Literal["response"] = "response"


class ResponseEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event of a stream; `type` says which fields it has."""

    type: str
    sequence_number: int
    response: ResponseBody | None = None
    item: OutputItem | None = None
    part: OutputText | None = None
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    delta: str | None = None
    text: str | None = None
    name: str | None = None
    arguments: str | None = None
    logprobs: tuple[str, ...] | None = None
