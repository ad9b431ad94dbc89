"""The oracle: random requests on every route, each with the answer that the same models give offline.

Text must be equal; numbers to rounding, because a batch adds up in another order than a single text.
"""

import base64
import json
import math
import random
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import msgspec
from served_models import TEXTS, all_models

from triform.costs.predict import cost
from triform.generate.api import complete
from triform.page.answer_requests import answer_request as look
from triform.page.requests import AnyPageRequest
from triform.page.session import InspectionSession
from triform.parameters import count_parameters
from triform.tasks import get_task, tasks_of
from triform.tasks.answer_spans import ContextQuestion
from triform.tasks.vector_index import read_index as read_index

WORDS = sorted({word for text in TEXTS for word in text.split()})
POOL = 400  # requests that are kept to be sent again
NEW = 0.1  # share of requests that are drawn anew
WRITERS = {"cat": None, "pair": 0}  # and the token that a target begins with
TASKS: list[tuple[str, str, dict[str, Any]]] = [
    ("translate", "pair", {"max_tokens": 9}),
    ("translate", "pair", {"beams": 3, "max_tokens": 6}),
    ("translate", "taught", {"max_tokens": 9}),
    ("translate", "pair", {"alignment": True, "max_tokens": 5}),
    ("summarize", "pair", {"max_tokens": 8}),
    ("classify", "classify", {"top": 2}),
    ("tag", "tag", {}),
    ("fill", "fill", {"k": 3}),
]


class Case(NamedTuple):
    """A request, and `find_fault`, which says what is wrong with an answer to it: "" where it is right."""

    route: str  # method and path, as the table of routes has it
    path: str
    find_fault: Callable[[httpx2.Response], str]
    body: Any = None  # sent as JSON; bytes as they are
    headers: dict[str, str] = {}  # noqa: RUF012

    @property
    def method(self) -> str:
        return self.route.partition(" ")[0]

    def content(self) -> bytes:
        return (
            self.body if isinstance(self.body, bytes) else b"" if self.body is None else json.dumps(self.body).encode()
        )


def is_alike(answer: Any, right: Any) -> bool:
    if isinstance(answer, dict) and isinstance(right, dict):
        return answer.keys() == right.keys() and all(is_alike(answer[name], right[name]) for name in answer)
    if isinstance(answer, list | tuple) and isinstance(right, list | tuple):
        return len(answer) == len(right) and all(map(is_alike, answer, right))
    if isinstance(answer, float) and isinstance(right, int | float):
        return math.isclose(answer, right, rel_tol=1e-4, abs_tol=1e-6)
    return bool(answer == right)


def expect(right: Any, taken: Callable[[httpx2.Response], Any]) -> Callable[[httpx2.Response], str]:
    """A judge: what `taken` takes out of an answer is to be like `right`."""

    def find_fault(answer: httpx2.Response) -> str:
        if answer.status_code != 200:
            return f"status {answer.status_code}: {answer.text[:200]}"
        try:
            found = taken(answer)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            return f"not in its shape ({error!r}): {answer.text[:200]}"
        return "" if is_alike(found, right) else f"got {str(found)[:300]}, offline it is {str(right)[:300]}"

    return find_fault


# --- what is taken out of answers -----------------------------------------------------------------------------------


def events_of(answer: httpx2.Response) -> list[dict[str, Any]]:
    """The events of a stream, which must end with [DONE]."""
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    if not lines or lines.pop() != "[DONE]":
        raise ValueError("the stream does not end with [DONE]")
    return [json.loads(line) for line in lines]


def is_stream(answer: httpx2.Response) -> bool:
    return "event-stream" in answer.headers.get("content-type", "")


def written_in(answer: httpx2.Response) -> list[tuple[str, list[int], str | None]]:
    """Text, token ids and finish reason of each choice, of a whole answer or of a stream."""
    found: dict[int, tuple[str, list[int], str | None]] = {}
    for piece in events_of(answer) if is_stream(answer) else [answer.json()]:
        for choice in piece["choices"]:
            said = choice.get("delta") or choice.get("message") or choice
            text, ids, reason = found.get(choice["index"], ("", [], None))
            if reason is not None:
                raise ValueError("a choice goes on after its end")
            new_text = text + (said.get("content") or said.get("text") or "")
            found[choice["index"]] = new_text, ids + choice.get("token_ids", []), choice["finish_reason"]
    return [found[index] for index in range(len(found))]


