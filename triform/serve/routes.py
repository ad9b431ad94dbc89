"""The table of routes: what each takes, gives and does, in one place; those of tasks are made from the tasks.

Checks, the OpenAPI description, the page of documentation and the tests are all made from it.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from triform.costs.predict import Cost
from triform.serve import page_routes, small_routes, task_routes
from triform.serve.anthropic import messages
from triform.serve.anthropic.message_types import (
    CountTokensRequest,
    MessageEvent,
    MessagesRequest,
    ModelMessage,
    TokenCount,
)
from triform.serve.openai import completions, responses
from triform.serve.openai.request_types import (
    ChatRequest,
    CompletionRequest,
    CostAsk,
    EmbeddingRequest,
    TokenizeAsk,
    request_type,
)
from triform.serve.openai.response_types import (
    ChatChunk,
    ChatCompletion,
    Completion,
    EmbeddingList,
    Health,
    ModelCard,
    ModelList,
    Tokenized,
)
from triform.serve.openai.responses_types import ResponseBody, ResponseEvent, ResponsesRequest
from triform.serve.page_routes import LookRequest
from triform.tasks import TASKS, get_task
from triform.tasks.task import Answers

Does: TypeAlias = Callable[..., Awaitable[Any]]


class Route(NamedTuple):
    """`takes` is the body's type (None: no body), `gives` the answer's, `pieces` that of an event of its stream."""

    path: str
    does: Does
    says: str
    takes: type[msgspec.Struct] | None = None
    gives: Any = None
    pieces: type[msgspec.Struct] | None = None
    task: str = ""  # the models that can do this answer here
    body_limit: str = "body_bytes"  # the bound of the body's size, in `Limits`
    field: str = ""  # of the body, that holds what a model reads: what is refused is it, where no other is named

    is_anthropic: bool = False  # errors have the form of its clients
    is_alias: bool = False  # another client's form of a task that has a route already; not in the playground

    @property
    def method(self) -> Literal["GET", "POST"]:
        return "GET" if self.takes is None else "POST"


OPENAI_TASKS = ("complete", "chat", "embed")  # at OpenAI's paths, with OpenAI's types


def make_task_route(name: str) -> Route:
    """The route of a task."""
    task = get_task(name)
    gives = task.response_type or Answers[task.answer_type]  # type: ignore[name-defined]  # made at run time
    takes = request_type(name)
    return Route(
        f"/v1/{task.route or name}", task_routes.make_handler(name), task.summary, takes, gives, task=name,
        field=task.input.__struct_fields__[0],
    )  # fmt: skip


ROUTES: tuple[Route, ...] = (
    Route("/health", small_routes.health, "The process answers. Needs no key.", gives=Health),
    Route(
        "/ready",
        small_routes.ready,
        "Every model's worker answers; 503 where one does not, or when stopping.",
        gives=Health,
    ),
    Route("/metrics", small_routes.metrics, "Counts and times, for Prometheus.", gives=str),
    Route("/v1/models", small_routes.models, "The models that are served, and what each can do.", gives=ModelList),
    Route("/v1/models/{model}", small_routes.model, "One of them.", gives=ModelCard),
    Route(
        "/v1/tokenize",
        small_routes.tokenize,
        "A text as tokens, with their places.",
        TokenizeAsk,
        Tokenized,
        field="text",
    ),
    Route(
        "/v1/completions",
        completions.complete,
        "Continues a prompt; an encoder-decoder answers it.",
        CompletionRequest,
        Completion,
        Completion,
        task="complete",
        field="prompt",
    ),
    Route(
        "/v1/chat/completions",
        completions.chat,
        "The next message of a conversation.",
        ChatRequest,
        ChatCompletion,
        ChatChunk,
        task="chat",
        field="messages",
    ),
    Route(
        "/v1/responses",
        responses.respond,
        "The next message of a conversation, in OpenAI's newer form; nothing is kept.",
        ResponsesRequest,
        ResponseBody,
        ResponseEvent,
        task="chat",
        field="input",
        is_alias=True,
    ),
    Route(
        "/v1/messages",
        messages.send_message,
        "The next message of a conversation, in Anthropic's form.",
        MessagesRequest,
        ModelMessage,
        MessageEvent,
        task="chat",
        field="messages",
        is_anthropic=True,
        is_alias=True,
    ),
    Route(
        "/v1/messages/count_tokens",
        messages.count_tokens,
        "How many tokens a conversation has.",
        CountTokensRequest,
        TokenCount,
        task="chat",
        field="messages",
        is_anthropic=True,
        is_alias=True,
    ),
    Route(
        "/v1/embeddings",
        task_routes.embed,
        "Embeddings of texts, float or base64 of float32.",
        EmbeddingRequest,
        EmbeddingList,
        task="embed",
        field="input",
        body_limit="input_bytes",
    ),
    *(make_task_route(name) for name in TASKS if name not in OPENAI_TASKS),
    Route(
        "/v1/look",
        page_routes.look,
        "What the page asks: every number inside a pass.",
        LookRequest,
        dict[str, Any],
        field="ask",
    ),
    Route("/v1/cost", task_routes.cost, "FLOPs, bytes and memory, from the model's spec.", CostAsk, Cost),
)
