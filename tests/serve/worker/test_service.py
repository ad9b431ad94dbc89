"""Overload, deadlines, hanging up and failing alone, in one process and without a clock."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import torch
from served_callers import LONG, Caller, Gate, standing, until
from served_models import decoder, encoder, pair, run, serving
from tiny_models import enlarge_weights

from triform.core.initial_weights import build_network
from triform.errors import TriformError
from triform.generate.api import complete
from triform.generate.engine import Engine
from triform.generation_defaults import GenerationDefaults
from triform.model import Model
from triform.serve import page_routes
from triform.serve.worker.jobs import WaitEstimate
from triform.serve.worker.model_worker import ModelWorker
from triform.serve.worker.service import Service
from triform.spec import Own, replace
from triform.tasks.embed import EmbedTask


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.open.set()


@asynccontextmanager
async def held(gate: Gate, **limits: Any) -> AsyncIterator[tuple[ModelWorker, httpx2.AsyncClient]]:
    """Its first steps are made; from here on none is, until the gate opens."""
    async with serving(**limits) as (service, client):
        worker = service.models["cat"].worker
        await until(lambda: worker.warm)
        gate.open.clear()
        try:
            yield worker, client
        finally:
            gate.open.set()


def test_a_full_queue_refuses_at_once(gate: Gate) -> None:
    async def ask() -> None:
        async with held(gate, rows=2, queue=3) as (worker, client):
            doing = [asyncio.ensure_future(client.post("/v1/completions", json=LONG)) for _ in range(5)]
            await until(lambda: worker.pending == 5)
            refused = await client.post("/v1/completions", json=LONG)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert refused.json()["error"]["type"] == "rate_limit_error"
            gate.open.set()
            answers = await asyncio.gather(*doing)
            assert {answer.status_code for answer in answers} == {200}
            assert len({answer.json()["choices"][0]["text"] for answer in answers}) == 1
            assert worker.pending == 0

    run(ask())


def test_a_newcomer_counts_for_all_it_brings(gate: Gate) -> None:
    """Two places and three that may wait: six answers are too many beside one, not beside none."""
    many = LONG | {"prompt": ["the cat"] * 3, "n": 2}

    async def ask() -> None:
        async with held(gate, rows=2, queue=3) as (worker, client):
            first = asyncio.ensure_future(client.post("/v1/completions", json=LONG))
            await until(lambda: worker.pending == 1)
            assert (await client.post("/v1/completions", json=many)).status_code == 429
            fits = asyncio.ensure_future(client.post("/v1/completions", json=LONG | {"n": 4}))
            await until(lambda: worker.pending == 5)
            gate.open.set()
            assert {answer.status_code for answer in await asyncio.gather(first, fits)} == {200}
            assert (await client.post("/v1/completions", json=many)).status_code == 200

    run(ask())


def test_retry_after_is_as_long_as_it_takes(gate: Gate) -> None:
    """100 tokens of 0.08 s, one answer half written: they end after 4, 8 and 12 seconds, and three of the five must."""

    async def ask() -> None:
        async with held(gate, rows=2, queue=1) as (worker, client):
            doing = [asyncio.ensure_future(client.post("/v1/completions", json=LONG)) for _ in range(2)]
            await until(lambda: worker.pending == 2)
            worker.wait_estimate.record_answer(100)
            worker.wait_estimate.record_step(0.08, [(50, 100), (0, 100)])
            refused = await client.post("/v1/completions", json=LONG | {"n": 4})
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "12")
            gate.open.set()
            await asyncio.gather(*doing)

    run(ask())


def test_who_would_wait_too_long_is_told_at_once(gate: Gate) -> None:
    """100 tokens of 0.08 s, all places taken: the next place is free in 4 seconds, the one after it in 8."""

    async def ask() -> None:
        async with held(gate, rows=2, wait_seconds=6) as (worker, client):
            worker.wait_estimate.record_answer(100)
            worker.wait_estimate.record_step(0.08, [(50, 100), (0, 100)])
            doing = [asyncio.ensure_future(client.post("/v1/completions", json=LONG)) for _ in range(3)]
            await until(lambda: worker.pending == 3)
            refused = await client.post("/v1/completions", json=LONG)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")  # 8 seconds, of which 6 may be
            gate.open.set()
            assert {answer.status_code for answer in await asyncio.gather(*doing)} == {200}

    run(ask())


def test_what_is_waited_follows_the_last_answers() -> None:
    pace = WaitEstimate()
    assert pace.estimate_seconds(5) == 0
    pace.record_step(1.0, [(0, 64)])
    assert pace.estimate_seconds(5) == 0
    pace.record_answer(20)
    for _ in range(500):
        pace.record_answer(10)
        pace.record_step(0.5, [(0, 64), (6, 64)])
    assert [pace.estimate_seconds(n) for n in range(5)] == pytest.approx([0, 2, 5, 7, 10])


@pytest.mark.parametrize(("written", "most", "steps"), [(0, 64, 10), (4, 64, 6), (0, 3, 3), (30, 64, 1)])
def test_an_answer_ends_at_the_usual_length_or_its_own(written: int, most: int, steps: int) -> None:
    pace = WaitEstimate()
    pace.record_answer(10)
    pace.record_step(1.0, [(written, most)])
    assert pace.estimate_seconds(1) == steps


def test_those_who_began_together_end_together(gate: Gate) -> None:
    """Four places, all just begun: the next falls free after a whole answer, not after a quarter of one."""

    async def ask() -> None:
        async with held(gate, rows=4, wait_seconds=6) as (worker, client):
            worker.wait_estimate.record_answer(100)
            doing = [asyncio.ensure_future(client.post("/v1/completions", json=LONG)) for _ in range(4)]
            await until(lambda: worker.pending == 4)
            worker.wait_estimate.record_step(0.08, [(0, 100)] * 4)
            assert (await client.post("/v1/completions", json=LONG)).headers["retry-after"] == "2"
            gate.open.set()
            await asyncio.gather(*doing)

    run(ask())


def test_a_worker_says_how_far_its_rows_have_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three answers of five tokens, two places: whoever waits has none, and what has ended has none any more."""
    said: list[list[tuple[float, int]]] = []
    monkeypatch.setattr(WaitEstimate, "record_step", lambda self, seconds, answers: said.append(list(answers)))

    async def ask() -> None:
        async with serving({"cat": decoder()}, rows=2) as (_, client):
            asked = LONG | {"max_tokens": 5}
            await asyncio.gather(*(client.post("/v1/completions", json=asked) for _ in range(3)))

    run(ask())
    assert all(len(rows) <= 2 and {most for _, most in rows} <= {5} for rows in said)
    assert {written for rows in said for written, _ in rows} >= {1, 2, 3, 4}
    assert said[-1] == []


