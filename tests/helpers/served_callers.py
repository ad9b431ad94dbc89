"""Clients driven by hand, and gates before steps and passes: what happens when is up to the test, not to a clock."""

import asyncio
import io
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from served_models import decoder

from triform.generate.engine import Engine
from triform.model import Model
from triform.serve.http.app import make_app
from triform.serve.http.limits import Limits
from triform.serve.http.log import Log
from triform.serve.worker.service import Service

LONG: dict[str, Any] = {"model": "cat", "prompt": "the cat", "max_tokens": 100, "ignore_eos": True}


class Gate:
    """A method that waits until it is let through; `passed` counts, `at` is how many calls have come to the gate."""

    def __init__(self, patch: pytest.MonkeyPatch, of: Any = Engine, name: str = "step") -> None:
        self.open, self.passed, self.at = threading.Event(), 0, 0
        self.open.set()
        original = getattr(of, name)

        def gated(*given: Any, **named: Any) -> Any:
            self.at += 1
            self.open.wait()
            self.passed += 1
            return original(*given, **named)

        patch.setattr(of, name, gated)


async def until(holds: Any) -> None:
    """The loop turns until it holds."""
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0)


class Caller:
    """An ASGI client that may hang up whenever it likes."""

    def __init__(self, made: Any, body: dict[str, Any], *, path: str = "/v1/completions") -> None:
        self.body, self.sent = json.dumps(body).encode(), []
        self.asked, self.gone = False, asyncio.Event()
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
            "query_string": b"", "headers": headers, "http_version": "1.1", "scheme": "http", "root_path": "",
        }  # fmt: skip
        self.task = asyncio.ensure_future(made(scope, self.receive, self.send))

    async def receive(self) -> dict[str, Any]:
        if not self.asked:
            self.asked = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def hang_up(self) -> None:
        self.gone.set()
        await self.task


@asynccontextmanager
async def standing(models: dict[str, Model] | None = None, **limits: Any) -> AsyncIterator[tuple[Service, Any]]:
    """A service and its application, for callers; a gate that is shut is no stalled worker here."""
    service = Service(models or {"cat": decoder()}, limits=Limits(stalled_seconds=60, **limits), log=Log(io.StringIO()))
    made = make_app(service)
    async with made.router.lifespan_context(made):
        yield service, made
