"""Answers over HTTP are the answers offline: every route, alone and amid others, whole and streamed."""

import asyncio
import base64
import json
import math
import struct
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from served_callers import until
from served_models import all_models, decoder, encoder, pair, run, serving

from triform.generate.api import complete
from triform.serve.routes import ROUTES
from triform.tasks import get_task
from triform.tasks.answer_spans import ContextQuestion
from triform.tasks.vector_index import read_index as read_index
from triform.weights.model_hash import hash_model

TEXTS = ["the cat", "a mole digs", "apples are fruit", "lions", "the fat ginger cat sat on a mat and sat"]


def chunks(body: str) -> list[dict[str, Any]]:
    """The events of a stream, which ends with [DONE]."""
    lines = [line.removeprefix("data: ") for line in body.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def joined(events: list[dict[str, Any]], index: int = 0) -> str:
    return "".join(choice["text"] for event in events for choice in event["choices"] if choice["index"] == index)


def test_small_routes() -> None:
    async def ask() -> None:
        async with serving(all_models()) as (service, client):
            assert (await client.get("/health")).json() == {"status": "ok"}
            await until(lambda: not service.why_not_ready)
            assert (await client.get("/ready")).json() == {"status": "ok"}
            listed = (await client.get("/v1/models")).json()["data"]
            assert {one["id"]: "complete" in one["tasks"] for one in listed} == {
                name: name in ("cat", "pair", "taught") for name in service.models
            }
            assert (await client.get("/v1/models/tag")).json()["tasks"] == ["tag"]
            cut = (await client.post("/v1/tokenize", json={"model": "cat", "text": "the cat"})).json()
            assert cut["ids"] == list(decoder().tokenizer.encode("the cat").ids)
            assert cut["count"] == len(cut["tokens"]) == len(cut["offsets"])
            for path in ("/", "/docs"):
                page = await client.get(path)
                assert page.status_code == 200
                assert "default-src 'none'" in page.headers["content-security-policy"]
            assert (await client.get("/v1/look")).json()["models"] == list(service.models)
            looked = await client.post(
                "/v1/look", json={"model": "cat", "ask": {"view": "start", "run": {"text": "the"}}}
            )
            assert looked.json()["name"] == "cat"
            cost = (await client.post("/v1/cost", json={"model": "cat", "phase": "step"})).json()
            assert cost["total"]["flops"] > 0

    run(ask())


def test_completions_with_everything() -> None:
    """Text, ids, log-probabilities, n, seed, stop and penalties: as the offline call says."""
    asked = {"max_tokens": 12, "temperature": 1.0, "seed": 7, "n": 3, "presence_penalty": 0.5, "logprobs": 2}
    biased = {"logit_bias": {"40": 3.5, "41": -100}}
    offline = complete(decoder(), [TEXTS[0]], **(asked | {"logit_bias": {40: 3.5, 41: -100.0}}))

    async def ask() -> dict[str, Any]:
        async with serving() as (_, client):
            body = {"model": "cat", "prompt": TEXTS[0], "return_token_ids": True} | asked | biased
            return (await client.post("/v1/completions", json=body)).json()

    answer = run(ask())
    assert [choice["text"] for choice in answer["choices"]] == [one.text for one in offline]
    assert [tuple(choice["token_ids"]) for choice in answer["choices"]] == [one.tokens for one in offline]
    read = len(decoder().tokenizer.encode(TEXTS[0]).ids)
    written = sum(len(one.tokens) for one in offline)
    assert answer["usage"] == {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    for choice, one in zip(answer["choices"], offline, strict=True):
        told = choice["logprobs"]
        shown = len(one.tokens) - (one.finish == "eos")
        assert {len(told[name]) for name in told} == {shown}
        assert all(len(top) <= 2 for top in told["top_logprobs"])
        if one.finish != "eos":
            assert math.fsum(told["token_logprobs"]) == pytest.approx(one.logprob)


def test_stop_strings_cut_over_http_too() -> None:
    whole = complete(decoder(), [TEXTS[0]], max_tokens=20, ignore_eos=True)[0].text
    stop = whole[4:6]
    offline = complete(decoder(), [TEXTS[0]], max_tokens=20, ignore_eos=True, stop=(stop,))[0]

    async def ask() -> tuple[Any, Any]:
        async with serving() as (_, client):
            body = {"model": "cat", "prompt": TEXTS[0], "max_tokens": 20, "ignore_eos": True, "stop": [stop]}
            plain = await client.post("/v1/completions", json=body)
            stream = await client.post("/v1/completions", json=body | {"stream": True})
            return plain.json()["choices"][0], chunks(stream.text)

    choice, events = run(ask())
    assert (choice["text"], choice["finish_reason"]) == (offline.text, "stop")
    assert joined(events) == offline.text


def test_many_streams_at_once_are_each_as_if_alone() -> None:
    """Forty seeded requests of both models amid each other, half streamed, some hung up on: tokens as offline."""
    random = Random(5)
    models = {"cat": decoder(), "pair": pair()}
    asked = [
        {
            "model": random.choice(list(models)),
            "prompt": random.choice(TEXTS),
            "max_tokens": random.randint(1, 20),
            "temperature": random.choice([0.0, 1.2]),
            "top_p": random.choice([1.0, 0.8]),
            "seed": random.randrange(100),
            "stream": random.random() < 0.5,
        }
        for _ in range(40)
    ]

    async def one(client: Any, body: dict[str, Any]) -> str:
        answer = await client.post("/v1/completions", json=body)
        assert answer.status_code == 200
        return joined(chunks(answer.text)) if body["stream"] else answer.json()["choices"][0]["text"]

    async def ask() -> list[Any]:
        async with serving(models, rows=8, queue=200) as (_, client):
            doing = [asyncio.ensure_future(one(client, body)) for body in asked]
            doing[7].cancel()
            return await asyncio.gather(*doing, return_exceptions=True)

    answers = run(ask())
    assert isinstance(answers.pop(7), asyncio.CancelledError)
    del asked[7]
    for body, answer in zip(asked, answers, strict=True):
        wanted = {name: body[name] for name in ("max_tokens", "temperature", "top_p", "seed")}
        start = None if body["model"] == "cat" else 0
        assert answer == complete(models[body["model"]], [body["prompt"]], start=start, **wanted)[0].text


def test_chat_is_the_template_and_the_engine() -> None:
    messages = [
        {"role": "system", "content": "be a cat"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    ]
    text = "<system> be a cat\n<user> hi\n<assistant>"
    offline = complete(decoder(), [text], max_tokens=9)[0]

    async def ask() -> tuple[Any, Any]:
        async with serving() as (_, client):
            body = {
                "model": "cat",
                "messages": messages,
                "max_completion_tokens": 9,
                "logprobs": True,
                "top_logprobs": 2,
            }
            plain = await client.post("/v1/chat/completions", json=body)
            usage = {"stream": True, "stream_options": {"include_usage": True}}
            return plain.json(), chunks((await client.post("/v1/chat/completions", json=body | usage)).text)

    plain, events = run(ask())
    assert plain["choices"][0]["message"] == {"role": "assistant", "content": offline.text, "refusal": None}
    assert len(plain["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 2
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1]) == offline.text
    assert events[-2]["choices"][0]["finish_reason"] in ("length", "stop")
    assert (events[-1]["choices"], events[-1]["usage"]) == ([], plain["usage"])


# --- tasks ----------------------------------------------------------------------------------------------------------

TASKS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("translate", "pair", {"max_tokens": 9}, {"max_tokens": 9}),
    ("translate", "pair", {"beams": 3, "max_tokens": 6}, {"beams": 3, "max_tokens": 6}),
    ("translate", "taught", {"max_tokens": 9}, {"max_tokens": 9}),
    ("translate", "pair", {"alignment": True, "max_tokens": 5}, {"alignment": True, "max_tokens": 5}),
    ("summarize", "pair", {"max_tokens": 8}, {"max_tokens": 8}),
    ("classify", "classify", {"top": 2}, {"top": 2}),
    ("tag", "tag", {}, {}),
    ("fill", "fill", {"k": 3}, {"k": 3}),
]


@pytest.mark.parametrize(("task", "model", "asked", "settings"), TASKS, ids=lambda value: str(value))
def test_every_task_answers_as_offline_under_load(
    task: str, model: str, asked: dict[str, Any], settings: dict[str, Any]
) -> None:
    """Each text from a client of its own, and all of them again in one request."""
    models = all_models()
    texts = [f"the [MASK] {text}" for text in TEXTS] if task == "fill" else TEXTS
    offline = [
        plain(answer)
        for answer in get_task(task).run(texts, model=models[model], options=get_task(task).options(**settings))
    ]

    async def ask() -> tuple[list[Any], list[Any]]:
        async with serving({model: models[model]}) as (_, client):
            bodies = [{"model": model, "text": text} | asked for text in texts]
            each = await asyncio.gather(*(client.post(f"/v1/{task}", json=body) for body in bodies))
            together = await client.post(f"/v1/{task}", json={"model": model, "text": texts} | asked)
            return [answer.json()["answers"][0] for answer in each], together.json()["answers"]

    for answers in run(ask()):
        assert len(answers) == len(offline)
        assert all(map(alike, answers, offline))


def test_questions_are_answered_as_offline() -> None:
    context, questions = "the fat ginger cat sat on a mat", ["who sat?", "where?"]
    models = all_models()

    async def ask() -> dict[str, Any]:
        async with serving({name: models[name] for name in ("answer", "pair")}) as (_, client):
            body = {"question": questions, "context": context}
            return {
                name: (await client.post("/v1/answer", json=body | {"model": name})).json()["answers"]
                for name in ("answer", "pair")
            }

    for name, answers in run(ask()).items():
        offline = get_task("answer").run([ContextQuestion(one, context) for one in questions], model=models[name])
        assert all(map(alike, answers, map(plain, offline)))


def test_a_long_context_is_read_to_its_end_as_offline() -> None:
    """In windows, by models that write the answer as by those that show it."""
    context, question = " and ".join(TEXTS * 20), "who sat?"
    models = {name: all_models()[name] for name in ("answer", "pair")}
    assert len(get_task("answer").windows(ContextQuestion(question, context), model=models["pair"])) > 2

    async def ask() -> dict[str, Any]:
        async with serving(models) as (_, client):
            body = {"question": question, "context": context}
            return {
                name: (await client.post("/v1/answer", json=body | {"model": name})).json()["answers"]
                for name in models
            }

    for name, answers in run(ask()).items():
        offline = get_task("answer").run([ContextQuestion(question, context)], model=models[name])
        assert all(map(alike, answers, map(plain, offline)))


def test_answers_say_which_weights_gave_them() -> None:
    """Whole, as a stream, as an error of the model; not what no model answered."""

    async def ask() -> list[str | None]:
        async with serving({"cat": decoder(), "embed": encoder("embed")}) as (_, client):
            body = {"model": "cat", "prompt": "the", "max_tokens": 2}
            answers = [
                await client.post("/v1/completions", json=body),
                await client.post("/v1/completions", json=body | {"stream": True}),
                await client.post("/v1/completions", json=body | {"prompt": "the " * 5000}),
                await client.post("/v1/embeddings", json={"model": "embed", "input": "cat"}),
                await client.post("/v1/look", json={"model": "cat", "ask": {"view": "start", "run": {"text": "the"}}}),
                await client.get("/health"),
                await client.post("/v1/completions", json=body | {"model": "dog"}),
            ]
            return [answer.headers.get("x-triform-model") for answer in answers]

    cat, embed = hash_model(decoder()), hash_model(encoder("embed"))
    assert cat != embed
    assert run(ask()) == [cat, cat, cat, embed, cat, None, None]


def test_embeddings_and_search(folders: Path) -> None:
    model = encoder("embed")
    index = read_index(folders / "index")
    found = plain(
        next(get_task("search").run([TEXTS[2]], model=model, options=get_task("search").options(index=index, k=2)))
    )
    offline = [answer.vector for answer in get_task("embed").run(TEXTS, model=model)]

    async def ask() -> tuple[Any, ...]:
        async with serving({"embed": model}, indexes={"texts": index}) as (_, client):
            floats = await client.post("/v1/embeddings", json={"model": "embed", "input": TEXTS})
            packed = await client.post(
                "/v1/embeddings", json={"model": "embed", "input": TEXTS[0], "encoding_format": "base64"}
            )
            bodies = [{"model": "embed", "input": text} for text in TEXTS]
            many = await asyncio.gather(*(client.post("/v1/embeddings", json=body) for body in bodies))
            hits = await client.post("/v1/search", json={"model": "embed", "index": "texts", "text": TEXTS[2], "k": 2})
            return floats.json(), packed.json(), [one.json()["data"][0]["embedding"] for one in many], hits.json()

    floats, packed, many, hits = run(ask())
    for at, vector in enumerate(offline):
        assert floats["data"][at]["embedding"] == pytest.approx(vector, abs=1e-6)
        assert many[at] == pytest.approx(vector, abs=1e-6)
    unpacked = struct.unpack(f"<{len(offline[0])}f", base64.b64decode(packed["data"][0]["embedding"]))
    assert unpacked == pytest.approx(offline[0], abs=1e-6)
    assert floats["usage"]["prompt_tokens"] == sum(len(model.tokenizer.encode(text).ids) for text in TEXTS)
    assert found["hits"]
    assert alike(hits["answers"], [found])


def everything(index: Any) -> list[tuple[str, dict[str, Any], Any]]:
    """A path, what it is asked, and the answer offline; of every route that does a task, several times."""
    models, found = all_models(), []
    for task, model, asked, settings in TASKS:
        texts = [f"the [MASK] {text}" for text in TEXTS] if task == "fill" else TEXTS
        for text, one in zip(
            texts,
            get_task(task).run(texts, model=models[model], options=get_task(task).options(**settings)),
            strict=True,
        ):
            found.append((f"/v1/{task}", {"model": model, "text": text} | asked, [plain(one)]))
    for model in ("answer", "pair"):
        asks = [ContextQuestion(f"who {text}?", " and ".join(TEXTS)) for text in TEXTS]
        for ask, one in zip(asks, get_task("answer").run(asks, model=models[model]), strict=True):
            body = {"model": model, "question": ask.question, "context": ask.context}
            found.append(("/v1/answer", body, [plain(one)]))
    for text, one in zip(TEXTS, get_task("embed").run(TEXTS, model=models["embed"]), strict=True):
        found.append(("/v1/embeddings", {"model": "embed", "input": text}, list(one.vector)))
    for text, one in zip(
        TEXTS,
        get_task("search").run(TEXTS, model=models["embed"], options=get_task("search").options(index=index, k=3)),
        strict=True,
    ):
        found.append(("/v1/search", {"model": "embed", "text": text, "index": "texts", "k": 3}, [plain(one)]))
    for text in TEXTS:
        ranked = models["embed"].rerank(text, TEXTS).ranked
        results = [{"index": one.index, "relevance_score": one.score} for one in ranked]
        found.append(("/v1/rerank", {"model": "embed", "query": text, "documents": TEXTS}, results))
    for name in ("cat", "pair"):
        source = None if name == "cat" else "a cat"
        for text, scored in zip(TEXTS, models[name].score(TEXTS, source=source), strict=True):
            body = {"model": name, "text": text} | ({} if source is None else {"source": source})
            found.append(("/v1/score", body, scored.score))
    for text, decided in zip(TEXTS, models["cat"].decide(TEXTS, choices=["a cat", "a mole"]), strict=True):
        body = {"model": "cat", "state": text, "choices": ["a cat", "a mole"]}
        found.append(("/v1/systemone", body, decided.probabilities["a cat"]))
    for seed, text in enumerate(TEXTS):
        sampled = {"max_tokens": 20, "temperature": 0.9, "seed": seed}
        for name in ("cat", "pair"):
            one = complete(models[name], [text], start=0 if name == "pair" else None, **sampled)[0]
            found.append(("/v1/completions", {"model": name, "prompt": text} | sampled, one.text))
        one = complete(models["cat"], [f"<user> {text}\n<assistant>"], **sampled)[0]
        messages = [{"role": "user", "content": text}]
        found.append(("/v1/chat/completions", {"model": "cat", "messages": messages} | sampled, one.text))
    return found


def told(path: str, answer: Any) -> Any:
    if path == "/v1/embeddings":
        return answer["data"][0]["embedding"]
    if path == "/v1/completions":
        return answer["choices"][0]["text"]
    if path == "/v1/score":
        return answer["data"][0]["score"]
    if path == "/v1/systemone":
        return answer["answers"]["answer"]["probabilities"]["a cat"]
    if path == "/v1/rerank":
        return answer["results"]
    return answer["choices"][0]["message"]["content"] if "choices" in answer else answer["answers"]


def test_every_task_amid_all_others(folders: Path) -> None:
    """All tasks of all models at once, in a random order, more than there are places: each answers as if alone."""
    index = read_index(folders / "index")
    asked = everything(index)
    assert {path for path, _, _ in asked} == {route.path for route in ROUTES if route.task and not route.is_alias}
    Random(3).shuffle(asked)

    async def ask() -> list[Any]:
        async with serving(all_models(), indexes={"texts": index}, rows=4, queue=400) as (_, client):
            return await asyncio.gather(*(client.post(path, json=body) for path, body, _ in asked))

    for (path, body, offline), answer in zip(asked, run(ask()), strict=True):
        assert answer.status_code == 200, (path, body, answer.text)
        assert alike(told(path, answer.json()), offline), (path, body, answer.text, offline)


def plain(answer: Any) -> Any:
    return msgspec.to_builtins(answer)


def alike(one: Any, other: Any) -> bool:
    """Equal, numbers to rounding: a batch adds up in another order than a single text."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-6)
    return bool(one == other)