def test_a_deadline_ends_the_work(gate: Gate) -> None:
    """As an answer where nothing was sent, as the last event of a stream that has begun."""

    async def ask() -> None:
        async with held(gate, seconds=0.3) as (worker, client):
            late = await client.post("/v1/completions", json=LONG)
            assert (late.status_code, late.json()["error"]["code"]) == (504, "deadline_exceeded")
            gate.open.set()
            await until(lambda: worker.pending == 0 and not worker.engine.busy)
            assert (await client.post("/v1/completions", json=LONG | {"max_tokens": 2})).status_code == 200

    run(ask())


# --- hanging up -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_hanging_up_frees_the_place_within_two_steps(gate: Gate, stream: bool) -> None:
    async def ask() -> None:
        async with standing() as (service, made):
            worker = service.models["cat"].worker
            caller = Caller(made, LONG | {"stream": stream})
            await until(lambda: worker.engine.running and gate.passed > 4)
            gate.open.clear()
            before = gate.passed
            await caller.hang_up()
            assert worker.pending == 0
            gate.open.set()
            await until(lambda: not worker.engine.busy)
            assert gate.passed - before <= 2
            assert bool(caller.sent) <= stream

    run(ask())


def test_hanging_up_while_waiting(gate: Gate) -> None:
    async def ask() -> None:
        async with standing(rows=1) as (service, made):
            worker = service.models["cat"].worker
            first, second = Caller(made, LONG), Caller(made, LONG)
            await until(lambda: worker.pending == 2)
            await second.hang_up()
            assert worker.pending == 1
            await first.task
            assert first.sent[0]["status"] == 200

    run(ask())


