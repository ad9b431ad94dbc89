"""While a search or a long reading goes on, everything else has its turn; and it ends with the one who waits for it."""

import asyncio
import json
from itertools import count, pairwise
from typing import Any

import pytest
from served_callers import LONG, Caller, Gate, standing, until
from served_models import all_models, encoder, pair, run, serving

from triform.core.forms import EncoderOnly
from triform.generate.api import complete, make_engine
from triform.generate.beam_search import PromptBeams
from triform.generate.engine import Engine
from triform.tasks import get_task
from triform.tasks.encoder_batches import MAX_PASS_TOKENS

TEXT = "the fat ginger cat sat on a mat"
SEARCH: dict[str, Any] = {"model": "pair", "text": TEXT, "beams": 3, "max_tokens": 8}
SHORT: dict[str, Any] = {"model": "embed", "input": "the cat"}
WRITE: dict[str, Any] = LONG | {"model": "pair", "prompt": TEXT, "max_tokens": 40}


@pytest.mark.parametrize("asked", [SEARCH, SEARCH | {"beams": 1, "alignment": True}], ids=["beams", "alignment"])
def test_rows_go_on_while_another_searches(monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]) -> None:
    """Between any two steps of the search, the engine's rows make one; and both write what they would alone."""
    order: list[str] = []
    step, advance = Engine.step, PromptBeams.advance
    engines: list[Engine] = []

    def noted_step(engine: Engine) -> Any:
        order.append("row" if engine is engines[0] else "search")
        return step(engine)

    def noted_advance(search: PromptBeams, logprobs: Any) -> None:
        order.append("search")
        advance(search, logprobs)

    monkeypatch.setattr(PromptBeams, "advance", noted_advance)

    async def ask() -> tuple[Any, Any]:
        async with serving({"pair": pair()}, stalled_seconds=60) as (service, client):
            worker = service.models["pair"].worker
            await until(lambda: worker.ready and not worker.engine.busy)
            engines.append(worker.engine)
            monkeypatch.setattr(Engine, "step", noted_step)
            gate = Gate(monkeypatch)
            gate.open.clear()
            both = [
                asyncio.ensure_future(client.post("/v1/completions", json=WRITE)),
                asyncio.ensure_future(client.post("/v1/translate", json=asked)),
            ]
            await until(lambda: worker.pending == 2)
            gate.open.set()
            wrote, found = await asyncio.gather(*both)
            return wrote.json(), found.json()

    wrote, found = run(ask())
    searched = [at for at, one in enumerate(order) if one == "search"]
    assert len(searched) > 3
    assert all("row" in order[a:b] for a, b in pairwise(searched))
    offline = complete(pair(), [TEXT], start=0, max_tokens=40, ignore_eos=True)[0]
    assert wrote["choices"][0]["text"] == offline.text
    settings = {name: asked[name] for name in ("beams", "max_tokens", "alignment") if name in asked}
    assert (
        found["answers"][0]["text"]
        == next(get_task("translate").run([TEXT], model=pair(), options=get_task("translate").options(**settings))).text
    )
    assert found["usage"]["completion_tokens"] > 0


def test_a_search_ends_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        async with standing({"pair": pair()}) as (service, made):
            worker, gate = service.models["pair"].worker, Gate(monkeypatch, PromptBeams, "advance")
            caller = Caller(made, SEARCH | {"max_tokens": 100}, path="/v1/translate")
            await until(lambda: gate.passed > 1)
            gate.open.clear()
            before = gate.passed
            await caller.hang_up()
            gate.open.set()
            assert worker.pending == 0
            await until(lambda: not worker._busy)
            assert gate.passed - before <= 2
            assert not caller.sent

    run(ask())


