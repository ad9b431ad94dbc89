"""Request bodies: one type per route, strict about every field; those of tasks are made from the tasks.

Fixed ranges are in the types; those that can be configured are in `limits.py`. `/openapi.json` and `/docs` are made
from the types.
"""

from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Meta

from triform.costs.workload import Phase
from triform.serve.openai.chat_types import ChatMessage, TextPart, ToolChoice, Tools
from triform.tasks import get_task
from triform.tasks.options import Count, Line, fields_of

Penalty: TypeAlias = Annotated[float, Meta(ge=-2, le=2)]
Bias: TypeAlias = Annotated[float, Meta(ge=-100, le=100)]
TokenId: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]
Ids: TypeAlias = Annotated[list[TokenId], Meta(min_length=1)]
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
AlwaysFalse: TypeAlias = Annotated[bool, Meta(extra_json_schema={"const": False})]


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to a model."""

    task: ClassVar[str] = ""  # whose options its fields are
    model: str


# --- generation -----------------------------------------------------------------------------------------------------


class TextFormat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """Unconstrained text."""


class JsonFormat(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="json_object"
):
    """Any JSON object."""


class NamedSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A JSON schema with its name."""

    schema: dict[str, msgspec.Raw]
    name: str = ""
    description: str = ""
    strict: bool | None = None


class SchemaFormat(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="json_schema"
):
    """JSON of this schema."""

    json_schema: NamedSchema


class RegexFormat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="regex"):
    """Text that the regular expression matches as a whole."""

    pattern: Annotated[str, Meta(min_length=1, max_length=4096)]


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a streamed response contains besides its text."""

    include_usage: bool = False
    include_obfuscation: bool = False  # not used


class Prediction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text that the answer will resemble; not used."""

    content: str | list[TextPart]
    type: Literal["content"] = "content"


class PromptCacheOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Not used: prefixes are cached wherever they fit."""

    mode: Literal["implicit", "explicit"] | None = None
    ttl: str | None = None
    comparison_response_id: str | None = None
    prewarm: bool | None = None


class GenerationRequest(ModelRequest, frozen=True, kw_only=True):
    """How to generate: OpenAI's fields, then those that other servers have added."""

    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    n: Count | None = 1
    stop: Line | list[Line] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    presence_penalty: Penalty | None = 0.0
    frequency_penalty: Penalty | None = 0.0
    logit_bias: dict[TokenId, Bias] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    response_format: TextFormat | JsonFormat | SchemaFormat | RegexFormat | None = None
    user: str | None = None  # not used

    top_k: Annotated[int, Meta(ge=0, lt=2**31)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=10)] | None = None  # nearer to 0, logits overflow
    ignore_eos: bool = False
    return_token_ids: bool = False


class CompletionRequest(GenerationRequest, frozen=True, kw_only=True):
    """A prompt to continue, or the source of an encoder-decoder; one or several, as text or token ids."""

    task = "complete"
    prompt: str | list[str | TokenId | Ids]
    logprobs: Annotated[int, Meta(ge=0, lt=2**31)] | None = None

    # OpenAI's fields, accepted only with values that change nothing
    echo: AlwaysFalse | None = False
    best_of: Literal[1] | None = None
    suffix: None = None


class ChatRequest(GenerationRequest, frozen=True, kw_only=True):
    """A conversation, rendered with the chat template of the model's folder."""

    task = "chat"
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = False
    top_logprobs: Annotated[int, Meta(ge=0, lt=2**31)] | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = True
    reasoning_effort: Effort | None = None
    chat_template_kwargs: dict[str, str | float | bool | None] | None = None  # variables of the chat template

    # of no effect on an answer
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prediction: Prediction | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: str | None = None

    # accepted only with values that change nothing
    modalities: list[Literal["text"]] | None = None
    verbosity: Literal["medium"] | None = None
    audio: None = None
    functions: None = None
    function_call: None = None
    moderation: None = None
    web_search_options: None = None


# --- embeddings -----------------------------------------------------------------------------------------------------


class EmbeddingRequest(ModelRequest, frozen=True, kw_only=True):
    """Texts to embed, or token ids of one or several."""

    task = "embed"
    input: Line | Annotated[list[Line | TokenId | Ids], Meta(min_length=1)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Count | None = None
    prompt_name: str | None = None  # of the prompts in the model's folder
    user: str | None = None


# --- the tasks ------------------------------------------------------------------------------------------------------


@cache
def request_type(name: str) -> type[msgspec.Struct]:
    """`ClassifyAsk` and its like: the model, what a question of the task is made of, and its options."""
    task = get_task(name)
    fields: list[Any] = [(field.name, field.type, field.default) for field in fields_of(task.input)]
    fields += [(field.http_name, field.type, field.default) for field in task.fields if field.http_name is not None]
    return msgspec.defstruct(
        f"{name.capitalize()}Ask",
        [field if field[2] is not msgspec.NODEFAULT else field[:2] for field in fields],
        bases=(ModelRequest,),
        namespace={"__doc__": task.input.__doc__, "task": name},
        module=__name__,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )


# --- ours -----------------------------------------------------------------------------------------------------------


class TokenizeAsk(ModelRequest, frozen=True, kw_only=True):
    """A text to be cut into tokens."""

    text: str
    special: bool = True  # with the tokens the tokenizer adds, as [CLS]


class CostAsk(ModelRequest, frozen=True, kw_only=True):
    """What a phase would cost on this model, from its spec alone."""

    phase: Phase = "reading"
    batch: Annotated[int, Meta(ge=1, le=2**20)] = 1
    length: Count | None = None
    source: Count | None = None
    new: Count | None = None
    dtype: Literal["float64", "float32", "bfloat16", "float16"] = "float32"
