"""A small client for a running service: what `triform … --url` uses. Standard library only.

Asks the same routes as anybody else and gives back the tasks' own answers. Keeps out of the way of a busy service: it
waits as long as it is told to.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import msgspec

from triform.errors import TriformError
from triform.serve.answers import EmbeddingList
from triform.serve.routes import ROUTES
from triform.tasks.embed import Embedded

KEY = "TRIFORM_API_KEY"
TOGETHER = 64  # texts in one request
PATIENCE = 10  # times that a busy service is asked again
SECONDS = 300.0


class Client:
    """`key` is for services that ask for one; it is taken from TRIFORM_API_KEY where none is given."""

    def __init__(self, url: str, *, key: str | None = None) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise TriformError(f"--url {url} is no address of a service; use e.g. http://127.0.0.1:8000")
        self.url = url.rstrip("/").removesuffix("/v1")
        self.key = key or os.environ.get(KEY)

    # --- tasks ------------------------------------------------------------------------------------------------------

    def run(self, task: str, questions: Sequence[Any], *, model: str, **settings: Any) -> Iterator[Any]:
        """The answers that `task.run` would give, from there."""
        kind = next(route.gives for route in ROUTES if route.task == task)
        for path, body in bodies(task, questions):
            found = msgspec.convert(self.post(path, {"model": model} | body | settings), kind)
            if isinstance(found, EmbeddingList):
                yield from (Embedded(vector=tuple(map(float, one.embedding))) for one in found.data)
            else:
                yield from found.answers

    # --- writing ----------------------------------------------------------------------------------------------------

    def choices(self, path: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.post(path, body)["choices"]
        return found

    def pieces(self, path: str, body: Mapping[str, Any]) -> Iterator[str]:
        """Text as it comes, of one choice."""
        with self._open(path, dict(body) | {"stream": True}) as answer:
            for line in answer:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    raise TriformError(f"{self.url}: {event['error']['message']}")
                for choice in event["choices"]:
                    yield choice["text"] if "text" in choice else choice["delta"].get("content") or ""

    # --- asking -----------------------------------------------------------------------------------------------------

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with self._open(path, body) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _open(self, path: str, body: Mapping[str, Any]) -> Any:
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {self.key}"} if self.key else {})
        for left in reversed(range(PATIENCE)):
            asked = Request(self.url + path, data=msgspec.json.encode(body), headers=headers)
            try:
                return urlopen(asked, timeout=SECONDS)
            except HTTPError as error:
                wait = error.headers.get("retry-after", "")
                if error.code != 429 or not left or not wait.isdecimal():
                    raise TriformError(f"{self.url}: {self._said(error)}") from None
                error.close()
                time.sleep(int(wait))
            except (URLError, OSError) as error:
                reason = getattr(error, "reason", error)
                raise TriformError(f"{self.url} does not answer: {reason}; is `triform serve` running there?") from None
        raise TriformError(f"{self.url} is busy")

    def _said(self, error: HTTPError) -> str:
        with error:
            try:
                message: str = json.load(error)["error"]["message"]
            except (ValueError, KeyError, TypeError):
                return f"{error.code} {error.reason}"
        return message


def bodies(task: str, questions: Iterable[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Requests that together ask every question, in their order."""
    for _, some in groupby(enumerate(questions), key=lambda one: one[0] // TOGETHER):
        texts = [question for _, question in some]
        if task == "embed":
            yield "/v1/embeddings", {"input": texts}
        elif task == "answer":
            for context, each in groupby(texts, key=lambda asked: asked.context):
                yield "/v1/answer", {"context": context, "question": [one.question for one in each]}
        else:
            yield f"/v1/{task}", {"text": texts}
