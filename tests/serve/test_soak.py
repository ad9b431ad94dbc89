"""A long time under load with faults: every answer is compared with the offline one, memory and files stay flat."""

import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from served_models import decoder, encoder, pair
from served_process import PATIENCE, Process, events, post

from triform.generate.api import complete
from triform.tasks import named

SECONDS = float(os.environ.get("TRIFORM_SOAK_SECONDS", "600"))
CLIENTS = 6
PROMPTS = ["the cat", "a mole digs", "apples are fruit", "lions"]


class Asked(NamedTuple):
    """A request, and its right answer offline."""

    path: str
    body: dict[str, Any]
    right: Any

    def is_right(self, answer: httpx2.Response) -> bool:
        """To rounding, where it is numbers: a batch adds up in another order than a single text."""
        if self.path == "/v1/completions":
            return bool(text_of(answer) == self.right)
        return bool(answer.json()["data"][0]["embedding"] == pytest.approx(self.right, rel=1e-4, abs=1e-6))


def text_of(answer: httpx2.Response) -> str | None:
    """Of a stream only if it ends as it should."""
    if "event-stream" not in answer.headers["content-type"]:
        return str(answer.json()["choices"][0]["text"])
    *pieces, last = events(answer)
    assert last == "[DONE]"
    return "".join(choice["text"] for piece in pieces for choice in piece["choices"])


def asked() -> list[Asked]:
    """Completions of both models, whole and streamed, and vectors of sentences."""
    found = []
    for name, model in (("cat", decoder()), ("pair", pair())):
        for seed, prompt in enumerate(PROMPTS):
            settings = {"max_tokens": 5 + 7 * seed, "temperature": float(seed % 2), "seed": seed}
            answer = complete(model, [prompt], start=0 if name == "pair" else None, **settings)[0]
            for stream in (False, True):
                body = {"model": name, "prompt": prompt, "stream": stream} | settings
                found.append(Asked("/v1/completions", body, answer.text))
    for prompt, one in zip(PROMPTS, named("embed").run(PROMPTS, model=encoder("embed")), strict=True):
        found.append(Asked("/v1/embeddings", {"model": "embed", "input": prompt}, one.vector))
    return found


class Fault:
    """Clients that do everything wrong."""

    def __init__(self, process: Process, chance: random.Random) -> None:
        self.process, self.chance = process, chance

    def one(self) -> None:
        with self.process.socket() as raw:
            asked = post("/v1/completions", {"model": "cat", "prompt": "the", "max_tokens": 90, "stream": True}, port=0)
            asked = asked.replace(b"127.0.0.1:0", b"127.0.0.1")
            kind = self.chance.randrange(4)
            if kind == 0:  # hangs up in mid-stream
                raw.sendall(asked)
                raw.recv(20)
            elif kind == 1:  # half a request
                raw.sendall(asked[: self.chance.randrange(len(asked))])
            elif kind == 2:  # bytes turned around
                broken = bytearray(asked)
                broken[self.chance.randrange(len(broken))] ^= 1 << self.chance.randrange(8)
                raw.sendall(broken)
                raw.recv(20)
            else:  # rubbish
                raw.sendall(self.chance.randbytes(200) + b"\r\n\r\n")


def files_and_memory(process: Process) -> tuple[int, int]:
    root = Path(f"/proc/{process.process.pid}")
    rss = next(line for line in (root / "status").read_text().splitlines() if line.startswith("VmRSS"))
    return len(list((root / "fd").iterdir())), int(rss.split()[1])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="files are counted in /proc")
def test_a_long_time_under_load(folders: Path) -> None:
    every, wrong, counted, warm = asked(), [], [0] * CLIENTS, threading.Event()
    models = [str(folders / name) for name in ("cat", "pair", "embed")]
    with Process(*models, "--limit", "idle_seconds=2") as process:
        end = time.monotonic() + SECONDS

        def ask(number: int) -> None:
            chance = random.Random(number)
            with process.client() as client:
                while time.monotonic() < end:
                    one = chance.choice(every)
                    answer = client.post(one.path, json=one.body)
                    if answer.status_code == 200 and one.is_right(answer):
                        counted[number] += 1
                        if sum(counted) >= 20:
                            warm.set()
                    elif answer.status_code != 429:
                        wrong.append(json.dumps(one.body) + answer.text)

        def disturb() -> None:
            fault = Fault(process, random.Random(99))
            while time.monotonic() < end:
                fault.one()

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS)]
        threads.append(threading.Thread(target=disturb))
        for thread in threads:
            thread.start()
        assert warm.wait(PATIENCE)
        files, memory = files_and_memory(process)
        for thread in threads:
            thread.join()
        files_after, memory_after = files_and_memory(process)
        assert not wrong[:3]
        assert min(counted) > 0
        assert files_after <= files + 20
        assert memory_after <= 1.05 * memory + 64 * 1024
        process.terminate()
        assert process.code() == 0
