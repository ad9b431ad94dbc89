"""A step of `triform train` by 2 processes with 1 thread each against 1 process with 2 threads, as a person runs them.

`.venv/bin/python -m bench.train_processes [--before CHECKOUT]`; with CHECKOUT, also 1 process there against here.
Rounds alternate; the figure of a run is the median of its steps. Prints ratios, and whether the weights are the same.
"""

import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS, STEPS, SKIPPED = 3, 24, 4  # the first steps warm up
HERE = Path(__file__).parents[1]
SETTINGS = (
    "size=mini",
    "tokenizer=characters",
    "batch_tokens=4096",
    "accumulate=2",
    "eval_every=1000000",
    "context=256",
)
WORDS = "the fat ginger cat sat on the mat, and a mole dug a hole beside it while the lion slept. "


def run(checkout: Path, folder: Path, name: str, *, processes: int, threads: int) -> tuple[float, str]:
    """Median seconds of a step, and the hash of the weights."""
    out = folder / name
    command = [sys.executable, "-m", "triform", "train", "complete", str(folder / "text.txt"), "--out", str(out), "-q"]
    command += [part for setting in SETTINGS for part in ("--set", setting)]
    command += ["--steps", str(STEPS), "--processes", str(processes), "--threads", str(threads)]
    environment = os.environ | {"PYTHONPATH": str(checkout), "TRIFORM_HOME": str(folder / "home")}
    subprocess.run(command, check=True, cwd=checkout, env=environment, stdout=subprocess.DEVNULL)
    events = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    seconds = [event["seconds"] for event in events if "loss" in event and "seconds" in event][SKIPPED:]
    return statistics.median(seconds), hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()[:12]


def main() -> None:
    before = Path(sys.argv[2]).resolve() if sys.argv[1:2] == ["--before"] else None
    plans = {"1 process, 2 threads": (HERE, 1, 2), "2 processes, 1 thread": (HERE, 2, 1), "1 × 1": (HERE, 1, 1)}
    if before is not None:
        plans["before: 1 process, 2 threads"] = (before, 1, 2)
    found: dict[str, list[float]] = {name: [] for name in plans}
    hashes: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "text.txt").write_text(WORDS * 4000)
        for turn in range(ROUNDS):
            for name, (checkout, processes, threads) in plans.items():
                seconds, hashes[name] = run(checkout, folder, f"{name}, {turn}", processes=processes, threads=threads)
                found[name].append(seconds)
                print(f"{name}: {seconds:.3f} s per step, weights {hashes[name]}", flush=True)
    whole = statistics.median(found["1 process, 2 threads"])
    for name, each in found.items():
        median = statistics.median(each)
        print(f"{name}: {median:.3f} s, {whole / median:.2f} × 1 process, 2 threads")
    same = hashes["2 processes, 1 thread"] == hashes["1 × 1"]
    print(f"2 processes and 1 with as many threads: {'the same weights' if same else 'OTHER WEIGHTS'}")


if __name__ == "__main__":
    main()