def said_in_response(answer: httpx2.Response) -> tuple[str, int, int, bool]:
    """What `Oracle._greedy` gives, of `/v1/responses`."""
    found = answer.json()
    text = "".join(part["text"] for item in found["output"] for part in item["content"])
    return text, found["usage"]["input_tokens"], found["usage"]["output_tokens"], found["status"] == "incomplete"


def said_in_message(answer: httpx2.Response) -> tuple[str, int, int, bool]:
    """What `Oracle._greedy` gives, of `/v1/messages`."""
    found = answer.json()
    text = "".join(block["text"] for block in found["content"])
    return text, found["usage"]["input_tokens"], found["usage"]["output_tokens"], found["stop_reason"] == "max_tokens"


def vectors_in(answer: httpx2.Response) -> list[list[float]]:
    vectors = [one["embedding"] for one in answer.json()["data"]]
    return [
        list(struct.unpack(f"<{len(data) // 4}f", data))
        if isinstance(one, str) and (data := base64.b64decode(one))
        else one
        for one in vectors
    ]


def scores_in(answer: Any) -> Any:
    return [one["score"] for one in answer.json()["data"]]


def probabilities_in(answer: Any) -> Any:
    return answer.json()["answers"]["answer"]["probabilities"]


def without_times(answer: httpx2.Response) -> Any:
    """Model cards, but for the moment the server was started."""
    cards = answer.json().get("data", [answer.json()])
    return [{name: value for name, value in card.items() if name not in ("created", "task")} for card in cards]


# --- the oracle -----------------------------------------------------------------------------------------------------