# --- failing alone --------------------------------------------------------------------------------------------------


def answers_of(client: Any, bodies: list[dict[str, Any]], path: str = "/v1/completions") -> Any:
    return asyncio.gather(*(client.post(path, json=body) for body in bodies))


def test_nan_logits_fail_alone() -> None:
    """A token whose vector is NaN poisons only the request that reads it."""
    poisoned = untied(decoder())
    with torch.no_grad():
        poisoned.network.token.weight[299] = float("nan")
    good = {"model": "cat", "prompt": [5, 6, 7], "max_tokens": 12, "return_token_ids": True, "ignore_eos": True}
    bad = good | {"prompt": [5, 299, 7]}
    offline = complete(poisoned, [[5, 6, 7]], max_tokens=12, ignore_eos=True)[0]

    async def ask() -> list[Any]:
        async with serving({"cat": poisoned}) as (_, client):
            return await answers_of(client, [good, bad, good, bad | {"stream": True}, good])

    answers = run(ask())
    assert [answer.status_code for answer in answers] == [200, 500, 200, 500, 200]
    assert answers[1].json()["error"]["code"] == "generation_failed"
    for answer in answers[::2]:
        assert tuple(answer.json()["choices"][0]["token_ids"]) == offline.tokens


def untied(model: Model) -> Model:
    """Its head has numbers of its own: a poisoned embedding is not also a poisoned logit."""
    spec = replace(model.spec, head=Own())
    return model.replace(spec=spec, network=enlarge_weights(build_network(spec)))


def test_an_engine_that_breaks_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ran in it is refused as our fault; the next request is answered."""
    step, broken = Engine.step, threading.Event()

    def breaking(engine: Engine) -> Any:
        if any(job.request.settings.max_tokens == 13 for job in engine.waiting) and not broken.is_set():
            broken.set()
            raise RuntimeError("PROMPT-SECRET")
        return step(engine)

    monkeypatch.setattr(Engine, "step", breaking)

    async def ask() -> list[Any]:
        async with serving() as (service, client):
            failed = await client.post("/v1/completions", json=LONG | {"max_tokens": 13})
            again = await client.post("/v1/completions", json=LONG | {"max_tokens": 13})
            log = service.log.out.getvalue()
            assert "engine failed" in log
            assert "SECRET" not in log
            return [failed, again]

    failed, again = run(ask())
    assert (failed.status_code, again.status_code) == (500, 200)
    assert "SECRET" not in failed.text


def test_requests_that_only_wait_are_put_into_the_new_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    step, broken = Engine.step, threading.Event()

    def breaking(engine: Engine) -> Any:
        running = any(job.request.settings.max_tokens == 13 for job, _ in engine.running)
        if running and len(engine.waiting) == 2 and not broken.is_set():
            broken.set()
            raise RuntimeError("the engine")
        return step(engine)

    monkeypatch.setattr(Engine, "step", breaking)

    async def ask() -> list[Any]:
        gate = Gate(monkeypatch)
        async with held(gate, rows=1) as (worker, client):
            asked = [LONG | {"max_tokens": most} for most in (13, 12, 11)]
            answers = [asyncio.ensure_future(client.post("/v1/completions", json=one)) for one in asked[:1]]
            await until(lambda: worker.pending == 1)
            answers += [asyncio.ensure_future(client.post("/v1/completions", json=one)) for one in asked[1:]]
            await until(lambda: worker.pending == 3)
            gate.open.set()
            return list(await asyncio.gather(*answers))

    answers = run(ask())
    assert broken.is_set()
    assert [answer.status_code for answer in answers] == [500, 200, 200]
    assert [answer.json()["usage"]["completion_tokens"] for answer in answers[1:]] == [12, 11]


@pytest.mark.parametrize("wrong", [{"eos": 100_000}, {"temperature": -1.0}, {"top_p": 7.0}, {"forbidden": ((600,),)}])
def test_a_folder_whose_defaults_do_not_fit_is_not_served(wrong: dict[str, Any]) -> None:
    model = decoder().replace(generation=GenerationDefaults(**wrong), config={})
    with pytest.raises(TriformError, match=r"the model 'cat' cannot be served: generation_config.json: "):
        Service({"cat": model})


def test_one_bad_question_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole batch raises because of one text: the others are asked again and answered."""
    reading = EmbedTask.run

    def choosy(self: EmbedTask, questions: Any, **given: Any) -> Any:
        if "bad" in questions:
            raise RuntimeError("one of them")
        return reading(self, questions, **given)

    monkeypatch.setattr(EmbedTask, "run", choosy)
    texts = ["the cat", "bad", "a mole", "lions"]

    async def ask() -> list[Any]:
        async with serving({"embed": encoder("embed")}) as (_, client):
            return await answers_of(client, [{"model": "embed", "input": text} for text in texts], "/v1/embeddings")

    assert [answer.status_code for answer in run(ask())] == [200, 500, 200, 200]


