"""Life and death of the real process: signals, clients that hang up, stall or send rubbish."""

import select
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest
from served_process import PATIENCE, Gate, Process, events, post, until

LONG: dict[str, Any] = {"model": "cat", "prompt": "the cat", "max_tokens": 100, "ignore_eos": True}
STREAMS = 50
HELD = ("--limit", "stalled_seconds=60")  # a shut gate is no stalled worker


def open_streams(client: Any, count: int) -> tuple[list[list[Any]], list[threading.Thread], threading.Barrier]:
    """Streams that are read to their end by threads of their own; the barrier opens when all have begun."""
    begun, seen = threading.Barrier(count + 1), [[] for _ in range(count)]

    def read(into: list[Any]) -> None:
        with client.stream("POST", "/v1/completions", json=LONG | {"stream": True}) as answer:
            for event in events(answer):
                if not into:
                    begun.wait(PATIENCE)
                into.append(event)

    threads = [threading.Thread(target=read, args=(into,)) for into in seen]
    for thread in threads:
        thread.start()
    return seen, threads, begun


def all_running(process: Process, client: Any, gate: Gate, count: int) -> None:
    """So many requests have come, and now each has its first token."""
    until(lambda: process.metric(client, "triform_num_requests_waiting") == count)
    while process.metric(client, "triform_num_requests_running") < count:
        gate.step()


def test_sigterm_lets_streams_end(folders: Path) -> None:
    """Fifty streams are open: not ready at once, every one ends with a reason and [DONE], exit code 0."""
    limits = ("--limit", f"rows={STREAMS}", *HELD)
    with Gate(tokens=100) as gate, Process(str(folders / "cat"), *limits, **gate.started) as process:
        with process.client(limits=httpx2.Limits(max_connections=None)) as client:
            seen, threads, begun = open_streams(client, STREAMS)
            all_running(process, client, gate, STREAMS)
            begun.wait(PATIENCE)
            process.terminate()
            until(lambda: client.get("/ready").status_code == 503)
            refused = client.post("/v1/completions", json=LONG)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            gate.open()
            for thread in threads:
                thread.join(PATIENCE)
        assert process.code() == 0
        for each in seen:
            assert each[-1] == "[DONE]"
            assert each[-2]["choices"][0]["finish_reason"] == "length"
        assert process.wait_for("stopped")["code"] == 0


def test_ctrl_c_ends_streams_when_the_grace_is_over(folders: Path) -> None:
    """They cannot go on, since the gate is shut: each is told why, as its last event."""
    limits = ("--limit", f"rows={STREAMS}", "--limit", "grace_seconds=0.01", *HELD)
    with Gate(tokens=100) as gate, Process(str(folders / "cat"), *limits, **gate.started) as process:
        with process.client(limits=httpx2.Limits(max_connections=None)) as client:
            seen, threads, begun = open_streams(client, STREAMS)
            all_running(process, client, gate, STREAMS)
            begun.wait(PATIENCE)
            process.process.send_signal(signal.SIGINT)
            for thread in threads:
                thread.join(PATIENCE)
            gate.open()
        assert process.code() == 0
        for each in seen:
            assert each[-2]["error"]["code"] == "stopping"
            assert each[-1] == "[DONE]"


# A worker that is asked for 13 tokens does not come back.
FAULTY = """
import threading, triform.generate.engine as engine
step = engine.Engine.step
def faulty(self):
    if any(job.request.settings.max_tokens == 13 for job in self.waiting):
        {fault}
    return step(self)
engine.Engine.step = faulty
from triform.cli import main
main()
"""


def test_a_dead_worker_ends_the_process(folders: Path) -> None:
    """Whoever waits gets a last word; exit code 1; what it died of is told without its message."""
    fault = "raise BaseException('PROMPT-SECRET')"
    with Process(str(folders / "cat"), code=FAULTY.format(fault=fault)) as process, process.client() as client:
        assert client.get("/ready").status_code == 200
        answer = client.post("/v1/completions", json=LONG | {"max_tokens": 13})
        assert (answer.status_code, answer.json()["error"]["type"]) == (503, "service_unavailable_error")
        process.wait_for("lost")
        assert process.code() == 1
    assert "SECRET" not in "".join(process.said)


