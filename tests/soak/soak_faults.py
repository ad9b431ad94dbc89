"""The faults: each is done to the server or sent to it while ordinary traffic goes on.

A fault returns what went wrong with the fault itself: an answer it must not get, or that it could not be planted.
"""

import importlib.util
import json
import random
import shutil
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
from soak_bad_requests import expect_refusal
from soak_cases import Case
from soak_server import Server
from soak_traffic import DEADLINE, Traffic

SEARCHES = 5  # while an index is not as it was
CHUNKS = b"1\r\nx\r\n" * 10_000
CHUNKED = (
    b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
)
LONG = {"model": "cat", "prompt": "the cat", "max_tokens": 90, "stream": True, "ignore_eos": True}
MESSAGES = [{"role": "user", "content": "the cat"}]
GRAMMARS: list[dict[str, Any]] = [
    {"type": "regex", "pattern": "a{1000000000}"},
    {"type": "regex", "pattern": "(a|b)*" + "(c|d)?" * 600},
    {
        "type": "json_schema",
        "json_schema": {"name": "wide", "schema": {"type": "object", "properties": {f"p{i}": {} for i in range(2000)}}},
    },
]


class Faults:
    """What is needed to do them; `seconds` is how long a fault that lasts is held."""

    def __init__(
        self, server: Server, traffic: Traffic, *, index: Path, spare: Path, clients: int, seconds: float
    ) -> None:
        self.server, self.traffic, self.index, self.spare = server, traffic, index, spare
        self.clients, self.seconds = clients, seconds
        self.rng = random.Random(traffic.seed)

    # --- sockets ----------------------------------------------------------------------------------------------------

    def _request(self, body: Any) -> bytes:
        data = json.dumps(body).encode()
        head = (
            f"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1:{self.server.port}\r\ncontent-type: application/json\r\n"
        )
        return head.encode() + f"content-length: {len(data)}\r\n\r\n".encode() + data

    def reset_in_mid_answer(self) -> list[str]:
        for _ in range(20):
            with self.server.socket(timeout=DEADLINE) as raw:
                raw.sendall(self._request(LONG))
                if self.rng.random() < 0.5:
                    raw.recv(20)
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return []

    def send_broken_requests(self) -> list[str]:
        """Half a request, one with a bit turned around, bytes that are no HTTP."""
        for _ in range(20):
            whole = bytearray(self._request(LONG | {"max_tokens": 3}))
            kind = self.rng.randrange(3)
            if kind == 0:
                del whole[self.rng.randrange(len(whole)) :]
            elif kind == 1:
                whole[self.rng.randrange(len(whole))] ^= 1 << self.rng.randrange(8)
            else:
                whole[:] = self.rng.randbytes(200) + b"\r\n\r\n"
            with self.server.socket(timeout=DEADLINE) as raw:
                raw.sendall(whole)
                raw.shutdown(socket.SHUT_WR)
                with suppress(ConnectionError):
                    raw.recv(20)
        return []

    def send_small_chunks(self) -> list[str]:
        """6 MB in chunks of one byte, from each of four clients; being cut off is right."""

        def send() -> None:
            with suppress(OSError), self.server.socket(timeout=DEADLINE) as raw:
                raw.sendall(CHUNKED)
                for _ in range(100):
                    raw.sendall(CHUNKS)

        return together([send] * 4)

    # --- the process and its files ----------------------------------------------------------------------------------

    def pause(self) -> list[str]:
        self.server.signal(signal.SIGSTOP)
        try:
            time.sleep(self.seconds)
        finally:
            self.server.signal(signal.SIGCONT)
        return []

    def fill_disk(self) -> list[str]:
        """No file of the process can grow, its log first of all."""
        self.server.limit_file_size(0)
        try:
            before = self.server.log.stat().st_size
            time.sleep(self.seconds)
            grown = self.server.log.stat().st_size > before
        finally:
            self.server.limit_file_size(-1)
        return ["disk full: the log grew all the same"] if grown else []

    def replace_index(self) -> list[str]:
        """Another index under the same name; the server goes on with the one it was started with."""
        aside = self.index.with_name("aside")
        self.index.rename(aside)
        try:
            shutil.copytree(self.spare, self.index)
            self._search()
        finally:
            shutil.rmtree(self.index)
            aside.rename(self.index)
        return []

    def truncate_index(self) -> list[str]:
        """Its files are emptied, then overwritten with zeros, in place."""
        files = [*self.index.glob("*.jsonl"), *self.index.glob("*.safetensors")]
        whole = {file: file.read_bytes() for file in files}
        try:
            for change in (lambda data: b"", lambda data: bytes(len(data))):
                for file, data in whole.items():
                    file.write_bytes(change(data))
                self._search()
        finally:
            for file, data in whole.items():
                file.write_bytes(data)
        return []

    def _search(self) -> None:
        with self.server.client(timeout=DEADLINE) as client:
            for _ in range(SEARCHES):
                self.traffic.send(client, self.traffic.oracle.draw_of("POST /v1/search", self.rng))

    def fail_workers(self) -> list[str]:
        """An exception in the next step of an engine, and in the next batch of a task."""
        for kind in ("engine", "task"):
            self.server.plant(kind)
            if not self.server.has_raised(timeout=DEADLINE):
                return [f"worker exception: nothing was raised in the {kind} within {DEADLINE:.0f} s"]
        return []

    def step_clock(self) -> list[str]:
        """The wall clock jumps by a day, forwards or backwards, and back again."""
        step = self.rng.choice([-86400, 86400])
        self.server.plant(f"clock {step}")
        time.sleep(self.seconds)
        try:
            far = self._clock() - time.time() - step
        finally:
            self.server.plant("clock 0")
        return [f"clock step: the server's clock is {far:.0f} s away from where it was set"] if abs(far) > 3600 else []

    def _clock(self) -> float:
        with self.server.client(timeout=DEADLINE) as client:
            while True:
                answer = client.post("/v1/completions", json=LONG | {"max_tokens": 1, "stream": False})
                if answer.status_code != 429:
                    return float(answer.json()["created"])

    # --- requests that cost -----------------------------------------------------------------------------------------

    def _send_refused(self, cases: Sequence[Case]) -> list[str]:
        """All at once; each must be refused, at once or because the server is busy."""

        def send(case: Case) -> None:
            with self.server.client(timeout=DEADLINE) as client:
                self.traffic.send(client, case)

        return together([lambda case=case: send(case) for case in cases])  # type: ignore[misc]

    def render_bad_template(self) -> list[str]:
        body = {"model": "bomb", "messages": MESSAGES, "max_tokens": 2}
        path = "/v1/chat/completions"
        return self._send_refused([Case("POST (bad template)", path, expect_refusal(400), body)] * 12)

    def send_hostile_grammars(self) -> list[str]:
        asked = LONG | {"stream": False, "max_tokens": 8, "ignore_eos": False}

        def find_fault(answer: httpx2.Response) -> str:
            """One that can be used after all is no mistake."""
            return "" if answer.status_code == 200 else expect_refusal(400)(answer)

        return self._send_refused(
            [
                Case("POST (hostile grammar)", "/v1/completions", find_fault, asked | {"response_format": grammar})
                for grammar in GRAMMARS * 2
            ]
        )

    def send_large_texts(self) -> list[str]:
        text = "a " * 499_900
        bodies: dict[str, dict[str, Any]] = {
            "completions": {"model": "cat", "prompt": text},
            "chat/completions": {"model": "cat", "messages": [{"role": "user", "content": text}]},
            "embeddings": {"model": "embed", "input": text},
            "tokenize": {"model": "cat", "text": text},
            "answer": {"model": "answer", "question": "who?", "context": text},
            "search": {"model": "embed", "index": "texts", "text": text},
            "look": {"model": "cat", "ask": {"view": "start", "run": {"text": text}}},
        }
        for task, model in (("fill", "fill"), ("classify", "classify"), ("tag", "tag"), ("translate", "pair")):
            bodies[task] = {"model": model, "text": text}
        return self._send_refused(
            [
                Case("POST (large text)", f"/v1/{path}", expect_refusal(400, 413), body)
                for path, body in bodies.items()
                for _ in range(2)
            ]
        )

    def load_tenfold(self) -> list[str]:
        with self.traffic.clients(9 * self.clients):
            time.sleep(self.seconds)
        return []


def together(works: Sequence[Callable[[], Any]]) -> list[str]:
    """Each in a thread of its own; what does not end in time is told."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 2 * DEADLINE
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    hanging = sum(thread.is_alive() for thread in threads)
    return [f"{hanging} clients of a fault have not ended"] if hanging else []


FAULTS: dict[str, Callable[[Faults], list[str]]] = {
    "reset in mid-answer": Faults.reset_in_mid_answer,
    "broken requests": Faults.send_broken_requests,
    "pause": Faults.pause,
    "disk full": Faults.fill_disk,
    "index replaced": Faults.replace_index,
    "index truncated": Faults.truncate_index,
    "worker exception": Faults.fail_workers,
    "clock step": Faults.step_clock,
    "small chunks": Faults.send_small_chunks,
    "bad template": Faults.render_bad_template,
    "large texts": Faults.send_large_texts,
    "tenfold load": Faults.load_tenfold,
}
if importlib.util.find_spec("llguidance"):
    FAULTS["hostile grammar"] = Faults.send_hostile_grammars
