"""What is refused before a worker is asked, what is taken though it is rarely said, and numbers that are none."""

import asyncio
import math
from typing import Any

import pytest
import torch
from served_callers import LONG, Caller, Gate, standing, until
from served_models import ASKS, all_models, decoder, encoder, pair, run, serving, words
from tiny_models import enlarge_weights

from triform.cooperative import pause
from triform.core.forms import EncoderOnly
from triform.core.initial_weights import build_network
from triform.generate.api import complete
from triform.model import Model
from triform.serve import small_routes
from triform.serve.http.http_errors import RequestError
from triform.serve.prechecks import PIECE_CHARACTERS, PIECES_AT_ONCE, refuse_in_pieces
from triform.serve.worker.bounded_queues import MAX_TOKENIZE_REQUESTS
from triform.serve.worker.model_worker import ModelWorker
from triform.tasks import get_task
from triform.tasks.embed import EmbedTask
from triform.text.tokenizer import Tokenizer

# --- refused at once ------------------------------------------------------------------------------------------------

BAD: list[tuple[str, dict[str, Any], str]] = [
    *[(path, {"text": "  "}, "empty") for path in ("/v1/classify", "/v1/tag", "/v1/search")],
    ("/v1/embeddings", {"input": ["the cat", "\n"]}, "empty"),
    ("/v1/answer", {"question": " "}, "empty"),
    ("/v1/answer", {"context": " "}, "empty"),
    ("/v1/translate", {"text": " ", "beams": 2}, "empty"),
    ("/v1/translate", {"model": "taught", "alignment": True}, "cross-attention"),
    ("/v1/fill", {"text": "no mask here"}, "no mask"),
    ("/v1/fill", {"text": "[MASK] " * 200}, "the model reads 128"),
    ("/v1/embeddings", {"input": [10**6]}, "outside the vocabulary"),
    ("/v1/embeddings", {"input": [[1] * 129]}, "at once"),
    ("/v1/embeddings", {"input": [1] * 2**19}, "at most 300,000"),
    ("/v1/embeddings", {"input": ["a", 1]}, "lists of ids"),
    ("/v1/embeddings", {"input": ["the cat " * 1000] * 300}, "characters; at most 2,097,152"),
    ("/v1/fill", {"text": "[MASK] " * 30_000}, "at least"),
    ("/v1/tokenize", {"text": "the cat " * 50_000}, "characters; at most 262,144"),
    ("/v1/embeddings", {"input": [[1]] * 10_000}, "more than 8,192 lists"),
]


def test_what_a_task_would_refuse_reaches_no_worker(monkeypatch: pytest.MonkeyPatch, folders: Any) -> None:
    from triform.tasks.vector_index import read_index

    def never(self: ModelWorker, job: Any) -> Any:
        raise AssertionError("a worker was asked")

    monkeypatch.setattr(ModelWorker, "submit", never)

    async def ask() -> None:
        async with serving(all_models(), indexes={"texts": read_index(folders / "index")}) as (_, client):
            for path, changed, said in BAD:
                answer = await client.post(path, json=ASKS[path] | changed)
                assert answer.status_code == 400, (path, changed, answer.text)
                assert said in answer.json()["error"]["message"], (path, changed, answer.text)

    run(ask())


def test_a_text_of_no_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = words("wordpiece")
    monkeypatch.setattr(type(tokenizer), "ids_many", lambda self, texts, **_: [() for _ in texts])

    async def ask() -> Any:
        async with serving({"tag": encoder("tag")}) as (_, client):
            return await client.post("/v1/tag", json=ASKS["/v1/tag"])

    answer = run(ask())
    assert answer.status_code == 400
    assert "left in tokens" in answer.json()["error"]["message"]


