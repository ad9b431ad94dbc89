"""Connections with bounded patience: a client that sends no whole request, or does not read, is cut off.

uvicorn's own protocol waits for ever for a first request and for a slow reader; this is that protocol with a clock.
What is no HTTP at all is refused in the API's shape.
"""

import asyncio
import socket
import struct
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
        self._clock: asyncio.TimerHandle | None = self._later()
        if len(self.connections) > self.limits.connections:
            self._refuse(unavailable("busy"), status=503)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        super().connection_lost(exc)

    def _later(self) -> asyncio.TimerHandle:
        return self.loop.call_later(self.limits.idle_seconds / LOOKS, self._look)

    def _look(self) -> None:
        """Idle: no request is being answered. Stuck: more has been sent than is read."""
        now = self.loop.time()
        if self.cycle is not None and not self.cycle.response_complete:
            self._idle = now
        if not self.flow.write_paused:
            self._stuck = now
        if now - min(self._idle, self._stuck) >= self.limits.idle_seconds:
            self._cut()
        else:
            self._clock = self._later()

    def _cut(self) -> None:
        """With a reset where there is more to send: what the kernel holds for one who does not read goes too."""
        if self.transport.get_write_buffer_size():
            made = self.transport.get_extra_info("socket")
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        self._refuse(Refusal("this is not HTTP as it should be, or its headers are too large"), status=400)

    def _refuse(self, fault: Refusal, *, status: int) -> None:
        fault.status = status
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        answer = h11.Response(status_code=status, headers=headers, reason=b"")
        for event in (answer, h11.Data(data=fault.body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def watched(limits: Limits) -> type[Watched]:
    made: Any = type("WatchedProtocol", (Watched,), {"limits": limits})
    return made