def test_questions_of_many_clients_share_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    reading, waiting = EmbedTask.run, threading.Event()

    def noted(self: EmbedTask, questions: Any, **given: Any) -> Any:
        if not sizes:
            waiting.wait(60)
        sizes.append(len(questions))
        return reading(self, questions, **given)

    monkeypatch.setattr(EmbedTask, "run", noted)

    async def ask() -> None:
        async with serving({"embed": encoder("embed")}, stalled_seconds=60) as (service, client):
            doing = [
                asyncio.ensure_future(client.post("/v1/embeddings", json={"model": "embed", "input": "cat"}))
                for _ in range(20)
            ]
            await until(lambda: service.models["embed"].worker.pending == 20)
            waiting.set()
            assert {answer.status_code for answer in await asyncio.gather(*doing)} == {200}

    run(ask())
    assert sum(sizes) == 20
    assert len(sizes) <= 3


def test_two_models_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker stands still, the other answers."""
    step, still = Engine.step, threading.Event()

    def standing_still(engine: Engine) -> Any:
        if engine.spec.form == "encoder-decoder" and any(
            job.request.settings.max_tokens == 13 for job in engine.waiting
        ):
            still.wait(60)
        return step(engine)

    monkeypatch.setattr(Engine, "step", standing_still)

    async def ask() -> None:
        async with serving({"cat": decoder(), "pair": pair()}) as (_, client):
            body = LONG | {"model": "pair", "max_tokens": 13}
            waiting = asyncio.ensure_future(client.post("/v1/completions", json=body))
            assert (await client.post("/v1/completions", json=LONG)).status_code == 200
            assert not waiting.done()
            still.set()
            assert (await waiting).status_code == 200

    run(ask())


def test_looks_wait_for_each_other_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is computed, seven wait, the ninth is told to come again; those who hang up are never computed."""
    gate = Gate(monkeypatch, page_routes, "answer_request")
    gate.open.clear()
    body = {"model": "cat", "ask": {"view": "start", "run": {"text": "the cat"}}}

    async def ask() -> None:
        async with standing() as (service, made):
            callers = [Caller(made, body, path="/v1/look") for _ in range(8)]
            await until(lambda: service.models["cat"].queues.views.pending == 8 and gate.at == 1)
            ninth = Caller(made, body, path="/v1/look")
            await ninth.task
            assert ninth.sent[0]["status"] == 429
            for caller in callers[2:]:
                await caller.hang_up()
            gate.open.set()
            await asyncio.gather(*(caller.task for caller in callers))
            assert [caller.sent[0]["status"] for caller in callers[:2]] == [200, 200]
            assert (gate.passed, service.models["cat"].queues.views.pending) == (2, 0)

    run(ask())


