"""What a request held, its body first of all, is freed when it ends, not at some later garbage collection."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from served_callers import Caller, standing, until
from served_models import decoder, encoder, run, serving

from triform.errors import StoreUnavailable
from triform.serve.http.app import drop_tracebacks
from triform.serve.http.http_errors import RequestError, to_request_error
from triform.serve.http.request_context import RequestContext
from triform.serve.worker.bounded_queues import run_in_daemon_thread

GOOD: dict[str, Any] = {"model": "cat", "prompt": "the cat", "max_tokens": 2}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "whole": ("/v1/completions", GOOD),
    "stream": ("/v1/completions", GOOD | {"stream": True}),
    "wrong type": ("/v1/completions", GOOD | {"prompt": 7.5}),
    "too long": ("/v1/completions", GOOD | {"prompt": "a " * 200_000}),
    "too many tokens": ("/v1/completions", GOOD | {"prompt": "cat " * 300}),
    "unknown model": ("/v1/completions", GOOD | {"model": "nobody"}),
    "nothing to fill": ("/v1/fill", {"model": "fill", "text": "the cat"}),
    "task": ("/v1/fill", {"model": "fill", "text": "the [MASK]"}),
}


@pytest.fixture
def collected_by_hand() -> Iterator[None]:
    """What was there before is frozen: neither counted nor collected."""
    gc.freeze()
    gc.disable()
    yield
    gc.enable()


def held() -> int:
    return sum(type(thing) in (RequestContext, RequestError) for thing in gc.get_objects())


@pytest.mark.usefixtures("collected_by_hand")
@pytest.mark.parametrize("kind", BODIES)
def test_a_request_is_freed_with_its_answer(kind: str) -> None:
    async def ask() -> int:
        async with serving({"cat": decoder(), "fill": encoder("fill")}) as (_, client):
            path, body = BODIES[kind]
            await client.post(path, json=body)
            await client.get("/health")
            return held()

    assert run(ask()) == 0


@pytest.mark.usefixtures("collected_by_hand")
def test_a_request_is_freed_when_its_client_leaves() -> None:
    async def ask() -> int:
        async with standing() as (service, made):
            caller = Caller(made, GOOD | {"max_tokens": 100, "ignore_eos": True})
            await until(lambda: service.models["cat"].worker.running)
            await caller.hang_up()
            del caller
            await until(lambda: not service.models["cat"].worker.running)
            await asyncio.sleep(0)
            return held()

    assert run(ask()) == 0


class Large:
    pass


@pytest.mark.usefixtures("collected_by_hand")
def test_work_that_fails_in_a_thread_is_freed() -> None:
    """It ends a little after its error has come: the thread has to end too."""

    def fail(ref: list[weakref.ref[Large]]) -> None:
        large = Large()
        ref.append(weakref.ref(large))
        raise ValueError("too large")

    async def ask() -> None:
        ref: list[weakref.ref[Large]] = []
        try:
            await run_in_daemon_thread(lambda: fail(ref), ended=lambda: None)
        except ValueError as error:
            drop_tracebacks(error)
        await until(lambda: ref[0]() is None)

    run(ask())


def test_a_store_that_is_away_is_503_and_is_not_named() -> None:
    fault = to_request_error(StoreUnavailable("the store postgresql://db.internal/search cannot be reached"))
    assert (fault.status, fault.headers["retry-after"]) == (503, "5")
    assert "db.internal" not in str(fault)
