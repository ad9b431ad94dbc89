"""`triform serve` as a process of its own, spoken to over real sockets."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from queue import Queue
from types import TracebackType
from typing import Any

import httpx2

PATIENCE = 60.0


class Process:
    """Started, listening; its log is read line by line, `wait_for` gives the next line of an event."""

    def __init__(self, *arguments: str, code: str = "") -> None:
        command = [sys.executable, "-c", code or "from triform.cli import main; main()"]
        self.process = subprocess.Popen(
            [*command, "serve", *arguments, "--port", "0"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        )
        self.lines: Queue[dict[str, Any] | None] = Queue()
        self.said: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self.port = int(self.wait_for("listening")["port"])
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.url = f"http://127.0.0.1:{self.port}"

    def _read(self) -> None:
        for line in self.process.stderr or ():
            self.said.append(line)
            if line.startswith("{"):
                self.lines.put(json.loads(line))
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
        if self.process.stderr is not None:
            self.process.stderr.close()


def events(response: httpx2.Response) -> Iterator[dict[str, Any] | str]:
    """The events of a stream; the last is the word [DONE]."""
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield "[DONE]" if line == "data: [DONE]" else json.loads(line[6:])


def post(path: str, body: dict[str, Any], *, port: int) -> bytes:
    """A request as bytes, for sockets that are driven by hand."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
    return head.encode() + f"content-length: {len(data)}\r\n\r\n".encode() + data
