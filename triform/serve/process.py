"""A service as a process: its socket, signals and exit codes; uvicorn does the rest.

SIGTERM or Ctrl-C: not ready at once, running requests may end within the grace time, exit code 0. A worker that is
lost: exit code 1.
"""

import asyncio
import logging
import socket
from types import FrameType

import uvicorn

from triform.errors import TriformError
from triform.serve.http.app import make_app
from triform.serve.http.auth import Access
from triform.serve.http.connections import make_protocol
from triform.serve.http.log import LogForwarder, redirect_stderr
from triform.serve.worker.service import Service


def run_service(service: Service, *, access: Access, listening: socket.socket) -> int:
    """Serves until a signal or the loss of a worker; returns the process's exit code."""
    limits = service.limits
    config = uvicorn.Config(
        make_app(service, access=access),
        http=make_protocol(limits),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=limits.header_bytes,
        timeout_keep_alive=int(limits.idle_seconds),
        timeout_graceful_shutdown=max(1, int(limits.idle_seconds)),
    )
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [LogForwarder(service.log)], False
    server = ServiceServer(config, service)
    with redirect_stderr(service.log):
        server.run(sockets=[listening])
    service.log("stopped", code=server.code)
    return server.code


def bind_socket(host: str, port: int) -> socket.socket:
    """A bound socket, taken before anything is loaded; it does not listen yet."""
    made = None
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        if made is not None:
            made.close()
        problem = f"cannot listen on {host}:{port}: {error.strerror or error}"
        raise TriformError(f"{problem}; give another --host or --port") from error
    return made


class ServiceServer(uvicorn.Server):
    """uvicorn, ended by a signal or by the loss of a worker."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service, self.code = service, 0
        self._signalled = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        for bound_socket in sockets or ():
            host, port, *_ = bound_socket.getsockname()
            self.service.log("listening", host=host, port=port, models=list(self.service.models))
        self._end = asyncio.ensure_future(self._wait_for_end())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal starts a graceful shutdown, the second ends at once."""
        if self.service.stopping:
            self.should_exit = self.force_exit = True
        self.service.stopping = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._signalled.set)

    async def _wait_for_end(self) -> None:
        ends = [asyncio.ensure_future(end) for end in (self.service.watch_workers(), self._signalled.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        self.code = 1 if self.service.lost.is_set() else 0
        await self.service.drain(grace=0.0 if self.code else self.service.limits.grace_seconds)
        for task in ends:
            task.cancel()
        self.should_exit = True
