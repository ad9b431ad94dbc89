"""A small client for a running service: what `triform … --url` uses. Standard library only.

Uses the public routes and returns the tasks' own answers. Waits where a busy service asks for it (429, Retry-After).
"""

import base64
import json
import os
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http.client import HTTPException
from itertools import groupby
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

import msgspec

from triform.errors import InputError, TriformError
from triform.hints import Hint
from triform.serve.http.http_errors import ErrorResponse
from triform.serve.openai.response_types import ChatCompletion, Completion, EmbeddingList
from triform.serve.routes import ROUTES
from triform.tasks import get_task
from triform.tasks.embed import EmbeddingVector
from triform.tasks.task import Task

KEY_VARIABLE = "TRIFORM_API_KEY"
MAX_REQUEST_TEXTS = 64
MAX_TRIES = 10  # of a request to a busy service
TIMEOUT_SECONDS = 300.0
TEXTS = (
    "prompt",
    "messages",
    "input",
    "text",
    "question",
    "context",
    "query",
    "documents",
)  # an error in these is one of a text


class Client:
    """`key` is for services that ask for one; it is taken from TRIFORM_API_KEY where none is given."""

    def __init__(self, url: str, *, key: str | None = None) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise TriformError(f"--url {url} is no address of a service; use e.g. http://127.0.0.1:8000")
        self.url = url.rstrip("/").removesuffix("/v1")
        self.key = key or os.environ.get(KEY_VARIABLE)

    # --- tasks ------------------------------------------------------------------------------------------------------

    def run(
        self, name: str, questions: Sequence[Any], *, model: str, extra: Mapping[str, Any] | None = None, **options: Any
    ) -> Iterator[Any]:
        """The answers that the task's `run` would give, from a model of the service; `extra` fields go as they are."""
        task, route = get_task(name), next(route for route in ROUTES if route.task == name)
        chosen = {"model": model} | task.options_body(options) | dict(extra or {})
        for body in make_bodies(task, questions):
            response = msgspec.convert(self.post(route.path, body | chosen), route.gives)
            yield from read_answers(task, response)

    def get_task_of(self, model: str) -> str:
        """What the model was made for."""
        with self._open(f"/v1/models/{quote(model, safe='')}") as answer:
            task: str | None = self._read(answer)["task"]
        if task is None:
            raise TriformError(f"{self.url}: the model {model!r} can do none of the tasks")
        return task

    # --- writing ----------------------------------------------------------------------------------------------------

    def choices(self, path: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.post(path, body)["choices"]
        return found

    def pieces(self, path: str, body: Mapping[str, Any]) -> Iterator[str]:
        """Text as it comes, of one choice."""
        with self._open(path, dict(body) | {"stream": True}) as answer:
            for event in self._events(answer):
                if "error" in event:
                    raise TriformError(f"{self.url}: {event['error']['message']}")
                for choice in event["choices"]:
                    yield choice["text"] if "text" in choice else choice["delta"].get("content") or ""

    def _events(self, answer: Any) -> Iterator[dict[str, Any]]:
        try:
            for line in answer:
                if line.startswith(b"data: [DONE]"):
                    return
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
        except (OSError, HTTPException):
            pass
        raise self._broken_off()

    # --- asking -----------------------------------------------------------------------------------------------------

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with self._open(path, body) as answer:
            return self._read(answer)

    def _read(self, answer: Any) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.load(answer)
        except (OSError, HTTPException, ValueError):
            raise self._broken_off() from None
        return found

    def _broken_off(self) -> TriformError:
        return TriformError(f"{self.url}: the answer broke off; the service may have ended")

    def _open(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {self.key}"} if self.key else {})
        data = None if body is None else msgspec.json.encode(body)
        for left in reversed(range(MAX_TRIES)):
            asked = Request(self.url + path, data=data, headers=headers)
            try:
                return urlopen(asked, timeout=TIMEOUT_SECONDS)
            except HTTPError as error:
                wait = error.headers.get("retry-after", "")
                if error.code != 429 or not left or not wait.isdecimal():
                    raise self._fault(error) from None
                error.close()
                time.sleep(int(wait))
            except (URLError, OSError, HTTPException) as error:
                reason = getattr(error, "reason", error)
                raise TriformError(
                    f"{self.url} does not answer: {reason}; is it running there? `{Hint.SERVE}`"
                ) from None
        raise TriformError(f"{self.url} is busy")

    def _fault(self, error: HTTPError) -> TriformError:
        """What is wrong with a text is an `InputError`, as it is here: other texts may still be asked."""
        with error:
            try:
                told = msgspec.json.decode(error.read(), type=ErrorResponse).error
            except (OSError, HTTPException, msgspec.MsgspecError):
                return TriformError(f"{self.url}: {error.code} {error.reason}")
        texts = told.param is None or told.param.partition("[")[0] in TEXTS
        kind = InputError if error.code == 400 and texts else TriformError
        return kind(f"{self.url}: {told.message}")


def make_bodies(task: Task[Any, Any, Any], questions: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Requests that together ask every question, in their order; three tasks have OpenAI's fields."""
    for _, some in groupby(enumerate(questions), key=lambda one: one[0] // MAX_REQUEST_TEXTS):
        chunk = [question for _, question in some]
        if task.name == "embed":
            yield {"input": chunk, "encoding_format": "base64"}
        elif task.name == "complete":
            yield {"prompt": chunk}
        elif task.name == "chat":
            yield from ({"messages": messages} for messages in chunk)
        else:
            yield from task.bodies_of(chunk)


def read_answers(task: Task[Any, Any, Any], response: Any) -> Iterator[Any]:
    """The answers in a response of the service."""
    if isinstance(response, EmbeddingList):
        yield from (EmbeddingVector(vector=unpack_float32(str(one.embedding))) for one in response.data)
    elif isinstance(response, Completion | ChatCompletion):
        yield from response.choices
    else:
        yield from task.answers_in(response)


def unpack_float32(packed: str) -> tuple[float, ...]:
    data = base64.b64decode(packed)
    return struct.unpack(f"<{len(data) // 4}f", data)
