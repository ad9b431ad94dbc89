"""A long time under load with faults: every answer is compared with the offline one, memory and files stay flat."""

import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from served_models import decoder, pair
from served_process import PATIENCE, Process, post

from triform.generate.api import complete

SECONDS = float(os.environ.get("TRIFORM_SOAK_SECONDS", "600"))
CLIENTS = 6
PROMPTS = ["the cat", "a mole digs", "apples are fruit", "lions"]


def bodies() -> list[tuple[dict[str, Any], str]]:
    """Requests with their right answers."""
    found = []
    for name, model in (("cat", decoder()), ("pair", pair())):
        for seed, prompt in enumerate(PROMPTS):
            asked = {"max_tokens": 5 + 7 * seed, "temperature": float(seed % 2), "seed": seed}
            answer = complete(model, [prompt], start=0 if name == "pair" else None, **asked)[0]
            found.append(({"model": name, "prompt": prompt} | asked, answer.text))
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
    right, wrong, counted, warm = bodies(), [], [0] * CLIENTS, threading.Event()
    with Process(str(folders / "cat"), str(folders / "pair"), "--limit", "idle_seconds=2") as process:
        end = time.monotonic() + SECONDS

        def ask(number: int) -> None:
            chance = random.Random(number)
            with process.client() as client:
                while time.monotonic() < end:
                    body, expected = chance.choice(right)
                    answer = client.post("/v1/completions", json=body)
                    if answer.status_code == 200 and answer.json()["choices"][0]["text"] == expected:
                        counted[number] += 1
                        if sum(counted) >= 20:
                            warm.set()
                    elif answer.status_code != 429:
                        wrong.append(json.dumps(body) + answer.text)

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
