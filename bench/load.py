"""From the start of a process to the first logits of a GPT-2-small folder, against transformers.

Both read the same folder, written by transformers as the hub would hold it. `.venv/bin/python -m bench.load`
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.harness import Result, Row, limits, report

ROUNDS = 9
MAKE = """
import sys, transformers
transformers.GPT2LMHeadModel(transformers.GPT2Config()).save_pretrained(sys.argv[1])
"""
# The clock stops when the logits are there; then each says the most memory it has held (of this program alone:
# rusage would count what the process was before it became this program).
SAY = """
import json
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(json.dumps({"peak": 1024 * int(peak)}), flush=True)
"""
OURS = f"""
import sys, triform
triform.load(sys.argv[1]).logits([[1, 2, 3]])
print("logits", flush=True)
{SAY}"""
THEIRS = f"""
import sys, torch
from transformers import AutoModelForCausalLM
with torch.no_grad():
    AutoModelForCausalLM.from_pretrained(sys.argv[1])(torch.tensor([[1, 2, 3]])).logits
print("logits", flush=True)
{SAY}"""
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1"}


def once(code: str, folder: Path) -> tuple[float, int]:
    """Seconds from the start of a process to its first logits, and the most memory it held."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
        text=True,
    )
    if process.stdout is None or process.stdout.readline() != "logits\n":
        raise SystemExit(f"a contender failed: {code}")
    seconds = time.perf_counter() - began
    peak = json.loads(process.stdout.readline())["peak"]
    process.wait()
    return seconds, peak


def result(name: str, runs: list[tuple[float, int]]) -> Result:
    seconds = sorted(run[0] for run in runs)
    middle = statistics.median(seconds)
    return Result(name, middle, seconds[0], (seconds[-2] - seconds[1]) / 2 / middle, max(run[1] for run in runs), None)


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "gpt2"
        subprocess.run([sys.executable, "-c", MAKE, str(folder)], check=True, env=ENVIRONMENT)
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