def test_those_who_left_are_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch fails while one of its clients hangs up: the others are asked again one by one, that one is not."""
    asked: list[list[str]] = []
    reading = EmbedTask.run

    def choosy(self: EmbedTask, questions: Any, **given: Any) -> Any:
        asked.append(list(questions))
        if len(questions) > 1:
            gate()
            pause()  # in which it is noticed who has left
            raise RuntimeError("all of them")
        yield from reading(self, questions, **given)

    monkeypatch.setattr(EmbedTask, "run", choosy)

    class Here:
        def gate(self) -> None: ...

    held, first = Gate(monkeypatch, Here, "gate"), Gate(monkeypatch, EncoderOnly, "hidden")
    held.open.clear()
    first.open.clear()  # the first pass, before anything is asked: all three wait behind it
    gate = Here().gate

    async def ask() -> None:
        async with standing({"embed": encoder("embed")}) as (service, made):
            worker = service.models["embed"].worker
            texts = ("stays", "leaves", "stays too")
            callers = []
            for text in texts:  # one behind the other: texts are cut into tokens in two threads
                callers.append(Caller(made, {"model": "embed", "input": text}, path="/v1/embeddings"))
                await until(lambda: worker.pending == len(callers))
            first.open.set()
            await until(lambda: held.at)
            await callers[1].hang_up()
            held.open.set()
            await callers[0].task
            await callers[2].task
            await until(lambda: not worker._busy)
            assert [caller.sent[0]["status"] for caller in callers[::2]] == [200, 200]

    run(ask())
    assert asked == [["stays", "leaves", "stays too"], ["stays"], ["stays too"]]


# --- not without bound ----------------------------------------------------------------------------------------------


def test_texts_are_cut_for_few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who hang up keep their places until their threads have ended; the process waits for none of them."""
    gate = Gate(monkeypatch, small_routes, "tokenize_text")
    gate.open.clear()
    body = ASKS["/v1/tokenize"]

    async def ask() -> None:
        async with standing() as (service, made):
            callers = [Caller(made, body, path="/v1/tokenize") for _ in range(MAX_TOKENIZE_REQUESTS)]
            await until(lambda: gate.at == MAX_TOKENIZE_REQUESTS)
            await callers[0].hang_up()
            more = Caller(made, body, path="/v1/tokenize")
            await more.task
            assert more.sent[0]["status"] == 429
            gate.open.set()
            await asyncio.gather(*(caller.task for caller in callers))
            assert [caller.sent[0]["status"] for caller in callers[1:]] == [200] * (MAX_TOKENIZE_REQUESTS - 1)
            await until(lambda: service.models["cat"].queues.tokenized.pending == 0)
            again = Caller(made, body, path="/v1/tokenize")
            await again.task
            assert again.sent[0]["status"] == 200

    run(ask())


# --- taken ----------------------------------------------------------------------------------------------------------

NULLS = (
    "max_tokens", "temperature", "top_p", "n", "stop", "seed", "presence_penalty", "frequency_penalty", "logit_bias",
    "stream", "stream_options", "response_format",
)  # fmt: skip


def test_null_is_as_good_as_nothing() -> None:
    plainly_asked = [("/v1/completions", {"temperature": 0}), ("/v1/chat/completions", {"temperature": 0})]
    usual: dict[str, Any] = {"echo": False, "best_of": 1, "suffix": None, "logprobs": None}
    chat: dict[str, Any] = {"logprobs": None, "top_logprobs": None, "max_completion_tokens": None}

    async def ask() -> None:
        async with serving() as (_, client):
            for (path, settings), more in zip(plainly_asked, (usual, chat), strict=True):
                body = ASKS[path] | settings
                plain = await client.post(path, json=body)
                nulls = await client.post(path, json=dict.fromkeys(NULLS) | body | more)
                assert nulls.status_code == 200, nulls.text
                assert nulls.json()["choices"] == plain.json()["choices"]
            for wrong in ({"echo": True}, {"best_of": 2}, {"suffix": "end"}):
                refused = await client.post("/v1/completions", json=ASKS["/v1/completions"] | wrong)
                assert (refused.status_code, refused.json()["error"]["param"]) == (400, next(iter(wrong))), wrong

    run(ask())