def test_a_long_reading_ends_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of many passes; the model is free for the next as soon as nobody waits for it."""
    text = "the cat " * 8 * MAX_PASS_TOKENS

    async def ask() -> None:
        async with standing({"embed": encoder("embed")}) as (service, made):
            worker = service.models["embed"].worker
            await Caller(made, SHORT, path="/v1/embeddings").task
            gate = Gate(monkeypatch, EncoderOnly, "hidden")
            gate.open.clear()
            caller = Caller(made, {"model": "embed", "input": text}, path="/v1/embeddings")
            await until(lambda: gate.at == 1)
            await caller.hang_up()
            gate.open.set()
            await until(lambda: not worker._busy)
            assert gate.passed == 1
            again = Caller(made, SHORT, path="/v1/embeddings")
            await again.task
            assert again.sent[0]["status"] == 200

    run(ask())


def test_a_long_reading_is_no_stalled_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives a sign before each pass: the negative control is a worker that reads without pauses."""
    beats: list[float] = []
    hidden = EncoderOnly.hidden

    async def ask() -> Any:
        async with serving({"classify": encoder("classify")}) as (service, client):
            worker = service.models["classify"].worker
            await client.post("/v1/classify", json={"model": "classify", "text": "the cat"})

            def noted(network: EncoderOnly, text: Any) -> Any:
                beats.append(worker.last_beat)
                return hidden(network, text)

            monkeypatch.setattr(EncoderOnly, "hidden", noted)
            long = {"model": "classify", "text": "a mole " * 4 * MAX_PASS_TOKENS}
            return await client.post("/v1/classify", json=long)

    assert run(ask()).status_code == 200
    assert len(beats) > 3
    assert all(a < b for a, b in pairwise(beats))


def test_a_worker_that_reads_slowly_is_given_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times a full pass, measured before anybody asks."""
    from triform.serve.worker import model_worker as workers

    monkeypatch.setattr(workers, "time_warmup_steps", lambda model, engine: iter([7.0]))

    async def ask() -> float:
        async with serving({"embed": encoder("embed")}, stalled_seconds=1.5) as (service, _):
            worker = service.models["embed"].worker
            await until(lambda: worker.stall_seconds > 1.5)
            return worker.stall_seconds

    assert run(ask()) == 21.0


@pytest.mark.parametrize("name", ["cat", "pair", "embed"])
def test_the_longest_step_is_made_warm_before_anybody_asks(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A source is read at once, however long; by a clock of our own each step takes a second, cold ones none."""
    from triform.serve.worker import model_worker as workers

    ticks = count()
    monkeypatch.setattr(workers, "monotonic", lambda: next(ticks))
    model = all_models()[name]
    engine = make_engine(model, rows=2, start=0 if name == "pair" else None) if name != "embed" else None
    longest = 0
    seconds = []
    for took in workers.time_warmup_steps(model, engine):
        seconds.append(took)
        longest = max([longest, *(end for _, end in engine.prefilled)]) if engine is not None else 0
    half = len(seconds) // 2
    assert seconds == [0] * half + [1] * half
    assert longest == {"cat": 126, "pair": 128, "embed": 0}[name]


def test_who_asks_while_the_first_steps_are_made_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long they take, it is not refused for a worker that stalls; only it is not ready yet."""
    gate = Gate(monkeypatch)
    gate.open.clear()

    async def ask() -> tuple[Any, Any]:
        async with serving(stalled_seconds=1e-3) as (service, client):
            worker = service.models["cat"].worker
            await until(lambda: gate.at and worker.silent_seconds > 1e-3)
            ready = await client.get("/ready")
            asked = asyncio.ensure_future(client.post("/v1/completions", json=LONG))
            await until(lambda: worker.pending)
            gate.open.set()
            return ready, await asked

    ready, answer = run(ask())
    assert (ready.status_code, answer.status_code) == (503, 200)
    assert "warming up: cat" in ready.json()["error"]["message"]


def test_texts_of_a_request_are_counted_together() -> None:
    """What is read is bounded too, whole requests at a time, with both counts in the message."""

    async def ask() -> list[Any]:
        models = {"embed": encoder("embed"), "pair": pair()}
        async with serving(models, prompt_tokens=50, input_tokens=50) as (_, client):
            return [
                await client.post("/v1/embeddings", json={"model": "embed", "input": [TEXT] * 10}),
                await client.post("/v1/translate", json={"model": "pair", "text": [TEXT] * 10}),
                await client.post("/v1/completions", json={"model": "pair", "prompt": [[1] * 20] * 3}),
            ]

    for answer in run(ask()):
        error = json.loads(answer.text)["error"]
        assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
        assert "at most 50" in error["message"]