def test_a_stalled_worker_is_not_ready_and_then_lost(folders: Path) -> None:
    """Not ready, requests refused, the process still answers; exit code 1 once there is no hope."""
    limits = ("--limit", "stalled_seconds=0.2", "--limit", "dead_seconds=5")
    code = FAULTY.format(fault="threading.Event().wait()")
    with Process(str(folders / "cat"), *limits, code=code) as process:
        with process.socket() as asking, process.client() as client:
            asking.sendall(post("/v1/completions", LONG | {"max_tokens": 13}, port=process.port))
            until(lambda: client.get("/ready").status_code == 503)
            assert client.get("/health").status_code == 200
            refused = client.post("/v1/completions", json=LONG)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "stalled")
        process.wait_for("lost")
        assert process.code() == 1


def test_who_hangs_up_frees_the_place_within_two_steps(folders: Path) -> None:
    """Two hundred clients leave in mid-answer, half of them reading a stream; then only two steps are allowed."""
    count = 200
    limits = ("--limit", f"rows={count}", *HELD)
    given = (str(folders / "cat"), *limits)
    with Gate(tokens=100) as gate, Process(*given, **gate.started) as process, process.client() as client:
        leaving = [process.socket() for _ in range(count)]
        for at, one in enumerate(leaving):
            one.sendall(post("/v1/completions", LONG | {"stream": at % 2 == 0}, port=process.port))
        all_running(process, client, gate, count)
        for one in leaving:
            one.close()
        for _ in leaving:
            assert process.wait_for("request", path="/v1/completions")["gone"]
        assert process.metric(client, "triform_num_requests_running") == count
        gate.allow(2)
        until(lambda: process.metric(client, "triform_num_requests_running") == 0)
        assert process.metric(client, "triform_num_requests_waiting") == 0
        gate.open()
        assert client.post("/v1/completions", json=LONG).status_code == 200


def test_idle_and_dawdling_sockets_are_cut_off(process: Process) -> None:
    """Two hundred that send nothing, half a header or half a body: others are answered meanwhile, each is closed."""
    whole = post("/v1/completions", LONG, port=process.port)
    kinds = (b"", b"POST /v1/completions HTTP/1.1\r\nhost: ", whole[:-5])
    stalled = [process.socket() for _ in range(200)]
    for at, one in enumerate(stalled):
        one.sendall(kinds[at % 3])
    with process.client() as client:
        assert client.post("/v1/completions", json=LONG | {"max_tokens": 3}).status_code == 200
    for at, one in enumerate(stalled):
        last = one.recv(100)
        assert last.startswith(b"HTTP/1.1 408") if at % 3 == 2 else last == b""
        one.close()


SLOW_READS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/tokenize", {"model": "cat", "text": "the cat " * 10_000}),
    ("/v1/completions", LONG | {"prompt": ["the cat"] * 150, "stream": True, "logprobs": 20}),
]


@pytest.mark.parametrize(("path", "body"), SLOW_READS, ids=["whole", "stream"])
def test_a_slow_reader_is_cut_off(process: Process, path: str, body: dict[str, Any]) -> None:
    """It asks for far more than sockets buffer and reads nothing of it: others are answered, it is ended."""
    slow, id = socket.socket(), f"slow{path.replace('/', '-')}"
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.settimeout(PATIENCE)
    slow.connect(("127.0.0.1", process.port))
    slow.sendall(post(path, body, port=process.port, id=id))
    with process.client() as client:
        assert client.get("/health").status_code == 200
        cut = select.poll()
        cut.register(slow, select.POLLHUP | select.POLLERR)
        assert cut.poll(1000 * PATIENCE)
        process.wait_for("request", id=id)
        until(lambda: process.metric(client, "triform_num_requests_running") == 0)
    slow.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/9\r\n\r\n",
        b"GET / HTTP/1.1\r\nconnection: close\r\nhost: x\r\nx: " + b"a" * 70_000 + b"\r\n\r\n",
    ],
    ids=["tls", "version", "large header"],
)
def test_what_is_no_http_is_refused_in_shape(process: Process, sent: bytes) -> None:
    with process.socket() as raw:
        raw.sendall(sent)
        answer = b""
        while piece := raw.recv(4096):
            answer += piece
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))
    assert b'"type":"invalid_request_error"' in answer


def test_a_taken_port_is_one_line(process: Process, folders: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from triform.cli import main

    with pytest.raises(SystemExit) as stop:
        main(["serve", str(folders / "cat"), "--port", str(process.port)])
    assert stop.value.code == 2
    assert "cannot listen on 127.0.0.1" in capfd.readouterr().err
