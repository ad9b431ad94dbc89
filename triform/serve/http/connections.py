"""Connections with bounded patience and bounded work: a client that sends no whole request, does not read, or sends in
tiny pieces is cut off, and a refusal reaches its client.

uvicorn's own protocol waits for ever for a first request and for a slow reader, and parses all that one read brought
before others have a turn; this is that protocol with a clock, small reads and a bounded parser. What is no HTTP at all
is refused in the API's shape.
"""

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from triform.serve.http.bounded_parser import BoundedConnection
from triform.serve.http.http_errors import Refusal, unavailable
from triform.serve.http.limits import Limits

LOOKS = 4  # at a connection while its patience lasts
READ_BYTES = 2048  # parsed at once: the event loop turns to other connections in between
DISCARD_BYTES = 2**18  # read at once where nothing is parsed any more
LINGER_SECONDS = 2.0  # for a refused client to read why, while what it still sends is thrown away

_discarded = bytearray(DISCARD_BYTES)  # written by all, read by none


class Watched(H11Protocol, asyncio.BufferedProtocol):
    """`limits` is set by `watched`, which makes the class that a server is given."""

    limits: Limits
    conn: BoundedConnection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.conn = BoundedConnection(self.limits)
        self._buffer = bytearray(READ_BYTES)
        self._lingers, self._wire = False, transport
        super().connection_made(LingeringTransport(transport, self))  # type: ignore[arg-type]
        self._idle = self._stuck = self.loop.time()
        self._before = 0  # bytes that had been sent and not read when the clock last looked
        self._clock: asyncio.TimerHandle | None = self._later()
        if len(self.connections) > self.limits.connections:
            self._make_place()

    def _make_place(self) -> None:
        """The connection that has been idle longest goes; where all others are being answered, this one does."""
        others: list[Any] = [one for one in self.connections if one is not self]
        idle = [one for one in others if not one.busy]
        if idle:
            min(idle, key=lambda one: one.idle_since).transport.abort()
        else:
            self._refuse(unavailable("busy"), status=503)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        super().connection_lost(exc)

    # --- the clock --------------------------------------------------------------------------------------------------

    def _later(self) -> asyncio.TimerHandle:
        return self.loop.call_later(self.limits.idle_seconds / LOOKS, self._look)

    def _look(self) -> None:
        """Idle: no request is being answered. Stuck: more has been sent than is read. Slow reading is neither."""
        now, unread = self.loop.time(), self._unread()
        reads, self._before = unread < self._before, unread
        if reads or self.busy:
            self._idle = now
        if reads or not self.flow.write_paused:
            self._stuck = now
        if now - min(self._idle, self._stuck) >= self.limits.idle_seconds:
            self._cut()
        else:
            self._clock = self._later()

    def on_response_complete(self) -> None:
        """A short request may begin and end between two looks."""
        self._idle = self.loop.time()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Closed while there is more to read, a connection would stay in the kernel: our clock ends it then."""
        if not self._unread():
            super().timeout_keep_alive_handler()

    def resume_writing(self) -> None:
        """All but a little was read, though as much may wait again at the next look."""
        self._stuck = self.loop.time()
        super().resume_writing()

    @property
    def busy(self) -> bool:
        """A request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def idle_since(self) -> float:
        return self._idle

    def _unread(self) -> int:
        """Bytes sent that the client's machine has not taken: here, and in the kernel where it tells."""
        held = bytearray(4)
        with suppress(OSError, ImportError):  # Windows does not tell
            from fcntl import ioctl
            from termios import TIOCOUTQ

            ioctl(self.transport.get_extra_info("socket").fileno(), TIOCOUTQ, held)
        return self.transport.get_write_buffer_size() + struct.unpack("i", held)[0]

    def _cut(self) -> None:
        """With a reset where there is more to send: what the kernel holds for one who does not read goes too."""
        if self._unread():
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
        """Close, but so that an answer arrives: closed with bytes unread, the kernel would reset the connection."""
        if self._lingers or self._wire.is_closing():
            return
        self._lingers = True
        self._wire.write_eof()
        self.flow.resume_reading()
        if self._clock is not None:
            self._clock.cancel()
        self._clock = self.loop.call_later(LINGER_SECONDS, self._wire.abort)

    def handle_events(self) -> None:
        """uvicorn stops reading where something stands behind a request: it would not see that its client hangs up."""
        super().handle_events()
        if self.busy and self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            if len(self.conn.trailing_data[0]) > self.limits.header_bytes:
                self._cut()
            else:
                self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        fault = self.conn.fault or Refusal("this is not HTTP as it should be, or its headers are too large")
        self._refuse(fault, status=fault.status)

    def _refuse(self, fault: Refusal, *, status: int) -> None:
        """Whoever has part of an answer already can be told nothing more."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return self._cut()
        fault.status = status
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        answer = h11.Response(status_code=status, headers=headers, reason=b"")
        for event in (answer, h11.Data(data=fault.body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        if self.busy:  # by someone who now need not
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        return self.linger()


class LingeringTransport:
    """A connection's transport; closed within a request, it lingers. uvicorn closes connections in several places."""

    def __init__(self, wire: asyncio.Transport, protocol: Watched) -> None:
        self.wire, self._protocol = wire, protocol

    def close(self) -> None:
        if self._protocol.conn.their_state is h11.SEND_BODY:
            self._protocol.linger()
        else:
            self.wire.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wire, name)


def watched(limits: Limits) -> type[Watched]:
    made: Any = type("WatchedProtocol", (Watched,), {"limits": limits})
    return made
