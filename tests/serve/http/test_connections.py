"""Connections with bounded patience, by a clock that the test turns: who is cut off, and who is not."""

import asyncio
import io
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from served_models import run
from uvicorn.server import ServerState

from triform.serve.http.bounded_parser import MAX_PIECES
from triform.serve.http.connections import (
    CHECKS_PER_TIMEOUT,
    DISCARD_BYTES,
    LINGER_SECONDS,
    READ_BYTES,
    BoundedProtocol,
    make_protocol,
)
from triform.serve.http.limits import Limits
from triform.serve.http.log import Log

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
LIMITS = Limits(idle_seconds=CHECKS_PER_TIMEOUT, header_bytes=100)  # one look a second
FEW = Limits(idle_seconds=CHECKS_PER_TIMEOUT, connections=2)


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
        self.ended = False

    def write(self, data: Any) -> None:
        self.sent += data

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def write_eof(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


@contextmanager
def connected(app: Any) -> Iterator[tuple[BoundedProtocol, Transport, Clock]]:
    config = uvicorn.Config(app, http=make_protocol(LIMITS), log_config=None, h11_max_incomplete_event_size=100)
    config.load()
    config.timeout_keep_alive = 1000  # uvicorn's own clock is not what is tested
    clock, (one, other) = Clock(), socket.socketpair()
    with one, other:
        protocol = make_protocol(LIMITS)(config=config, server_state=ServerState(), app_state={}, _loop=clock)  # type: ignore
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
            for _ in range(3 * CHECKS_PER_TIMEOUT):
                clock.turn(1)
                protocol.data_received(GET)
                await turns()
                assert protocol.cycle.response_complete
            assert not transport.aborted
            clock.turn(CHECKS_PER_TIMEOUT + 1)
            assert transport.aborted

    run(ask())


def test_who_sends_nothing_is_cut_off() -> None:
    async def ask() -> None:
        with connected(App()) as (protocol, transport, clock):
            clock.turn(CHECKS_PER_TIMEOUT - 1)
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
            for _ in range(3 * CHECKS_PER_TIMEOUT):
                transport.waiting -= 1
                clock.turn(1)
            assert not transport.aborted
            clock.turn(CHECKS_PER_TIMEOUT)
            assert transport.aborted

    run(ask())


def test_a_buffer_that_was_emptied_and_filled_again_is_no_stalled_one() -> None:
    """At every look as much waits, and in between nearly all of it was read."""

    async def ask() -> None:
        with connected(App()) as (protocol, transport, clock):
            protocol.data_received(GET)
            transport.waiting = 10**6
            for _ in range(3 * CHECKS_PER_TIMEOUT):
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


CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


def test_rubbish_is_refused_and_the_refusal_arrives() -> None:
    """The sending side is closed at once; what still comes is read and thrown away, else the kernel resets the line."""

    async def ask() -> None:
        with connected(hasty) as (protocol, transport, clock):
            protocol.data_received(b"\x16\x03\x01\r\n\r\n")
            assert b"invalid_request_error" in transport.sent
            assert (transport.ended, transport.closed, transport.reads) == (True, False, True)
            assert len(protocol.get_buffer(-1)) == DISCARD_BYTES
            protocol.buffer_updated(10)
            clock.turn(int(LINGER_SECONDS))
            assert transport.aborted

    run(ask())


def test_an_answer_before_the_whole_request_ends_the_connection() -> None:
    """Nothing that still comes is parsed."""

    async def ask() -> None:
        with connected(hasty) as (protocol, transport, _):
            protocol.data_received(CHUNKED)
            await turns()
            assert transport.sent.startswith(b"HTTP/1.1 413")
            assert b"connection: close" in transport.sent.lower()
            assert (transport.ended, transport.closed) == (True, False)
            sent = transport.sent
            protocol.get_buffer(-1)[:9] = b"rubbish\r\n"
            protocol.buffer_updated(9)
            assert transport.sent == sent

    run(ask())


SMUGGLED = CHUNKED.replace(b"\r\n\r\n", b"\r\ncontent-length: 5\r\n\r\n")


@pytest.mark.parametrize(
    ("sent", "status", "says"),
    [
        (CHUNKED + b"1\r\nx\r\n" * (MAX_PIECES + 1), b"413", b"has more than 2,048 pieces"),
        (CHUNKED + b"FFFFFFFFF\r\n", b"413", b"the chunk has 68,719,476,735 bytes"),
        (SMUGGLED + b"0\r\n\r\n", b"400", b"not both"),
    ],
    ids=["tiny chunks", "a huge chunk", "two lengths"],
)
def test_bodies_are_bounded_while_they_come(sent: bytes, status: bytes, says: bytes) -> None:
    async def ask() -> None:
        app = App()
        with connected(app) as (protocol, transport, _):
            for start in range(0, len(sent), READ_BYTES):
                protocol.buffer_updated(fill(protocol.get_buffer(-1), sent[start : start + READ_BYTES]))
            await turns()
            assert transport.sent.startswith(b"HTTP/1.1 " + status)
            assert says in transport.sent
            assert transport.ended

    run(ask())


def fill(buffer: bytearray, data: bytes) -> int:
    buffer[: len(data)] = data
    return len(data)


def test_a_body_in_few_pieces_is_read() -> None:
    async def ask() -> None:
        app = App(bodies=(b"this",))
        app.may.set()
        with connected(app) as (protocol, transport, _):
            protocol.data_received(CHUNKED + b"1\r\nx\r\n" * MAX_PIECES + b"0\r\n\r\n")
            await turns()
            assert b"this" in transport.sent

    run(ask())


def test_the_absolute_form_names_path_and_host() -> None:
    """RFC 9112, 3.2.2: it must be accepted, and its host is the one that is checked."""
    seen: list[Any] = []

    async def note(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["path"], scope["query_string"], dict(scope["headers"])[b"host"]))
        await hasty(scope, receive, send)

    async def ask() -> None:
        with connected(note) as (protocol, _, _clock):
            protocol.data_received(b"GET http://example.org:80/a?b=c HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await turns()
            protocol.data_received(b"GET http://example.org HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await turns()

    run(ask())
    assert seen == [("/a", b"b=c", b"example.org:80"), ("/", b"", b"example.org")]


def test_the_longest_idle_connection_makes_place() -> None:
    """A new connection replaces one that only waits; where all are being answered, it is refused, and hears so."""

    async def ask() -> None:
        app = App()
        with connected(app) as (first, one, clock), connected(app) as (second, two, _):
            second.connections.add(first)
            first.connections.add(second)
            second.loop = clock
            second._idle += 1
            for answering, gone in ((False, (True, False)), (True, (False, False))):
                one.aborted = two.aborted = False
                if answering:
                    first.data_received(GET)
                    second.data_received(GET)
                config = uvicorn.Config(app, http=make_protocol(FEW), log_config=None)
                state = ServerState()
                state.connections.update({first, second})
                protocol = make_protocol(FEW)(config=config, server_state=state, app_state={}, _loop=clock)  # type: ignore
                transport = Transport(one.get_extra_info("socket"))
                protocol.connection_made(transport)
                assert (one.aborted, two.aborted) == gone
                assert transport.ended is answering
                assert (b"HTTP/1.1 503" in transport.sent) is answering
                protocol.connection_lost(None)

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
            assert transport.ended
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
