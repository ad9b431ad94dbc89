"""Connections with bounded patience, by a clock that the test turns: who is cut off, and who is not."""

import asyncio
import io
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h11
import pytest
import uvicorn
from served_models import run
from uvicorn.server import ServerState

from triform.serve.limits import Limits
from triform.serve.log import Log
from triform.serve.sockets import LOOKS, Watched, watched

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
LIMITS = Limits(idle_seconds=LOOKS, header_bytes=100)  # one look a second


class Clock:
    """An event loop's time and timers; tasks are the real one's."""

    def __init__(self) -> None:
        self.now, self.timers = 0.0, []
        self.create_task = asyncio.get_running_loop().create_task

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, does: Any) -> Any:
        timer = Timer(self.now + seconds, does)
        self.timers.append(timer)
        return timer

    def turn(self, seconds: int) -> None:
        """Look after look."""
        for _ in range(seconds):
            self.now += 1
            due = [timer for timer in self.timers if timer.at <= self.now and not timer.cancelled]
            self.timers = [timer for timer in self.timers if timer.at > self.now]
            for timer in due:
                timer.does()


class Timer:
    def __init__(self, at: float, does: Any) -> None:
        self.at, self.does, self.cancelled = at, does, False

    def cancel(self) -> None:
        self.cancelled = True


class Transport(asyncio.Transport):
    """Writes into `sent`; `waiting` bytes of it are not read."""

    def __init__(self, made: socket.socket) -> None:
        super().__init__({"socket": made})
        self.sent, self.waiting, self.aborted, self.closed, self.reads = b"", 0, False, False, True

    def write(self, data: Any) -> None:
        self.sent += data

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


@contextmanager
def connected(app: Any) -> Iterator[tuple[Watched, Transport, Clock]]:
    config = uvicorn.Config(app, http=watched(LIMITS), log_config=None, h11_max_incomplete_event_size=100)
    config.load()
    config.timeout_keep_alive = 1000  # uvicorn's own clock is not what is tested
    clock, (one, other) = Clock(), socket.socketpair()
    with one, other:
        protocol = watched(LIMITS)(config=config, server_state=ServerState(), app_state={}, _loop=clock)  # type: ignore
        transport = Transport(one)
        protocol.connection_made(transport)
        try:
            yield protocol, transport, clock
        finally:
            protocol.connection_lost(None)


class App:
    """Answers when it may, with as many bytes as it is told to; notes whether its client has left."""

    def __init__(self, *, bodies: tuple[bytes, ...] = (b"",)) -> None:
        self.may, self.bodies, self.left = asyncio.Event(), bodies, False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        begun = False
        while (await receive())["type"] == "http.request" and not begun:
            await self.may.wait()
            begun = True
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for body in self.bodies:
                await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        self.left = not begun


async def turns() -> None:
    """Whatever may go on goes on."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_many_short_requests_keep_a_connection() -> None:
    """No request is in flight when the clock looks, yet there is one a second."""

    async def ask() -> None:
        app = App()
        app.may.set()
        with connected(app) as (protocol, transport, clock):
            for _ in range(3 * LOOKS):
                clock.turn(1)
                protocol.data_received(GET)
                await turns()
                assert protocol.cycle.response_complete
            assert not transport.aborted
            clock.turn(LOOKS + 1)
            assert transport.aborted

    run(ask())


def test_who_sends_nothing_is_cut_off() -> None:
    async def ask() -> None:
        with connected(App()) as (protocol, transport, clock):
            clock.turn(LOOKS - 1)
            protocol.data_received(GET[:10])  # part of a request is none
            assert not transport.aborted
            clock.turn(1)
            assert transport.aborted

    run(ask())


@pytest.mark.parametrize("complete", [True, False], ids=["whole", "stream"])
def test_slow_reading_is_reading(complete: bool) -> None:
    """A byte a second is progress, be the answer written to its end or not; none is not."""

    async def ask() -> None:
        app = App()
        if complete:
            app.may.set()
        with connected(app) as (protocol, transport, clock):
            protocol.data_received(GET)
            await turns()
            transport.waiting = 10**6
            protocol.pause_writing()
            clock.turn(1)
            for _ in range(3 * LOOKS):
                transport.waiting -= 1
                clock.turn(1)
            assert not transport.aborted
            clock.turn(LOOKS)
            assert transport.aborted

    run(ask())


def test_a_buffer_that_was_emptied_and_filled_again_is_no_stalled_one() -> None:
    """At every look as much waits, and in between nearly all of it was read."""

    async def ask() -> None:
        with connected(App()) as (protocol, transport, clock):
            protocol.data_received(GET)
            transport.waiting = 10**6
            for _ in range(3 * LOOKS):
                protocol.pause_writing()
                clock.turn(1)
                protocol.resume_writing()
            assert not transport.aborted

    run(ask())


# --- what is sent ---------------------------------------------------------------------------------------------------


def test_who_leaves_behind_a_pipelined_byte_is_missed() -> None:
    """Reading goes on while a request is answered, so that a transport sees its end; but not without bound."""

    async def ask() -> None:
        app = App()
        with connected(app) as (protocol, transport, _):
            protocol.data_received(GET + b"G")
            await turns()
            assert transport.reads
            protocol.data_received(b"x" * 98)
            assert transport.reads
            assert not transport.aborted
            protocol.data_received(b"xx")
            assert transport.aborted

    run(ask())


def test_requests_behind_each_other_are_answered_in_turn() -> None:
    async def ask() -> None:
        app = App(bodies=(b"this",))
        with connected(app) as (protocol, transport, _):
            protocol.data_received(GET * 2)
            app.may.set()
            await turns()
            assert transport.sent.count(b"this") == 2
            assert not transport.aborted

    run(ask())


REFUSES = [
    (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n", b"rubbish\r\n", True),
    (b"", b"\x16\x03\x01\r\n\r\n", False),
]


@pytest.mark.parametrize(("before", "sent", "cut"), REFUSES, ids=["behind an answer", "at once"])
def test_rubbish_never_raises(before: bytes, sent: bytes, cut: bool) -> None:
    """Where an answer was sent before the request was whole, there is no place for another: the line is cut."""

    async def ask() -> None:
        with connected(hasty) as (protocol, transport, _):
            if before:
                protocol.data_received(before)
                await turns()
                assert protocol.conn.our_state is h11.DONE
            protocol.data_received(sent)
            assert transport.aborted is cut
            assert (b"invalid_request_error" in transport.sent) is not cut

    run(ask())


async def hasty(scope: Any, receive: Any, send: Any) -> None:
    """Answers before it has read."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 413, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def test_whoever_was_answering_a_request_that_breaks_hears_that_nobody_waits() -> None:
    async def ask() -> None:
        app = App()
        with connected(app) as (protocol, transport, _):
            protocol.data_received(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
            await turns()
            protocol.data_received(b"rubbish\r\n")
            await turns()
            assert transport.sent.startswith(b"HTTP/1.1 400")
            assert transport.closed
            assert app.left

    run(ask())


def test_logs_are_ascii() -> None:
    """What a terminal or another reader of lines would obey is escaped: DEL, C1 controls, other ends of lines."""
    out = io.StringIO()
    strange = "\x7f\x85\x9b2J\u2028\u2029\x1b é\ud800"
    Log(out)("request", path=strange)
    text = out.getvalue()
    assert text.isascii()
    assert text[:-1].isprintable()
    assert json.loads(text)["path"] == strange