def test_embeddings_of_token_ids_are_those_of_the_text() -> None:
    model = encoder("embed")
    texts = ["the cat", "a mole digs a hole"]
    ids = [list(model.tokenizer.encode(text).ids) for text in texts]
    offline = [answer.vector for answer in get_task("embed").run(texts, model=model)]

    async def ask() -> list[Any]:
        async with serving({"embed": model}) as (_, client):
            bodies = [{"model": "embed", "input": given} for given in (ids, ids[0])]
            return [(await client.post("/v1/embeddings", json=body)).json() for body in bodies]

    both, one = run(ask())
    assert both["usage"]["prompt_tokens"] == sum(map(len, ids))
    for found, vector in zip([*both["data"], *one["data"]], [*offline, offline[0]], strict=True):
        assert found["embedding"] == pytest.approx(vector, abs=1e-6)


# --- numbers that are none ------------------------------------------------------------------------------------------


def poisoned(kind: str, word: str) -> Model:
    """The vector of a word's tokens is NaN."""
    model = encoder(kind)
    network = enlarge_weights(build_network(model.spec))
    with torch.no_grad():
        for id in model.tokenizer.encode(word, special=False).ids:
            network.token.weight[id] = math.nan
    return model.replace(network=network)


@pytest.mark.parametrize("task", ["embeddings", "classify", "tag", "fill"])
def test_answers_that_are_no_numbers_fail_alone(monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    """All are in one batch; who asked for the poisoned word is told 500, the others are answered."""
    kind = "embed" if task == "embeddings" else task
    model = poisoned(kind, "apples")
    name = "input" if task == "embeddings" else "text"
    mask = " [MASK]" if task == "fill" else ""
    texts = [text + mask for text in ("the cat", "apples", "a mole", "lions")]

    async def ask() -> list[Any]:
        async with serving({kind: model}) as (service, client):
            gate = Gate(monkeypatch, EncoderOnly, "hidden")
            gate.open.clear()
            bodies = [{"model": kind, name: text} for text in ("a cat" + mask, *texts)]
            doing = [asyncio.ensure_future(client.post(f"/v1/{task}", json=body)) for body in bodies]
            await until(lambda: service.models[kind].worker.pending == len(bodies) and gate.at)
            gate.open.set()
            return await asyncio.gather(*doing)

    answers = run(ask())
    if task == "fill":  # its head is tied to the tokens' vectors: every logit of that word is NaN
        assert {answer.status_code for answer in answers} == {500}
    else:
        assert [answer.status_code for answer in answers] == [200, 200, 500, 200, 200]
    assert answers[2].json()["error"]["code"] == "generation_failed"
    assert answers[2].json()["error"]["type"] == "server_error"


# --- counted --------------------------------------------------------------------------------------------------------


def values(text: str) -> dict[str, float]:
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[:1] != "#"}


def test_prompts_are_counted_one_by_one_and_once() -> None:
    """Three prompts in a request are three readings, not one of their joint length; what is recalled is not read."""
    from triform.serve.http.metrics import StepCosts

    long = [1 + at % 200 for at in range(120)]
    model = decoder()
    costs = StepCosts(model.spec)

    async def ask() -> Any:
        async with serving() as (service, client):
            engine = service.models["cat"].worker.engine
            engine.chunk = 32
            body = {"model": "cat", "prompt": [long, long[::-1], long], "max_tokens": 1}
            answer = await client.post("/v1/completions", json=body)
            assert answer.json()["usage"]["prompt_tokens"] == 360
            return values((await client.get("/metrics")).text)

    found = run(ask())
    # three pieces of the third prompt were known from the first
    assert found['triform_prompt_tokens_total{model="cat"}'] == 360 - 96
    whole = 2 * costs.reading_cost(120)[0] + costs.reading_cost(120)[0] - costs.reading_cost(96)[0]
    assert found['triform_flops_total{model="cat"}'] == pytest.approx(whole)


def test_a_long_text_costs_what_its_windows_do() -> None:
    from triform.serve.http.metrics import StepCosts

    costs = StepCosts(encoder("embed").spec)
    assert costs.reading_cost(3 * 128 + 5)[0] == pytest.approx(
        3 * costs.reading_cost(128)[0] + costs.reading_cost(5)[0]
    )