def test_a_look_that_was_left_keeps_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks and hangs up leaves one thread at most; the service ends without waiting for it."""
    gate = Gate(monkeypatch, page_routes, "answer_request")
    gate.open.clear()
    body = {"model": "cat", "ask": {"view": "start", "run": {"text": "the cat"}}}

    async def ask() -> None:
        async with standing() as (service, made):
            views = service.models["cat"].queues.views
            for asked in range(1, 4):
                caller = Caller(made, body, path="/v1/look")
                await until(lambda asked=asked: views.pending == min(asked, 2) and gate.at == 1)
                await caller.hang_up()
            assert (gate.at, service.models["cat"].queues.views.pending) == (1, 1)

    run(ask())
    gate.open.set()


def test_metrics_count_what_was_done() -> None:
    async def ask() -> str:
        async with serving() as (_, client):
            for _ in range(3):
                await client.post("/v1/completions", json=LONG | {"max_tokens": 10})
            return (await client.get("/metrics")).text

    values = {
        line.split(" ")[0]: float(line.split(" ")[1]) for line in run(ask()).splitlines() if not line.startswith("#")
    }
    read = len(decoder().tokenizer.encode("the cat").ids)
    assert values['triform_generation_tokens_total{model="cat"}'] == 30
    assert values['triform_prompt_tokens_total{model="cat"}'] == 3 * read
    assert values['triform_time_to_first_token_seconds_count{model="cat"}'] == 3
    assert values['triform_requests_total{route="/v1/completions",status="200"}'] == 3
    assert values['triform_num_requests_running{model="cat"}'] == 0
    for name in ("flops_total", "bytes_moved_total", "inter_token_latency_seconds_count"):
        assert values[f'triform_{name}{{model="cat"}}'] > 0
    for name in ("num_requests_waiting", "kv_cache_usage_perc"):
        assert values[f'triform_{name}{{model="cat"}}'] == 0


def test_the_quick_cost_is_the_cost() -> None:
    """What a step is counted for, row by row, is what the cost model says of it."""
    from triform.costs.predict import cost
    from triform.serve.http.metrics import StepCosts

    spec = decoder().spec
    costs = StepCosts(spec)
    for rows, length in ((1, 1), (3, 40), (8, 128)):
        exact = cost(spec, phase="step", batch=rows, length=length).total
        assert costs.step_cost([length] * rows) == pytest.approx((exact.flops, exact.moved), rel=1e-9)


def test_2048_texts_are_embedded_in_chunks_and_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a chunk of them waits at once; a text that comes meanwhile is embedded before the rest of them."""
    gate = Gate(monkeypatch, EmbedTask, "run")
    texts = [f"{'the fat ginger cat ' * (number % 3)}{number}" for number in range(2048)]

    async def ask() -> tuple[Any, Any]:
        async with serving({"embed": encoder("embed")}, wait_seconds=600.0) as (service, client):
            worker = service.models["embed"].worker
            await until(lambda: worker.warm)
            gate.open.clear()
            many = asyncio.ensure_future(client.post("/v1/embeddings", json={"model": "embed", "input": texts}))
            await until(lambda: gate.at)
            assert worker.pending == 64
            one = asyncio.ensure_future(client.post("/v1/embeddings", json={"model": "embed", "input": texts[7]}))
            await until(lambda: worker.pending == 65)
            gate.open.set()
            alone = await one
            assert not many.done()
            return alone, await many

    alone, many = run(ask())
    data = many.json()["data"]
    assert [one["index"] for one in data] == list(range(2048))
    assert gate.passed >= 32  # chunks of 64; the one text may share a batch with one of them
    assert data[7]["embedding"] == pytest.approx(alone.json()["data"][0]["embedding"], abs=1e-5)
    assert many.json()["usage"]["prompt_tokens"] > 2048


def test_a_request_that_has_begun_is_not_refused_for_its_next_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, EmbedTask, "run")

    async def ask() -> list[int]:
        async with serving({"embed": encoder("embed")}, rows=1, queue=1, wait_seconds=600.0) as (service, client):
            worker = service.models["embed"].worker
            await until(lambda: worker.warm)
            gate.open.clear()
            body = {"model": "embed", "input": ["the cat"] * 200}
            many = asyncio.ensure_future(client.post("/v1/embeddings", json=body))
            await until(lambda: gate.at)
            late = await client.post("/v1/embeddings", json=body)
            gate.open.set()
            return [(await many).status_code, late.status_code]

    assert run(ask()) == [200, 429]
