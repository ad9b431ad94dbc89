"""One contender in its own process: sets up once, then runs each time a line comes in, and says how long it took.

`python -m bench.worker bench.forward:ours_prefill '{"tokens": 512}'`
"""

import importlib
import json
import os
import resource
import sys
import time
from typing import Any

THREADS = "2"


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", THREADS)
    os.environ["HF_HUB_OFFLINE"] = "1"
    module, name = sys.argv[1].split(":")
    run = getattr(importlib.import_module(module), name)(**json.loads(sys.argv[2]))
    run()  # warm: first calls pay for lazy set-up
    base = peak()
    say({"ready": name, "peak": base})
    for _ in sys.stdin:
        began = time.perf_counter()
        note = run()
        say({"seconds": time.perf_counter() - began, "peak": peak(), "note": note})


def peak() -> int:
    """The most memory this process has ever held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def say(line: dict[str, Any]) -> None:
    sys.__stdout__.write(json.dumps(line) + "\n")
    sys.__stdout__.flush()


if __name__ == "__main__":
    main()
