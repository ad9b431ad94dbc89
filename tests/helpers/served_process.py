"""`triform serve` as a process of its own, spoken to over real sockets."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import Queue
from types import TracebackType
from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

PATIENCE = 60.0
STARTED = "from triform.cli import main; main()"


class Process:
    """Started, listening; its log is read line by line, `wait_for` gives the next line of an event."""

    def __init__(
        self, *arguments: str, code: str = STARTED, flags: Sequence[str] = (), pass_fds: Sequence[int] = ()
    ) -> None:
        command = [sys.executable, *flags, "-c", code]
        self.process = subprocess.Popen(
            [*command, "serve", *arguments, "--port", "0"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"},
            pass_fds=pass_fds,
        )
        self.lines: Queue[dict[str, Any] | None] = Queue()
        self.said: list[str] = []
        self.strange: list[str] = []  # lines since it listens that are no events
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        try:
            self.port = int(self.wait_for("listening")["port"])
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.url = f"http://127.0.0.1:{self.port}"

    def _read(self) -> None:
        listening = False
        for line in self.process.stderr or ():
            self.said.append(line)
            if line.startswith("{"):
                self.lines.put(json.loads(line))
                listening = listening or json.loads(line)["event"] == "listening"
            elif listening:
                self.strange.append(line)
        self.lines.put(None)

    def wait_for(self, event: str, **fields: Any) -> dict[str, Any]:
        while (line := self.lines.get(timeout=PATIENCE)) is not None:
            if line["event"] == event and all(line.get(name) == value for name, value in fields.items()):
                return line
        raise AssertionError("the process ended:\n" + "".join(self.said))

    def client(self, **options: Any) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, timeout=PATIENCE, **options)

    def socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def metric(self, client: httpx2.Client, name: str) -> float:
        families = text_string_to_metric_families(client.get("/metrics").text)
        return sum(one.value for family in families for one in family.samples if one.name == name)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def code(self) -> int:
        return self.process.wait(timeout=PATIENCE)

    def __enter__(self) -> "Process":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reading.join(PATIENCE)
        if self.process.stderr is not None:
            self.process.stderr.close()
        if error is None:
            assert not self.strange, "lines of the log that are no events:\n" + "".join(self.strange)


# Before anything else: a process that would speak to anybody but this machine is ended at once.
ALONE = """
import ipaddress, os, sys
def here(host):
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in (None, "", "localhost")
def alone(event, given):
    if event in ("socket.connect", "socket.sendto") and isinstance(given[1], tuple) and not here(given[1][0]):
        os._exit(97)
    if event in ("socket.getaddrinfo", "socket.gethostbyname") and not here(given[0]):
        os._exit(97)
sys.addaudithook(alone)
"""

# Every step of a long request waits for a byte, and is told of by one; at the end of the file all may run.
GATED = """
import os, triform.generate.engine as engine, triform.serve.worker.model_worker as worker
worker.PUSH_SECONDS = 0  # what a step has written goes out before the next one
step = engine.Engine.step
def gated(self):
    jobs = [*self.waiting, *(job for job, _ in self.running), *([self.prefilling] if self.prefilling else [])]
    waits = any(job.request.settings.max_tokens == {tokens} for job in jobs)
    if waits:
        os.write({steps}, b"w")
        os.read({permits}, 1)
    found = step(self)
    if waits:
        os.write({steps}, b".")
    return found
engine.Engine.step = gated
from triform.cli import main
main()
"""


class Gate:
    """Lets the engine of another process make its steps, one by one, and at last as it likes."""

    def __init__(self, *, tokens: int) -> None:
        self._permits, self._permit = os.pipe()
        self._steps, self._step = os.pipe()
        self.started = {
            "code": GATED.format(tokens=tokens, permits=self._permits, steps=self._step),
            "pass_fds": (self._permits, self._step),
        }

    def allow(self, steps: int) -> None:
        os.write(self._permit, b"." * steps)

    def step(self) -> None:
        """One step, until the engine waits for the next: what has come in by then came in before it."""
        self.allow(1)
        self._wait_for(b".")
        self._wait_for(b"w")

    def _wait_for(self, mark: bytes) -> None:
        seen = b""
        while seen != mark:
            ready, _, _ = select.select([self._steps], [], [], PATIENCE)
            assert ready, "the engine has nothing to do"
            seen = os.read(self._steps, 1)

    def open(self) -> None:
        os.close(self._permit)
        self._permit = -1

    def __enter__(self) -> "Gate":
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._permits, self._permit, self._steps, self._step):
            if one >= 0:
                os.close(one)


def until(holds: Callable[[], bool]) -> None:
    """Asked again and again until it holds; what never holds is a failure."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never held"


def events(response: httpx2.Response) -> Iterator[dict[str, Any] | str]:
    """The events of a stream; the last is the word [DONE]."""
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield "[DONE]" if line == "data: [DONE]" else json.loads(line[6:])


def list_events(response: httpx2.Response) -> list[dict[str, Any]]:
    """The events of a stream that has ended, without the word [DONE]."""
    return [event for event in events(response) if not isinstance(event, str)]


def post(path: str, body: dict[str, Any], *, port: int, id: str = "by-hand") -> bytes:
    """A request as bytes, for sockets that are driven by hand."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\nx-request-id: {id}\r\n"
    return head.encode() + f"content-length: {len(data)}\r\n\r\n".encode() + data
