"""The description is true: what it allows is answered within it, what it forbids is refused, nothing fails."""

import os
import warnings
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.specs.openapi.checks import negative_data_rejection
from served_models import ASKS
from served_process import PATIENCE, Process, events

from triform.serve.openai.request_types import CompletionRequest
from triform.serve.routes import ROUTES, Route

MANY = int(os.environ.get("TRIFORM_FUZZ_EXAMPLES", "2000"))
ALWAYS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


# What a description cannot say of a request, so that one which fits it may still be refused: how texts become tokens,
# what belongs together, which ids a vocabulary has.
BEYOND = (
    "at most 128",  # positions, of the models here
    "context is 128",
    "the model reads 128",
    "grammar cannot be used",
    "got 'float'",  # 1.0 is a whole number to a description, not to us
    "is empty",  # but for blanks
    "is left in tokens",
    "nested more than",
    "no mask",
    "outside the vocabulary",
    "response_format needs",
    "texts, of ids, or of lists of ids",
    "tokens; at most",
    "top_logprobs requires logprobs",
    "beside tool_calls",
    "only an assistant calls",
    "must be a JSON object",
    "tool_choice needs tools",
    "not among the tools",
    "have the same name",
    "is no JSON schema",
    "use 'object'",
    "set by the service",
    "is required here",
    "cannot hold a block",
    "must be the user's",
    "needs a name",
    "needs an end token",
    "no passage",
)
ELSEWHERE = {  # two fields that must fit each other, or the model
    "/v1/classify": (
        "labels of your own need a model for natural-language inference",
        "there are no labels to choose from",
        "are not two or more different ones",
        "needs one {} where the label goes",
        "labels of your own are for single texts",
        "second texts; give one per text",
        "this model was trained on single texts",
        "this model compares two texts",
    ),
    "/v1/systemone": (
        "asks one question, questions ask others",
        "choices and levels are two kinds of questions",
        "are not two or more different ones",
    ),
    "/v1/score": (
        "give text (with or without source), or both text_1 and text_2",
        "source belongs to text, not to text_1 and text_2",
        "sources; give one per text",
        "give one, or as many as the other",
        "does not score pairs of texts",
        "has no source; an encoder-decoder scores",
        "an encoder scores whole texts, which have no source",
    ),
    "/v1/embeddings": ("is out of range: this model's vectors have",),
    "/v1/cost": ("an encoder", "a decoder", "encoder-decoder", "generation", "phase", "positions", "source"),
    "/v1/translate": ("an alignment needs cross-attention", "names no language pairs"),
    "/v1/look": ("",),  # every view has bounds of its own, of which the page knows
}


def taken(route: Route, answer: Any) -> None:
    """What the description allows is answered, or refused for a reason that it cannot hold."""
    if answer.status_code in (400, 404, 415):
        said = answer.json()["error"]["message"]
        assert any(reason in said for reason in (*BEYOND, *ELSEWHERE.get(route.path, ()))), f"{route.path}: {said}"


@pytest.fixture(scope="session")
def schema(process: Process) -> Any:
    return schemathesis.openapi.from_url(f"{process.url}/openapi.json")


def fuzz(schema: Any, process: Process, route: Route, mode: GenerationMode, *, examples: int) -> None:
    operation = schema[route.path][route.method]
    checks = [*ALWAYS, negative_data_rejection] if mode == GenerationMode.NEGATIVE else ALWAYS

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=examples < 100,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case: Any) -> None:
        answer = case.call(base_url=process.url, timeout=PATIENCE)
        if mode == GenerationMode.POSITIVE:
            taken(route, answer)
        large = answer.status_code == 413  # a refusal too, though not one that the fuzzer knows
        case.validate_response(answer, checks=ALWAYS if large else checks)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the fuzzer's own libraries warn of
        try:
            check()
        except Unsatisfiable:
            assert route.takes is None  # nothing about such a request can be wrong


MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
EVERY = pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)


@EVERY
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_some_of_everything(schema: Any, process: Process, route: Route, mode: GenerationMode) -> None:
    fuzz(schema, process, route, mode, examples=8)


@pytest.mark.slow
@EVERY
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_much_of_everything(schema: Any, process: Process, route: Route, mode: GenerationMode) -> None:
    fuzz(schema, process, route, mode, examples=MANY)


STREAMED: list[dict[str, Any]] = [
    {"path": "/v1/completions", "n": 2, "logprobs": 3, "return_token_ids": True},
    {"path": "/v1/completions", "stream_options": {"include_usage": True}},
    {"path": "/v1/chat/completions", "n": 2, "logprobs": True, "top_logprobs": 2},
    {"path": "/v1/chat/completions", "stream_options": {"include_usage": True}},
]


@pytest.mark.parametrize("asked", STREAMED, ids=lambda asked: asked["path"])
def test_every_event_of_a_stream_is_of_its_type(process: Process, asked: dict[str, Any]) -> None:
    """Exactly: no field more than the type has, none less."""
    path = asked["path"]
    route = next(route for route in ROUTES if route.path == path)
    body = ASKS[path] | {name: value for name, value in asked.items() if name != "path"} | {"stream": True}
    with process.client() as client, client.stream("POST", path, json=body) as answer:
        *pieces, last = events(answer)
    assert last == "[DONE]"
    assert len(pieces) > 2
    for piece in pieces:
        typed = msgspec.convert(piece, route.pieces)
        assert msgspec.json.decode(msgspec.json.encode(typed)) == piece


def test_the_description_names_every_route_model_and_bound(process: Process) -> None:
    with process.client() as client:
        told = client.get("/openapi.json").json()
    assert {(path, method) for path, each in told["paths"].items() for method in each} == {
        (route.path, route.method.lower()) for route in ROUTES
    }
    ask = told["components"]["schemas"][CompletionRequest.__name__]["properties"]
    assert ask["model"]["enum"] == ["cat", "pair", "taught"]
    assert [one.get("maximum") for one in ask["n"]["anyOf"]] == [8, None]
    assert told["components"]["schemas"]["SearchAsk"]["properties"]["index"]["enum"] == ["texts"]
