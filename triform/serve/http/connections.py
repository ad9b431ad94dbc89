"""uvicorn's HTTP protocol with timeouts and bounded work per connection.

uvicorn waits for ever for a first request and for a client that does not read, and parses a whole read before other
connections have a turn. Here such clients are disconnected, reads are small, the parser is bounded, error responses
reach their clients, and input that is not HTTP gets an error in the API's shape.
"""

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from triform.serve.http.bounded_parser import BoundedConnection
from triform.serve.http.http_errors import RequestError, unavailable_error
from triform.serve.http.limits import Limits

CHECKS_PER_TIMEOUT = 4
READ_BYTES = 2048  # parsed at once: other connections have their turn in between
DISCARD_BYTES = 2**18  # read at once when nothing is parsed any more
LINGER_SECONDS = 2.0  # for a refused client to read the error, while what it still sends is discarded

_discarded = bytearray(DISCARD_BYTES)  # shared, never read


class BoundedProtocol(H11Protocol, asyncio.BufferedProtocol):
    """`limits` is set by `make_protocol`."""

    limits: Limits
    conn: BoundedConnection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.conn = BoundedConnection(self.limits)
        self._buffer = bytearray(READ_BYTES)
        self._lingers, self._wire = False, transport
        super().connection_made(LingeringTransport(transport, self))  # type: ignore[arg-type]
        self._idle = self._stuck = self.loop.time()
        self._before = 0  # unread bytes at the last check
        self._clock: asyncio.TimerHandle | None = self._schedule_check()
        if len(self.connections) > self.limits.connections:
            self._free_connection()

    def _free_connection(self) -> None:
        """Closes the connection that has been idle longest; if all others are busy, refuses this one."""
        others: list[Any] = [other for other in self.connections if other is not self]
        if idle := [other for other in others if not other.busy]:
            min(idle, key=lambda other: other.idle_since).transport.abort()
        else:
            self._refuse(unavailable_error("busy"), status=503)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        super().connection_lost(exc)

    # --- the clock --------------------------------------------------------------------------------------------------

    def _schedule_check(self) -> asyncio.TimerHandle:
        return self.loop.call_later(self.limits.idle_seconds / CHECKS_PER_TIMEOUT, self._check_timeouts)

    def _check_timeouts(self) -> None:
        """Idle: no request is running. Stuck: the client reads nothing of what was sent. Slow reading is neither."""
        now, unread = self.loop.time(), self._count_unread()
        reads, self._before = unread < self._before, unread
        if reads or self.busy:
            self._idle = now
        if reads or not self.flow.write_paused:
            self._stuck = now
        if now - min(self._idle, self._stuck) >= self.limits.idle_seconds:
            self._disconnect()
        else:
            self._clock = self._schedule_check()

    def on_response_complete(self) -> None:
        """A short request may begin and end between two checks."""
        self._idle = self.loop.time()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """A connection closed with unread data would stay in the kernel; our timer ends it."""
        if not self._count_unread():
            super().timeout_keep_alive_handler()

    def resume_writing(self) -> None:
        """The client has read almost everything, though as much may wait again at the next check."""
        self._stuck = self.loop.time()
        super().resume_writing()

    @property
    def busy(self) -> bool:
        """A request is running."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def idle_since(self) -> float:
        return self._idle

    def _count_unread(self) -> int:
        """Bytes that the client has not received: in the transport's buffer and, outside Windows, in the kernel's."""
        held = bytearray(4)
        with suppress(OSError, ImportError):  # Windows has no TIOCOUTQ
            from fcntl import ioctl
            from termios import TIOCOUTQ

            ioctl(self.transport.get_extra_info("socket").fileno(), TIOCOUTQ, held)
        return self.transport.get_write_buffer_size() + struct.unpack("i", held)[0]

    def _disconnect(self) -> None:
        """With a reset if data is unsent, so that the kernel drops its buffer too."""
        if self._count_unread():
            made = self.transport.get_extra_info("socket")
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    # --- what is sent -----------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> bytearray:
        return _discarded if self._lingers else self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._lingers:
            self.data_received(bytes(self._buffer[:nbytes]))

    def linger(self) -> None:
        """Closes so that the response arrives: with unread input, the kernel would reset the connection."""
        if self._lingers or self._wire.is_closing():
            return
        self._lingers = True
        self._wire.write_eof()
        self.flow.resume_reading()
        if self._clock is not None:
            self._clock.cancel()
        self._clock = self.loop.call_later(LINGER_SECONDS, self._wire.abort)

    def handle_events(self) -> None:
        """Continues reading behind a request, which uvicorn does not: it would miss a disconnect."""
        super().handle_events()
        if self.busy and self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            if len(self.conn.trailing_data[0]) > self.limits.header_bytes:
                self._disconnect()
            else:
                self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        fault = self.conn.fault or RequestError("this is not valid HTTP, or its headers are too large")
        self._refuse(fault, status=fault.status)

    def _refuse(self, fault: RequestError, *, status: int) -> None:
        """An error response, if no part of another response was sent."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return self._disconnect()
        fault.status = status
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        answer = h11.Response(status_code=status, headers=headers, reason=b"")
        for event in (answer, h11.Data(data=fault.body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        if self.busy:  # cancels the running request
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        return self.linger()


class LingeringTransport:
    """A transport that lingers when it is closed within a request; uvicorn closes it in several places."""

    def __init__(self, wire: asyncio.Transport, protocol: BoundedProtocol) -> None:
        self.wire, self._protocol = wire, protocol

    def close(self) -> None:
        if self._protocol.conn.their_state is h11.SEND_BODY:
            self._protocol.linger()
        else:
            self.wire.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wire, name)


def make_protocol(limits: Limits) -> type[BoundedProtocol]:
    made: Any = type("WatchedProtocol", (BoundedProtocol,), {"limits": limits})
    return made
