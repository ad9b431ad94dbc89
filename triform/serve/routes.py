"""The table of routes: what each takes, gives and does, in one place.

Checks, the OpenAPI description, the page of documentation and the tests are all made from it.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from triform.costs.predict import Cost
from triform.serve import page_routes, small_routes, task_routes
from triform.serve.openai import completions
from triform.serve.openai.request_types import (
    AnswerAsk,
    ChatAsk,
    ClassifyAsk,
    CompletionAsk,
    CostAsk,
    EmbeddingAsk,
    FillAsk,
    SearchAsk,
    SummarizeAsk,
    TagAsk,
    TokenizeAsk,
    TranslateAsk,
)
from triform.serve.openai.response_types import (
    Answers,
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
from triform.tasks.answer import Answered
from triform.tasks.classify import Classified
from triform.tasks.fill import Filled
from triform.tasks.search import Hits
from triform.tasks.summarize import Summarized
from triform.tasks.tag import TaggedText
from triform.tasks.translate import Translated

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
        "Writes on from a prompt; an encoder-decoder answers it.",
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
        "Texts as vectors, float or base64 of float32.",
        EmbeddingAsk,
        EmbeddingList,
        task="embed",
        field="input",
        body_limit="input_bytes",
    ),
    Route(
        "/v1/translate",
        task_routes.translate,
        "Texts in the model's other language.",
        TranslateAsk,
        Answers[Translated],
        task="translate",
        field="text",
    ),
    Route(
        "/v1/summarize",
        task_routes.summarize,
        "Texts made short.",
        SummarizeAsk,
        Answers[Summarized],
        task="summarize",
        field="text",
    ),
    Route(
        "/v1/classify",
        task_routes.classify,
        "Labels with probabilities.",
        ClassifyAsk,
        Answers[Classified],
        task="classify",
        field="text",
    ),
    Route(
        "/v1/tag",
        task_routes.tag,
        "Entities, with their characters.",
        TagAsk,
        Answers[TaggedText],
        task="tag",
        field="text",
    ),
    Route(
        "/v1/answer",
        task_routes.answer,
        "Questions about a text: where the answer stands, or what it is.",
        AnswerAsk,
        Answers[Answered],
        task="answer",
        field="question",
    ),
    Route(
        "/v1/fill",
        task_routes.fill,
        "Words for the masks of a text.",
        FillAsk,
        Answers[Filled],
        task="fill",
        field="text",
    ),
    Route(
        "/v1/search",
        task_routes.search,
        "The nearest passages of an index.",
        SearchAsk,
        Answers[Hits],
        task="search",
        field="text",
    ),
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
