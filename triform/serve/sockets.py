"""Connections with bounded patience: a client that sends no whole request, or does not read, is cut off.

uvicorn's own protocol waits for ever for a first request and for a slow reader; this is that protocol with a clock.
What is no HTTP at all is refused in the API's shape.
"""

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from triform.serve.faults import Refusal, unavailable
from triform.serve.limits import Limits

LOOKS = 4  # at a connection while its patience lasts


class Watched(H11Protocol):
    """`limits` is set by `watched`, which makes the class that a server is given."""

    limits: Limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._idle = self._stuck = self.loop.time()
        self._before = 0  # bytes that had been sent and not read when the clock last looked
        self._clock: asyncio.TimerHandle | None = self._later()
        if len(self.connections) > self.limits.connections:
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
        if reads or self._answering:
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
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

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

    def handle_events(self) -> None:
        """uvicorn stops reading where something stands behind a request: it would not see that its client hangs up."""
        super().handle_events()
        if self._answering and self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            if len(self.conn.trailing_data[0]) > self.limits.header_bytes:
                self._cut()
            else:
                self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        self._refuse(Refusal("this is not HTTP as it should be, or its headers are too large"), status=400)

    def _refuse(self, fault: Refusal, *, status: int) -> None:
        """Whoever has part of an answer already can be told nothing more."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return self._cut()
        fault.status = status
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        answer = h11.Response(status_code=status, headers=headers, reason=b"")
        for event in (answer, h11.Data(data=fault.body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        if self._answering:  # by someone who now need not
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        return self.transport.close()


def watched(limits: Limits) -> type[Watched]:
    made: Any = type("WatchedProtocol", (Watched,), {"limits": limits})
    return made
