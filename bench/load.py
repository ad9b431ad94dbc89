"""From the start of a process to the first logits of a GPT-2-small folder, against transformers.

`.venv/bin/python -m bench.load`
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.harness import Result, Row, limits, report

ROUNDS = 7
OURS = "import sys, triform; print(triform.load(sys.argv[1]).logits([[1, 2, 3]]).shape)"
THEIRS = """
import sys, torch
from transformers import AutoModelForCausalLM
with torch.no_grad():
    print(AutoModelForCausalLM.from_pretrained(sys.argv[1])(torch.tensor([[1, 2, 3]])).logits.shape)
"""


def once(code: str, folder: Path) -> tuple[float, int]:
    """Seconds from start to end of a process, and the most memory it held."""
    environment = os.environ | {"OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1"}
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"a contender failed: {code}")
    return time.perf_counter() - began, usage.ru_maxrss * 1024


def result(name: str, runs: list[tuple[float, int]]) -> Result:
    seconds = sorted(run[0] for run in runs)
    middle = statistics.median(seconds)
    return Result(name, middle, seconds[0], (seconds[-2] - seconds[1]) / 2 / middle, max(run[1] for run in runs), None)


def main() -> None:
    import triform

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "gpt2"
        triform.build(triform.families.gpt2()).save(folder)
        ours, theirs = [], []
        once(OURS, folder), once(THEIRS, folder)  # both warm: the files are in the page cache, byte code is compiled
        for _ in range(ROUNDS):
            ours.append(once(OURS, folder))
            theirs.append(once(THEIRS, folder))
    row = Row(
        "GPT-2 small, process start to first logits",
        result("triform", ours),
        result("transformers", theirs),
        aim=2.5,
        memory_matters=True,
    )
    report("load", [row], limits())


if __name__ == "__main__":
    main()
