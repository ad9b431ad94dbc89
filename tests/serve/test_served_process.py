"""Life and death of the real process: signals, clients that hang up, stall or send rubbish."""

import select
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from served_process import PATIENCE, Process, events, post

LONG: dict[str, Any] = {"model": "cat", "prompt": "the cat", "max_tokens": 100, "ignore_eos": True}
# A model that takes its time: every step waits, so that a request is surely running when something happens to it.
SLOW = """
import threading, triform.generate.engine as engine
step = engine.Engine.step
wait = threading.Event()
def slow(self):
    wait.wait({seconds})
    return step(self)
engine.Engine.step = slow
from triform.cli import main
main()
"""


def open_streams(process: Process, count: int) -> tuple[list[list[Any]], list[threading.Thread], threading.Barrier]:
    """Streams that are read to their end by threads of their own; the barrier opens when all have begun."""
    begun, seen = threading.Barrier(count + 1), [[] for _ in range(count)]

    def read(into: list[Any]) -> None:
        with (
            process.client() as client,
            client.stream("POST", "/v1/completions", json=LONG | {"stream": True}) as answer,
        ):
            for event in events(answer):
                if not into:
                    begun.wait(PATIENCE)
                into.append(event)

    threads = [threading.Thread(target=read, args=(into,)) for into in seen]
    for thread in threads:
        thread.start()
    return seen, threads, begun


def test_sigterm_lets_streams_end(folders: Path) -> None:
    """Not ready at once, every stream ends with a reason and [DONE], exit code 0."""
    with Process(str(folders / "cat"), "--limit", "rows=8", code=SLOW.format(seconds=0.01)) as process:
        seen, threads, begun = open_streams(process, 8)
        begun.wait(PATIENCE)
        process.terminate()
        with process.client() as client:
            ready = client.get("/ready")
            refused = client.post("/v1/completions", json=LONG)
        assert (ready.status_code, refused.status_code) == (503, 503)
        assert refused.headers["retry-after"]
        for thread in threads:
            thread.join(PATIENCE)
        assert process.code() == 0
        for each in seen:
            assert each[-1] == "[DONE]"
            assert each[-2]["choices"][0]["finish_reason"] == "length"
        assert process.wait_for("stopped")["code"] == 0


def test_ctrl_c_ends_streams_when_the_grace_is_over(folders: Path) -> None:
    arguments = (str(folders / "cat"), "--limit", "grace_seconds=0.05")
    with Process(*arguments, code=SLOW.format(seconds=0.1)) as process:
        seen, threads, begun = open_streams(process, 3)
        begun.wait(PATIENCE)
        process.process.send_signal(signal.SIGINT)
        for thread in threads:
            thread.join(PATIENCE)
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
    """Whoever waits gets a last word; exit code 1."""
    fault = "raise SystemExit('gone')"
    with Process(str(folders / "cat"), code=FAULTY.format(fault=fault)) as process, process.client() as client:
        assert client.get("/ready").status_code == 200
        answer = client.post("/v1/completions", json=LONG | {"max_tokens": 13})
        assert (answer.status_code, answer.json()["error"]["type"]) == (503, "service_unavailable_error")
        process.wait_for("lost")
        assert process.code() == 1


def test_a_stalled_worker_is_not_ready_and_then_lost(folders: Path) -> None:
    """Not ready, requests refused, the process still answers; exit code 1 once there is no hope."""
    limits = ("--limit", "stalled_seconds=0.2", "--limit", "dead_seconds=5")
    code = FAULTY.format(fault="threading.Event().wait()")
    with Process(str(folders / "cat"), *limits, code=code) as process:
        with process.socket() as asking, process.client() as client:
            asking.sendall(post("/v1/completions", LONG | {"max_tokens": 13}, port=process.port))
            while client.get("/ready").status_code == 200:
                pass
            assert client.get("/health").status_code == 200
            refused = client.post("/v1/completions", json=LONG)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "stalled")
        process.wait_for("lost")
        assert process.code() == 1


def metric(client: Any, name: str) -> float:
    text = client.get("/metrics").text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + "{"))


def test_who_hangs_up_stops_the_work(folders: Path) -> None:
    """Two hundred clients leave in mid-answer, half of them reading a stream: their places are free at once."""
    limits = ("--limit", "rows=8", "--limit", "queue=400")
    with Process(str(folders / "cat"), *limits, code=SLOW.format(seconds=0.02)) as process, process.client() as client:
        leaving = [process.socket() for _ in range(200)]
        for at, one in enumerate(leaving):
            one.sendall(post("/v1/completions", LONG | {"stream": at % 2 == 0}, port=process.port))
        leaving[0].recv(1)
        while metric(client, "triform_num_requests_waiting") < 150:
            pass
        for one in leaving:
            one.close()
        for _ in leaving:
            process.wait_for("request", path="/v1/completions")
        while metric(client, "triform_num_requests_running") or metric(client, "triform_num_requests_waiting"):
            pass
        assert metric(client, "triform_generation_tokens_total") < 50 * 100  # of 200 * 100 that were asked for
        assert client.post("/v1/completions", json=LONG | {"max_tokens": 2}).status_code == 200


def test_idle_and_dawdling_sockets_are_cut_off(process: Process) -> None:
    """Nothing sent, half a header, half a body: each is closed, and meanwhile others are answered."""
    silent, half_head, half_body = (process.socket() for _ in range(3))
    half_head.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: ")
    half_body.sendall(post("/v1/completions", LONG, port=process.port)[:-5])
    with process.client() as client:
        assert client.post("/v1/completions", json=LONG | {"max_tokens": 3}).status_code == 200
    assert silent.recv(100) == b""
    assert half_head.recv(100) == b""
    assert half_body.recv(100).startswith(b"HTTP/1.1 408")
    for one in (silent, half_head, half_body):
        one.close()


def test_a_slow_reader_is_cut_off(process: Process) -> None:
    """It asks for far more than sockets buffer and reads nothing of it: others are answered, it is ended."""
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.settimeout(PATIENCE)
    slow.connect(("127.0.0.1", process.port))
    slow.sendall(post("/v1/tokenize", {"model": "cat", "text": "the cat " * 100_000}, port=process.port))
    process.wait_for("request", path="/v1/tokenize")
    with process.client() as client:
        assert client.get("/health").status_code == 200
    cut = select.poll()
    cut.register(slow, select.POLLHUP | select.POLLERR)
    assert cut.poll(1000 * PATIENCE)
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
