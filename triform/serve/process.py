"""A service as a process: it listens, and it ends as it is told to.

SIGTERM or Ctrl-C: not ready at once, running requests may end within the grace time, exit code 0. A worker that is
lost: exit code 1. Owns signals and exit codes; everything else is handed to uvicorn.
"""

import asyncio
import logging
import socket
from types import FrameType

import uvicorn

from triform.errors import TriformError
from triform.serve.http.app import app
from triform.serve.http.auth import Access
from triform.serve.http.connections import watched
from triform.serve.http.log import Forward, logged_stderr
from triform.serve.worker.service import Service


def run(service: Service, *, access: Access, listening: socket.socket) -> int:
    """Serves until it is told to stop; the process's exit code."""
    limits = service.limits
    config = uvicorn.Config(
        app(service, access=access),
        http=watched(limits),
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
        logger.handlers, logger.propagate = [Forward(service.log)], False
    server = Server(config, service)
    with logged_stderr(service.log):
        server.run(sockets=[listening])
    service.log("stopped", code=server.code)
    return server.code


def bound(host: str, port: int) -> socket.socket:
    """The place to listen, taken before anything is loaded; nobody gets in yet."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        raise cannot_listen(host, port, error) from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        raise cannot_listen(host, port, error) from error
    return made


def cannot_listen(host: str, port: int, error: OSError) -> TriformError:
    return TriformError(f"cannot listen on {host}:{port}: {error.strerror or error}; give another --host or --port")


class Server(uvicorn.Server):
    """uvicorn, but what ends it is the service's own life."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service, self.code = service, 0
        self._told = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        for one in sockets or ():
            host, port, *_ = one.getsockname()
            self.service.log("listening", host=host, port=port, models=list(self.service.models))
        self._life = asyncio.ensure_future(self._live())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal asks, the second does not wait."""
        if self.service.stopping:
            self.should_exit = self.force_exit = True
        self.service.stopping = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._told.set)

    async def _live(self) -> None:
        lost = asyncio.ensure_future(self.service.watch())
        told = asyncio.ensure_future(self._told.wait())
        await asyncio.wait({lost, told}, return_when=asyncio.FIRST_COMPLETED)
        self.code = 1 if self.service.lost.is_set() else 0
        await self.service.finish(grace=0.0 if self.code else self.service.limits.grace_seconds)
        for task in (lost, told):
            task.cancel()
        self.should_exit = True