class Oracle:
    """`draw` gives a random request with its right answer; safe from any thread."""

    def __init__(self, index: Path) -> None:
        self.models = all_models()
        self.index = read_index(index)
        self.lookers = {name: InspectionSession(name, model) for name, model in self.models.items()}
        self._lock = threading.Lock()
        self._pool: list[Case] = []
        self._seen: dict[str, bytes] = {}
        self.drawers: dict[str, Callable[[random.Random], Case]] = {
            "POST /v1/completions": self._completion,
            "POST /v1/chat/completions": self._chat,
            "POST /v1/responses": self._response,
            "POST /v1/messages": self._message,
            "POST /v1/messages/count_tokens": self._count,
            "POST /v1/embeddings": self._embedding,
            "POST /v1/answer": self._answer,
            "POST /v1/search": self._search,
            "POST /v1/rerank": self._rerank,
            "POST /v1/score": self._score,
            "POST /v1/systemone": self._decide,
            "POST /v1/look": self._look,
            "POST /v1/tokenize": self._tokenize,
            "POST /v1/cost": self._cost,
            "GET /v1/models": self._cards,
            "GET /v1/models/{model}": self._card,
            "GET /health": lambda rng: self._status("/health"),
            "GET /ready": lambda rng: self._status("/ready"),
            "GET /metrics": lambda rng: self._metrics(),
        }
        for task in sorted({task for task, _, _ in TASKS}):
            self.drawers[f"POST /v1/{task}"] = lambda rng, task=task: self._task(rng, task)  # type: ignore[misc]
        for path in ("/", "/docs", "/openapi.json", "/v1/look"):
            self.drawers[f"GET {path}"] = lambda rng, path=path: self._page(path)  # type: ignore[misc]

    def draw(self, rng: random.Random) -> Case:
        """Mostly one of before: to compute every answer anew would leave the server little of the processor."""
        if self._pool and rng.random() > NEW:
            return rng.choice(self._pool)
        case = self.draw_of(rng.choice(list(self.drawers)), rng)
        if len(self._pool) < POOL:
            self._pool.append(case)
        else:
            self._pool[rng.randrange(POOL)] = case
        return case

    def draw_of(self, route: str, rng: random.Random) -> Case:
        with self._lock:
            return self.drawers[route](rng)

    # --- writing ----------------------------------------------------------------------------------------------------

    def _settings(self, rng: random.Random) -> dict[str, Any]:
        settings = {"max_tokens": rng.randint(1, 24), "temperature": rng.choice([0.0, 0.9, 1.3])}
        settings |= {"seed": rng.randrange(1000), "n": rng.choice([1, 1, 1, 2]), "top_p": rng.choice([1.0, 0.8])}
        return settings | {"presence_penalty": rng.choice([0.0, 0.0, 0.5])}

    def _writing(self, path: str, name: str, asked: dict[str, Any], prompts: list[str], rng: random.Random) -> Case:
        settings = self._settings(rng)
        offline = complete(self.models[name], prompts, start=WRITERS[name], **settings)
        right = [(one.text, list(one.tokens), "length" if one.finish == "length" else "stop") for one in offline]
        body = {"model": name, "return_token_ids": True, "stream": rng.random() < 0.5} | asked | settings
        return Case(f"POST {path}", path, expect(right, written_in), body)

    def _completion(self, rng: random.Random) -> Case:
        prompts = some_texts(rng, most=2)
        asked = {"prompt": prompts if len(prompts) > 1 else prompts[0]}
        return self._writing("/v1/completions", rng.choice(list(WRITERS)), asked, prompts, rng)

    def _chat(self, rng: random.Random) -> Case:
        messages, prompt = some_conversation(rng)
        return self._writing("/v1/chat/completions", "cat", {"messages": messages}, [prompt], rng)

    def _response(self, rng: random.Random) -> Case:
        messages, prompt = some_conversation(rng)
        most, right = self._greedy(prompt, rng)
        body = {"model": "cat", "input": messages, "temperature": 0, "max_output_tokens": most}
        return Case("POST /v1/responses", "/v1/responses", expect(right, said_in_response), body)

    def _message(self, rng: random.Random) -> Case:
        messages, prompt = some_conversation(rng, system=False)
        most, right = self._greedy(prompt, rng)
        body = {"model": "cat", "messages": messages, "temperature": 0, "max_tokens": most}
        return Case("POST /v1/messages", "/v1/messages", expect(right, said_in_message), body)

    def _greedy(self, prompt: str, rng: random.Random) -> tuple[int, tuple[str, int, int, bool]]:
        """At most how many tokens; text, tokens read and written, and whether it was cut short."""
        most = rng.randint(1, 24)
        (one,) = complete(self.models["cat"], [prompt], max_tokens=most, temperature=0.0)
        read = len(self.models["cat"].require_tokenizer().encode(prompt).ids)
        return most, (one.text, read, len(one.tokens), one.finish == "length")

    def _count(self, rng: random.Random) -> Case:
        messages, prompt = some_conversation(rng, system=False)
        right = len(self.models["cat"].require_tokenizer().encode(prompt).ids)
        path, body = "/v1/messages/count_tokens", {"model": "cat", "messages": messages}
        return Case(f"POST {path}", path, expect(right, lambda answer: answer.json()["input_tokens"]), body)

    # --- tasks ------------------------------------------------------------------------------------------------------

    def _task(self, rng: random.Random, task: str) -> Case:
        _, name, settings = rng.choice([each for each in TASKS if each[0] == task])
        texts = some_texts(rng, most=3)
        if task == "fill":
            texts = [f"the [MASK] {text}" for text in texts]
        right = plain(get_task(task).run(texts, model=self.models[name], options=get_task(task).options(**settings)))
        body = {"model": name, "text": texts} | settings
        return Case(f"POST /v1/{task}", f"/v1/{task}", expect(right, answers_in), body)

    def _answer(self, rng: random.Random) -> Case:
        name, context = rng.choice(["answer", "pair"]), some_text(rng, most=60)
        questions = [f"who {text}?" for text in some_texts(rng, most=2)]
        right = plain(
            get_task("answer").run([ContextQuestion(one, context) for one in questions], model=self.models[name])
        )
        body = {"model": name, "question": questions, "context": context}
        return Case("POST /v1/answer", "/v1/answer", expect(right, answers_in), body)

    def _embedding(self, rng: random.Random) -> Case:
        texts = some_texts(rng, most=4)
        right = [list(one.vector) for one in get_task("embed").run(texts, model=self.models["embed"])]
        body = {"model": "embed", "input": texts, "encoding_format": rng.choice(["float", "base64"])}
        return Case("POST /v1/embeddings", "/v1/embeddings", expect(right, vectors_in), body)

    def _search(self, rng: random.Random) -> Case:
        texts, k = some_texts(rng, most=3), rng.randint(1, 5)
        found = get_task("search").run(
            texts, model=self.models["embed"], options=get_task("search").options(index=self.index, k=k)
        )
        body = {"model": "embed", "text": texts, "index": "texts", "k": k}
        return Case("POST /v1/search", "/v1/search", expect(plain(found), answers_in), body)

    def _rerank(self, rng: random.Random) -> Case:
        query, *documents = some_texts(rng, most=1) + some_texts(rng, most=4)
        found = self.models["embed"].rerank(query, documents).ranked
        right = [{"index": one.index, "relevance_score": one.score} for one in found]
        body = {"model": "embed", "query": query, "documents": documents}
        return Case("POST /v1/rerank", "/v1/rerank", expect(right, lambda answer: answer.json()["results"]), body)

    def _score(self, rng: random.Random) -> Case:
        texts = some_texts(rng, most=4)
        right = [one.score for one in self.models["cat"].score(texts)]
        body = {"model": "cat", "text": texts}
        return Case("POST /v1/score", "/v1/score", expect(right, scores_in), body)

    def _decide(self, rng: random.Random) -> Case:
        text = some_text(rng)
        right = self.models["cat"].decide(text, choices=["a cat", "a mole"]).probabilities
        body = {"model": "cat", "state": text, "choices": ["a cat", "a mole"]}
        return Case("POST /v1/systemone", "/v1/systemone", expect(right, probabilities_in), body)

    # --- looking, counting, describing ------------------------------------------------------------------------------

    def _look(self, rng: random.Random) -> Case:
        name, run = rng.choice(["cat", "pair"]), {"text": some_text(rng)}
        ask = rng.choice(
            [
                {"view": "start", "run": run},
                {"view": "steps", "run": run, "count": rng.randint(1, 6)},
                {"view": "stream", "run": run, "stack": "decoder", "tokens": [0, 1]},
                {"view": "positions", "stack": "decoder", "count": rng.randint(2, 9)},
            ]
        )
        right = json.loads(msgspec.json.encode(look(self.lookers[name], msgspec.convert(ask, AnyPageRequest))))
        return Case("POST /v1/look", "/v1/look", expect(right, httpx2.Response.json), {"model": name, "ask": ask})

    def _tokenize(self, rng: random.Random) -> Case:
        name, text, special = rng.choice(list(self.models)), some_text(rng, most=40), rng.random() < 0.5
        model = self.models[name]
        encoding = model.require_tokenizer().encode(text, special=special)
        right = {
            "ids": list(encoding.ids),
            "tokens": [model.require_tokenizer().token_of(id) for id in encoding.ids],
            "offsets": [list(pair) for pair in encoding.offsets],
            "count": len(encoding.ids),
            "context": model.spec.context,
        }
        body = {"model": name, "text": text, "special": special}
        return Case("POST /v1/tokenize", "/v1/tokenize", expect(right, httpx2.Response.json), body)

    def _cost(self, rng: random.Random) -> Case:
        name, asked = rng.choice(list(self.models)), {"batch": rng.randint(1, 9), "length": rng.randint(1, 99)}
        right = json.loads(cost(self.models[name].spec, phase="reading", **asked).to_json())
        return Case("POST /v1/cost", "/v1/cost", expect(right, httpx2.Response.json), {"model": name} | asked)

    def _describe(self, name: str) -> dict[str, Any]:
        model = self.models[name]
        return {
            "id": name, "form": model.spec.form,
            "parameters": count_parameters(model.spec), "context": model.spec.context,
            "tasks": list(tasks_of(model)), "object": "model", "owned_by": "triform",
        }  # fmt: skip

    def _cards(self, rng: random.Random) -> Case:
        def known(answer: httpx2.Response) -> Any:
            return [card for card in without_times(answer) if card["id"] in self.models]

        right = [self._describe(name) for name in self.models]
        return Case("GET /v1/models", "/v1/models", expect(right, known))

    def _card(self, rng: random.Random) -> Case:
        name = rng.choice(list(self.models))
        return Case("GET /v1/models/{model}", f"/v1/models/{name}", expect([self._describe(name)], without_times))

    def _status(self, path: str) -> Case:
        return Case(f"GET {path}", path, expect({"status": "ok"}, httpx2.Response.json))

    def _metrics(self) -> Case:
        return Case("GET /metrics", "/metrics", expect(True, lambda answer: "triform_num_requests" in answer.text))

    def _page(self, path: str) -> Case:
        """The same bytes as at the first time."""
        return Case(
            f"GET {path}",
            path,
            expect(True, lambda answer: self._seen.setdefault(path, answer.content) == answer.content),
        )


def plain(answers: Any) -> list[Any]:
    return [msgspec.to_builtins(one) for one in answers]


def answers_in(answer: httpx2.Response) -> Any:
    return answer.json()["answers"]


def some_text(rng: random.Random, *, most: int = 12) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, most)))


def some_conversation(rng: random.Random, *, system: bool = True) -> tuple[list[dict[str, str]], str]:
    """Its messages, and the prompt that the chat template makes of them."""
    roles = ["system", "user", "assistant", "user"][rng.choice([0, 1, 3] if system else [1, 3]) :]
    messages = [{"role": role, "content": some_text(rng, most=6)} for role in roles]
    return messages, "".join(f"<{one['role']}> {one['content']}\n" for one in messages) + "<assistant>"


def some_texts(rng: random.Random, *, most: int) -> list[str]:
    return [some_text(rng) for _ in range(rng.randint(1, most))]
