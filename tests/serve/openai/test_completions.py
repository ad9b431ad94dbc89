"""The official `openai` package, as it is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import openai
import pytest
from served_models import all_models, decoder, encoder, run, serving

from triform.generate.api import complete
from triform.serve.http.auth import Access
from triform.tasks import get_task

KEY = "a-long-enough-key"


@asynccontextmanager
async def client(**limits: Any) -> AsyncIterator[tuple[Any, openai.AsyncOpenAI]]:
    async with serving(all_models(), access=Access(keys=(KEY,)), **limits) as (service, plain):
        made = openai.AsyncOpenAI(
            api_key=KEY,
            base_url="http://localhost/v1",
            max_retries=0,
            http_client=httpx2.AsyncClient(transport=plain._transport),
        )
        async with made:
            yield service, made


def test_models() -> None:
    async def ask() -> list[str]:
        async with client() as (_, api):
            assert (await api.models.retrieve("cat")).id == "cat"
            return [model.id async for model in api.models.list()]

    assert run(ask()) == list(all_models())


def test_completions_whole_and_streamed() -> None:
    offline = complete(decoder(), ["the cat"], max_tokens=8, seed=3, temperature=1.0, n=2)

    async def ask() -> tuple[Any, list[Any]]:
        async with client() as (_, api):
            asked = {"model": "cat", "prompt": "the cat", "max_tokens": 8, "seed": 3, "temperature": 1.0, "n": 2}
            whole = await api.completions.create(**asked, logprobs=1)
            stream = await api.completions.create(**asked, stream=True, stream_options={"include_usage": True})
            return whole, [chunk async for chunk in stream]

    whole, chunks = run(ask())
    assert [choice.text for choice in whole.choices] == [one.text for one in offline]
    assert whole.choices[0].logprobs.tokens
    for index in range(2):
        pieces = [choice.text for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert "".join(pieces) == offline[index].text
    assert chunks[-1].usage == whole.usage


def test_chat_whole_and_streamed() -> None:
    async def ask() -> tuple[Any, list[Any]]:
        async with client() as (_, api):
            asked: dict[str, Any] = {
                "model": "cat", "messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 6
            }  # fmt: skip
            whole = await api.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
            stream = await api.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
            return whole, [chunk async for chunk in stream]

    whole, chunks = run(ask())
    assert whole.choices[0].message.role == "assistant"
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage


def test_embeddings_come_as_base64_by_default() -> None:
    texts = ["the cat", "a mole digs"]
    offline = [answer.vector for answer in get_task("embed").run(texts, model=encoder("embed"))]

    async def ask() -> tuple[Any, Any]:
        async with client() as (_, api):
            packed = await api.embeddings.create(model="embed", input=texts)
            floats = await api.embeddings.create(model="embed", input=texts, encoding_format="float")
            return packed, floats

    for answer in run(ask()):
        for at, vector in enumerate(offline):
            assert answer.data[at].embedding == pytest.approx(vector, abs=1e-6)


def test_each_kind_of_error() -> None:
    asked: dict[str, Any] = {"model": "cat", "prompt": "the cat"}

    async def ask() -> None:
        async with client(queue=0, rows=1) as (service, api):
            with pytest.raises(openai.BadRequestError) as wrong:
                await api.completions.create(**asked, temperature=9)
            assert wrong.value.param == "temperature"
            with pytest.raises(openai.NotFoundError) as missing:
                await api.completions.create(**(asked | {"model": "gpt-5"}))
            assert missing.value.code == "model_not_found"
            with pytest.raises(openai.AuthenticationError):
                await api.with_options(api_key="another-key").completions.create(**asked)
            service.models["cat"].worker.pending += 1
            with pytest.raises(openai.RateLimitError):
                await api.completions.create(**asked)
            service.models["cat"].worker.pending -= 1
            service.stopping = True
            with pytest.raises(openai.InternalServerError) as stopping:
                await api.completions.create(**asked)
            assert stopping.value.status_code == 503

    run(ask())


def test_an_error_in_mid_stream_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    from triform.generate.engine import Engine

    step = Engine.step

    def breaking(engine: Engine) -> Any:
        if any(job.request.settings.max_tokens == 50 and row.written > 20 for job, row in engine.running):
            raise RuntimeError("broken")
        return step(engine)

    monkeypatch.setattr(Engine, "step", breaking)

    async def ask() -> None:
        async with client() as (_, api):
            asked = {"model": "cat", "prompt": "the cat", "max_tokens": 50, "stream": True}
            with pytest.raises(openai.APIError):
                async for _ in await api.completions.create(**asked, extra_body={"ignore_eos": True}):
                    pass

    run(ask())
