"""Lanes: bounded work beside the event loop, a line for each model and each kind of work."""

import asyncio
import io
import json
import os
import subprocess
import sys
import threading
from typing import Any

import pytest
from served_callers import Caller, Gate, standing, until
from served_models import decoder, run, serving

from triform.serve.http.http_errors import RequestError
from triform.serve.http.log import Log, redirect_stderr
from triform.serve.worker.bounded_queues import BoundedQueue
from triform.text.chat_template import ChatTemplate
from triform.text.tokenizer import Tokenizer

TALK: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}


def test_a_lane_is_bounded_and_a_client_that_leaves_frees_its_place() -> None:
    async def fill() -> None:
        lane, may = BoundedQueue(threads=1, most=3, wait_seconds=10), threading.Event()
        first = asyncio.ensure_future(lane.run(may.wait))
        others = [asyncio.ensure_future(lane.run(lambda: 7)) for _ in range(2)]
        await until(lambda: lane.pending == 3)
        with pytest.raises(RequestError) as refused:
            await lane.run(lambda: 7)
        assert refused.value.status == 429
        others[0].cancel()
        await until(lambda: lane.pending == 2)
        first.cancel()  # its thread goes on: it keeps the place until it ends
        await until(first.done)
        assert lane.pending == 2
        may.set()
        assert await others[1] == 7
        await until(lambda: lane.pending == 0)

    run(fill())


def test_a_lane_refuses_a_wait_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """By how long the last ones took: here an hour."""
    times = iter([0.0, 3600.0, 3600.0, 3600.0, 3600.0])
    monkeypatch.setattr("triform.serve.worker.bounded_queues.monotonic", lambda: next(times))

    async def fill() -> None:
        lane, may = BoundedQueue(threads=1, most=9, wait_seconds=10), threading.Event()
        await lane.run(lambda: 7)
        await until(lambda: lane.pending == 0)
        running = asyncio.ensure_future(lane.run(may.wait))  # an empty lane takes anything
        await until(lambda: lane.pending == 1)
        with pytest.raises(RequestError) as refused:
            await lane.run(lambda: 7)
        assert int(refused.value.headers["retry-after"]) > 10
        may.set()
        await running

    run(fill())


def test_a_template_that_hangs_holds_up_its_own_model_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """More conversations than any pool has threads wait for the bad one; the good one is answered meanwhile."""
    held = ChatTemplate("held", special={})
    render, may = ChatTemplate.render, threading.Event()

    def hanging(self: ChatTemplate, *given: Any, **named: Any) -> str:
        if self is held:
            may.wait()
        return render(self, *given, **named)

    monkeypatch.setattr(ChatTemplate, "render", hanging)
    bad, good = decoder().replace(template=held), decoder()

    async def talk() -> None:
        async with standing({"bad": bad, "good": good}) as (service, made):
            waiting = [Caller(made, TALK | {"model": "bad"}, path="/v1/chat/completions") for _ in range(40)]
            await until(lambda: service.models["bad"].queues.templates.pending == 40)
            caller = Caller(made, TALK | {"model": "good"}, path="/v1/chat/completions")
            await caller.task
            assert caller.sent[0]["status"] == 200
            may.set()
            for one in waiting:
                await one.task

    run(talk())


def test_no_text_is_cut_into_tokens_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short: a strange tokenizer's pattern may take seconds for 21 characters."""
    gate = Gate(monkeypatch, Tokenizer, "ids_many")

    async def ask() -> None:
        async with serving() as (_, client):
            gate.open.clear()
            asked = asyncio.ensure_future(client.post("/v1/completions", json={"model": "cat", "prompt": "the cat"}))
            await until(lambda: gate.at)
            assert (await client.get("/health")).status_code == 200
            gate.open.set()
            assert (await asked).status_code == 200

    run(ask())


PANICS = """
import os, sys
from triform.serve.http.log import Log, redirect_stderr
log = Log()
with redirect_stderr(log):
    os.write(2, b"thread '<unnamed>' panicked at src/lib.rs:3:5:\\nSECRET text\\nnote: run with RUST_BACKTRACE=1\\n")
    log("after")
print("behind", file=sys.stderr)
"""


def test_a_panic_is_one_line_of_the_log_without_what_it_was_given() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", PANICS], env=environment, capture_output=True, text=True, check=True)
    *lines, last = done.stderr.splitlines()
    events = {line["event"]: line for line in map(json.loads, lines)}
    assert set(events) == {"panic", "after"}
    assert events["panic"]["at"] == "src/lib.rs:3:5:"
    assert "SECRET" not in done.stderr
    assert last == "behind"


def test_other_lines_of_libraries_are_told(capfd: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    log = Log(out)
    with redirect_stderr(log):
        os.write(2, b"[W] a warning of a C++ library\n")
    (line,) = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert (line["event"], line["text"]) == ("stderr", "[W] a warning of a C++ library\n")