def test_long_gaps_between_tokens_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds between two steps, by a clock of our own; the time in which nothing is written is no gap."""
    from triform.serve.http import metrics

    now = [0.0]

    def later() -> float:
        now[0] += 10
        return now[0]

    monkeypatch.setattr(metrics, "monotonic", later)

    async def ask() -> Any:
        async with serving() as (_, client):
            for _ in range(2):
                await client.post("/v1/completions", json=LONG | {"max_tokens": 3, "prompt": [5, 6, 7]})
            return values((await client.get("/metrics")).text)

    found = run(ask())
    steps = found['triform_inter_token_latency_seconds_count{model="cat"}']
    assert 0 < steps == found['triform_inter_token_latency_seconds_sum{model="cat"}'] / 10
    assert steps <= 4  # of three tokens there are two gaps
    assert found['triform_inter_token_latency_seconds_bucket{le="2.5",model="cat"}'] == 0


def test_a_batch_of_a_model_that_also_writes_is_running(monkeypatch: pytest.MonkeyPatch) -> None:
    from triform.generate.beam_search import PromptBeams

    async def ask() -> None:
        async with standing({"pair": pair()}) as (service, made):
            gate = Gate(monkeypatch, PromptBeams, "advance")
            gate.open.clear()
            body = {"model": "pair", "text": "the cat", "beams": 2, "max_tokens": 4}
            caller = Caller(made, body, path="/v1/translate")
            await until(lambda: gate.at)
            assert service.models["pair"].worker.running == 1
            gate.open.set()
            await caller.task

    run(ask())


def test_the_same_texts_as_ever() -> None:
    """The negative control: what a good request is answered has not changed."""
    offline = complete(decoder(), ["the cat"], max_tokens=5)[0]

    async def ask() -> Any:
        async with serving() as (_, client):
            body = {"model": "cat", "prompt": "the cat", "max_tokens": 5}
            return (await client.post("/v1/completions", json=body)).json()

    assert run(ask())["choices"][0]["text"] == offline.text


@pytest.mark.parametrize("text", ["a ", "a,"])
def test_of_a_text_with_too_many_tokens_little_more_is_spelled_than_may_be(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the bound on characters a text may have several times the tokens that are accepted."""
    tokenizer, spelled = words("bpe"), []
    ids_many = tokenizer.ids_many

    def count(texts: list[str], **named: bool) -> list[list[int]]:
        spelled.extend(found := ids_many(texts, **named))
        return found

    monkeypatch.setattr(tokenizer, "ids_many", count)
    with pytest.raises(RequestError, match=r"at least [0-9,]+ tokens; at most 20,000 are accepted"):
        refuse_in_pieces([text * 50_000], tokenizer, most=20_000)
    assert 20_000 < sum(map(len, spelled)) < 20_000 + 2 * PIECES_AT_ONCE * PIECE_CHARACTERS


def test_what_has_as_many_tokens_as_are_accepted_is_not_refused() -> None:
    tokenizer = words("bpe")
    texts = ["the fat ginger cat, " * 5000, "a" * 999]
    least = sum(len(ids) for ids in tokenizer.ids_many(texts, special=False))
    refuse_in_pieces(texts, tokenizer, most=least)
    with pytest.raises(RequestError, match="at least"):
        refuse_in_pieces(texts, tokenizer, most=least // 2)


@pytest.mark.parametrize("path", ["/v1/classify", "/v1/tag", "/v1/score", "/v1/tokenize"])
def test_routes_ask_piece_by_piece(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing longer than a piece is spelled."""
    longest, ids_many = 0, Tokenizer.ids_many

    def watch(self: Tokenizer, texts: list[str], **named: bool) -> list[list[int]]:
        nonlocal longest
        longest = max(longest, *map(len, texts))
        return ids_many(self, texts, **named)

    monkeypatch.setattr(Tokenizer, "ids_many", watch)

    async def ask() -> None:
        async with serving(all_models(), prompt_tokens=9000) as (_, client):
            answer = await client.post(path, json=ASKS[path] | {"text": "a," * 20_000})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
            assert "at least" in answer.json()["error"]["message"]

    run(ask())
    assert longest == PIECE_CHARACTERS
