"""`triform serve` with faults that can be planted while it runs: `planted_serve.py COMMANDS REPLIES serve …`.

COMMANDS and REPLIES are file descriptors. A line `clock SECONDS` moves the wall clock; `engine` and `task` make the
next step of an engine, or the next batch of a task, raise, and a byte is written to REPLIES when it has; `trim` gives
free pages of the heap back to the system, so that its memory is what is in use.
"""

import ctypes
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

offset = 0.0
to_raise: Counter[str] = Counter()
real_time, real_time_ns = time.time, time.time_ns


def plant_clock() -> None:
    """Before anything else is imported, so that every module takes the moved clock."""
    time.time = lambda: real_time() + offset
    time.time_ns = lambda: real_time_ns() + int(1e9 * offset)


def plant_failures(replies: int) -> None:
    from triform.generate.engine import Engine
    from triform.serve.worker.model_worker import ModelWorker

    step, ask = Engine.step, ModelWorker._run_batch

    def raise_planted(kind: str) -> None:
        if to_raise[kind]:
            to_raise[kind] -= 1
            os.write(replies, b".")
            raise RuntimeError("planted by the soak")

    def failing_step(self: Engine) -> Any:
        raise_planted("engine")
        return step(self)

    def failing_ask(self: ModelWorker, batch: Any) -> Iterator[Any]:
        raise_planted("task")
        yield from ask(self, batch)

    Engine.step = failing_step  # type: ignore[method-assign]
    ModelWorker._run_batch = failing_ask  # type: ignore[method-assign]


def trim_heap() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
    if trim is not None:
        trim(0)


def obey(commands: int) -> None:
    global offset
    with open(commands, encoding="ascii") as lines:
        for line in lines:
            kind, _, value = line.strip().partition(" ")
            if kind == "clock":
                offset = float(value)
            elif kind == "trim":
                trim_heap()
            else:
                to_raise[kind] += 1


def main() -> None:
    commands, replies = int(sys.argv.pop(1)), int(sys.argv.pop(1))
    plant_clock()
    plant_failures(replies)
    threading.Thread(target=obey, args=(commands,), daemon=True).start()
    from triform.cli import main as triform

    triform()


if __name__ == "__main__":
    main()
