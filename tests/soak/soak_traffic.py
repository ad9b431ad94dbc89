"""Clients that send random requests and judge every answer; a request without an answer in time is a hang."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import httpx2
from soak_bad_requests import draw_bad
from soak_cases import Case, Oracle, events_of, is_stream
from soak_server import Server

DEADLINE = 60.0  # seconds for one request, all in all
AFTERWARDS = 10.0  # seconds after a fault in which a request may still feel it
BAD_SHARE = 0.15  # of all requests
KEPT = 20  # wrong answers that are kept with their texts
JSON = {"content-type": "application/json"}
# Error codes a right request may get: always, while any fault acts, and while one acts that is named here.
ALWAYS = {"rate_limit_exceeded"}
WHILE_ANY = {"stalled"}
WHILE = {"worker exception": {"internal_error"}}


class Span(NamedTuple):
    """A fault, from and to when."""

    fault: str
    start: float
    end: float


class Tally:
    """What was asked and what came of it; safe from any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.reconnects = self.wrong = self.hangs = 0
        self.examples: list[str] = []

    def add_wrong(self, what: str) -> None:
        with self.lock:
            self.wrong += 1
            self.examples = [*self.examples, what][:KEPT]

    def add_hang(self, what: str) -> None:
        with self.lock:
            self.hangs += 1
            self.examples = [*self.examples, f"hang: {what}"][:KEPT]


def error_code(answer: httpx2.Response) -> str | None:
    """Of a refusal, or of a stream that ends with one."""
    try:
        if answer.status_code != 200:
            return str(answer.json()["error"]["code"])
        if is_stream(answer) and (events := events_of(answer)):
            return str(events[-1]["error"]["code"]) if "error" in events[-1] else None
    except (ValueError, KeyError, TypeError):
        return None
    return None


class Traffic:
    def __init__(self, server: Server, oracle: Oracle, *, seed: int) -> None:
        self.server, self.oracle, self.seed = server, oracle, seed
        self.tally = Tally()
        self.spans: list[Span] = []
        self._open: dict[int, tuple[float, Case]] = {}  # by thread: what it waits for
        self._number = 0

    # --- clients ----------------------------------------------------------------------------------------------------

    @contextmanager
    def clients(self, count: int) -> Iterator[None]:
        """So many more clients, until the end of the block."""
        ending = threading.Event()
        threads = [threading.Thread(target=self._send_until, args=(ending,), daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ending.set()
            for thread in threads:
                thread.join(2 * DEADLINE)  # one that never ends is counted as a hang by `find_hangs`
                self.find_hangs()

    def _send_until(self, ending: threading.Event) -> None:
        with self.tally.lock:
            self._number += 1
            rng = random.Random(f"{self.seed} {self._number}")
        with self.server.client(timeout=DEADLINE) as client:
            while not ending.is_set():
                self.send(client, draw_bad(rng) if rng.random() < BAD_SHARE else self.oracle.draw(rng))

    # --- one request ------------------------------------------------------------------------------------------------

    def send(self, client: httpx2.Client, case: Case) -> bool:
        """Whether it was answered, and rightly; a refusal that is allowed is neither right nor wrong."""
        began, me = time.monotonic(), threading.get_ident()
        self._open[me] = began, case
        try:
            answer = self._exchange(client, case)
        except httpx2.TimeoutException:
            if self._open.get(me):  # `find_hangs` has not counted it
                self.tally.add_hang(f"{case.route} {case.content()[:200]!r}")
            return False
        except httpx2.TransportError as error:
            if self.server.alive:  # else it is told once that the server has ended
                self.tally.add_wrong(f"{case.route} {case.content()[:200]!r}: the connection broke: {error!r}")
            return False
        finally:
            self._open.pop(me, None)
        if time.monotonic() - began > DEADLINE:
            self.tally.add_hang(f"{case.route} took {time.monotonic() - began:.0f} s")
        return self._judge(case, answer, began)

    def _exchange(self, client: httpx2.Client, case: Case) -> httpx2.Response:
        """Sent again once where a kept connection was closed meanwhile, as every HTTP client does."""
        headers = case.headers or (JSON if case.method == "POST" else {})
        try:
            return client.request(case.method, case.path, content=case.content(), headers=headers)
        except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
            with self.tally.lock:
                self.tally.reconnects += 1
            with self.server.client(timeout=DEADLINE) as fresh:
                return fresh.request(case.method, case.path, content=case.content(), headers=headers)

    def _judge(self, case: Case, answer: httpx2.Response, began: float) -> bool:
        with self.tally.lock:
            self.tally.requests[case.route] += 1
        code = error_code(answer)
        if code is not None and code in self._allowed(began):
            with self.tally.lock:
                self.tally.refused[code] += 1
            if answer.status_code in (429, 503) and "retry-after" not in answer.headers:
                self.tally.add_wrong(f"{case.route}: {answer.status_code} without retry-after")
            return False
        if fault := case.find_fault(answer):
            acting = ", ".join(span.fault for span in self._spans_since(began)) or "none"
            self.tally.add_wrong(f"{case.route} {case.content()[:300]!r}: {fault} (faults: {acting})")
        return not fault

    # --- faults and hangs -------------------------------------------------------------------------------------------

    @contextmanager
    def during(self, fault: str) -> Iterator[None]:
        """A fault acts; what right requests may be refused with depends on it."""
        start = time.monotonic()
        self.spans = [*self.spans[-4:], Span(fault, start, float("inf"))]
        try:
            yield
        finally:
            self.spans = [*self.spans[:-1], Span(fault, start, time.monotonic())]

    def _spans_since(self, began: float) -> list[Span]:
        return [span for span in self.spans if span.end + AFTERWARDS >= began]

    def _allowed(self, began: float) -> set[str]:
        spans = self._spans_since(began)
        return ALWAYS.union(WHILE_ANY if spans else (), *(WHILE.get(span.fault, ()) for span in spans))

    def find_hangs(self) -> None:
        """Counts requests that have been open for too long, each once; their threads may never come back."""
        for thread, (began, case) in list(self._open.items()):
            if time.monotonic() - began > DEADLINE + AFTERWARDS and self._open.pop(thread, None):
                self.tally.add_hang(f"{case.route} {case.content()[:200]!r}")

    def probe(self, *, seed: int) -> None:
        """One request per route, each repeated while the server is busy: after a fault every route must answer."""
        rng = random.Random(seed)
        with self.server.client(timeout=DEADLINE) as client:
            for route in self.oracle.drawers:
                self._send_until_answered(client, self.oracle.draw_of(route, rng))

    def _send_until_answered(self, client: httpx2.Client, case: Case) -> None:
        end, wrong = time.monotonic() + DEADLINE, self.tally.wrong + self.tally.hangs
        while not self.send(client, case):
            if self.tally.wrong + self.tally.hangs > wrong or not self.server.alive:
                break  # counted already
            if time.monotonic() > end:
                self.tally.add_hang(f"{case.route} was refused for {DEADLINE:.0f} s")
                break
            time.sleep(0.2)
