"""The table of routes: what each takes, gives and does, in one place; those of tasks are made from the tasks.

Checks, the OpenAPI description, the page of documentation and the tests are all made from it.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from triform.costs.predict import Cost
from triform.serve import page_routes, small_routes, task_routes
from triform.serve.openai import completions
from triform.serve.openai.request_types import (
    ChatAsk,
    CompletionAsk,
    CostAsk,
    EmbeddingAsk,
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
from triform.serve.page_routes import Posted
from triform.tasks import TASKS, named
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

    @property
    def method(self) -> Literal["GET", "POST"]:
        return "GET" if self.takes is None else "POST"


OPENAI_TASKS = ("complete", "chat", "embed")  # at OpenAI's paths, with OpenAI's types


def make_task_route(name: str) -> Route:
    task = named(name)
    gives = task.response_type or Answers[task.answer_type]  # type: ignore[name-defined]  # made at run time
    takes = request_type(name)
    return Route(
        f"/v1/{name}", task_routes.make_handler(name), task.summary, takes, gives, task=name,
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
        CompletionAsk,
        Completion,
        Completion,
        task="complete",
        field="prompt",
    ),
    Route(
        "/v1/chat/completions",
        completions.chat,
        "The next message of a conversation.",
        ChatAsk,
        ChatCompletion,
        ChatChunk,
        task="chat",
        field="messages",
    ),
    Route(
        "/v1/embeddings",
        task_routes.embed,
        "Embeddings of texts, float or base64 of float32.",
        EmbeddingAsk,
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
        Posted,
        dict[str, Any],
        field="ask",
    ),
    Route("/v1/cost", task_routes.cost, "FLOPs, bytes and memory, from the model's spec.", CostAsk, Cost),
)
