"""The response types of OpenAI's routes and of the small ones; the tasks' answers are in the tasks' files."""

from typing import Literal, TypeAlias

import msgspec

from triform.tasks.task import Usage

Reason: TypeAlias = Literal["stop", "length"]
ChatReason: TypeAlias = Literal["stop", "length", "tool_calls"]


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """A served model; `tasks` are the routes under /v1 that it supports, `task` the one it was made for."""

    id: str
    created: int
    form: str
    parameters: int
    context: int
    tasks: tuple[str, ...]
    task: str | None = None
    object: Literal["model"] = "model"
    owned_by: str = "triform"


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The response of `/v1/models`."""

    data: tuple[ModelCard, ...]
    object: Literal["list"] = "list"


class Health(msgspec.Struct, frozen=True):
    """`status` is "ok"."""

    status: str


class Tokenized(msgspec.Struct, frozen=True, kw_only=True):
    """The response of `/v1/tokenize`."""

    ids: tuple[int, ...]
    tokens: tuple[str | None, ...]
    offsets: tuple[tuple[int, ...], ...]  # characters [start, end) of the text; (0, 0) for special tokens
    count: int
    context: int


# --- completions ----------------------------------------------------------------------------------------------------


class Logprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Log-probabilities of a completion's tokens."""

    tokens: tuple[str, ...]
    token_logprobs: tuple[float, ...]
    top_logprobs: tuple[dict[str, float], ...]
    text_offset: tuple[int, ...]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One completion."""

    index: int
    text: str
    logprobs: Logprobs | None = None
    finish_reason: Reason | None = None
    token_ids: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET

    def __str__(self) -> str:
        return self.text


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """The response of `/v1/completions`."""

    id: str
    created: int
    model: str
    choices: tuple[Choice, ...]
    usage: Usage | None = None
    object: Literal["text_completion"] = "text_completion"


# --- chat -----------------------------------------------------------------------------------------------------------


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """A token with its log-probability."""

    token: str
    logprob: float
    bytes: tuple[int, ...] | None


class TokenLogprob(TopLogprob, frozen=True, kw_only=True):
    """A generated token with its log-probability and its alternatives."""

    top_logprobs: tuple[TopLogprob, ...]


class ChatLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Log-probabilities of a message's tokens."""

    content: tuple[TokenLogprob, ...]


class AnswerFunction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`arguments` is JSON, as text; in a stream the name comes first."""

    arguments: str
    name: str | None = None


class AnswerCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the model calls."""

    id: str
    function: AnswerFunction
    type: Literal["function"] = "function"


class AnswerCallPiece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of a call; id, type and name come with its first one."""

    index: int
    function: AnswerFunction
    id: str | None = None
    type: Literal["function"] | None = None


class ChatText(msgspec.Struct, frozen=True, kw_only=True):
    """`content` is null where the model only calls tools; `reasoning_content` is what it thought before."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: tuple[AnswerCall, ...] | msgspec.UnsetType = msgspec.UNSET


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a conversation."""

    index: int
    message: ChatText
    logprobs: ChatLogprobs | None = None
    finish_reason: ChatReason | None = None
    token_ids: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET

    def __str__(self) -> str:
        return (self.message.content or "").strip()


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The response of `/v1/chat/completions`."""

    id: str
    created: int
    model: str
    choices: tuple[ChatChoice, ...]
    usage: Usage | None = None
    object: Literal["chat.completion"] = "chat.completion"


class Delta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a streamed chunk adds to the message."""

    content: str | None = None
    role: Literal["assistant"] | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[AnswerCallPiece, ...] | None = None


class ChatPiece(msgspec.Struct, frozen=True, kw_only=True):
    """One streamed piece of an answer."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: ChatReason | None = None
    token_ids: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One streamed event of `/v1/chat/completions`."""

    id: str
    created: int
    model: str
    choices: tuple[ChatPiece, ...]
    usage: Usage | None = None
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


# --- embeddings -----------------------------------------------------------------------------------------------------


class Embedding(msgspec.Struct, frozen=True, kw_only=True):
    """A list of numbers, or base64 of little-endian float32."""

    index: int
    embedding: tuple[float, ...] | str
    object: Literal["embedding"] = "embedding"


class EmbeddingList(msgspec.Struct, frozen=True, kw_only=True):
    """The response of `/v1/embeddings`."""

    data: tuple[Embedding, ...]
    model: str
    usage: Usage
    object: Literal["list"] = "list"
