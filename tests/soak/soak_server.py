"""The server under test: a real `triform serve` process, its log, its faults, and what the system counts of it."""

import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

START_SECONDS = 180.0
STOP_SECONDS = 60.0
LOG_BYTES = 2**24  # then the log is cut, as a rotation by copying does
EVERYDAY = {"listening", "request", "stopped"}
NOTABLE = 3  # lines kept of every other event
PLANTED = Path(__file__).parent / "planted_serve.py"


class Counts(NamedTuple):
    """What the system counts of a process."""

    rss: int  # bytes
    files: int
    threads: int
    children: int


class Server:
    """Started and listening. Its log is a file, as it is under a service manager."""

    def __init__(self, *arguments: str, log: Path, home: Path) -> None:
        commands, self._command = os.pipe()
        self._reply, replies = os.pipe()
        self.log, self._read, self._rest = log, 0, b""
        self.events: Counter[str] = Counter()
        self.strange: list[str] = []  # lines of the log that are no events
        self.notable: list[str] = []  # the first lines of each event that is not of every day
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(PLANTED), str(commands), str(replies), "serve", *arguments, "--port", "0"],
                stdout=subprocess.DEVNULL,
                stderr=out,
                env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "TRIFORM_HOME": str(home)},
                pass_fds=(commands, replies),
            )
        for end in (commands, replies):
            os.close(end)
        self.port = self._wait_until_listening()
        self.url = f"http://127.0.0.1:{self.port}"

    def _wait_until_listening(self) -> int:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.alive:
            for line in self.log.read_bytes().split(b"\n"):
                if b'"event":"listening"' in line and line.endswith(b"}"):
                    return int(json.loads(line)["port"])
            time.sleep(0.1)
        self.kill()
        raise RuntimeError("the server did not start:\n" + self.log.read_text(errors="replace"))

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def client(self, *, timeout: float) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, timeout=timeout)

    def socket(self, *, timeout: float) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    # --- what is known of it ----------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        root = Path(f"/proc/{self.pid}")
        status = dict(line.split(":", 1) for line in (root / "status").read_text().splitlines())
        rss, threads = int(status["VmRSS"].split()[0]) * 1024, int(status["Threads"])
        return Counts(rss, len(list((root / "fd").iterdir())), threads, self._children())

    def _children(self) -> int:
        found = 0
        for place in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = place.read_text().rpartition(")")[2].split()[1]
            except OSError:  # it has ended meanwhile
                continue
            found += parent == str(self.pid)
        return found

    def read_log(self) -> None:
        """Counts the events that have come since the last call."""
        with self.log.open("rb") as lines:
            lines.seek(self._read)
            new = lines.read()
        self._read += len(new)
        *whole, self._rest = (self._rest + new).split(b"\n")
        for line in filter(None, whole):
            self._count_line(line)
        if self._read > LOG_BYTES and not self._rest:
            os.truncate(self.log, 0)
            self._read = 0

    def _count_line(self, line: bytes) -> None:
        try:
            event = json.loads(line)["event"]
        except (ValueError, KeyError, TypeError):
            if self.events:  # before the first event it prints its plan
                self.strange.append(line.decode(errors="replace"))
            return
        self.events[event] += 1
        if event not in EVERYDAY and self.events[event] <= NOTABLE:
            self.notable.append(line.decode(errors="replace"))

    # --- what is done to it -----------------------------------------------------------------------------------------

    def plant(self, command: str) -> None:
        os.write(self._command, command.encode() + b"\n")

    def has_raised(self, *, timeout: float) -> bool:
        """A planted exception has been raised."""
        ready, _, _ = select.select([self._reply], [], [], timeout)
        return bool(ready and os.read(self._reply, 1))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def limit_file_size(self, size: int) -> None:
        """Above it every write to a file fails, as on a full disk; -1: no limit."""
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (size, hard))

    def stop(self) -> int | None:
        """Its exit code after SIGTERM; None where it did not end and was killed."""
        if self.alive:
            self.signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: Any) -> None:
        if self.alive:
            self.kill()
        for end in (self._command, self._reply):
            os.close(end)
