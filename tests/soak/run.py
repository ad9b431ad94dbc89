"""A soak: a real server under random traffic, every answer compared with the offline one, and a fault every minute.

    python tests/soak/run.py --minutes 120       as `make soak MINUTES=120` does
    python tests/soak/run.py --faults pause,"disk full" --every 10 --json

Exit code 1 where an answer was wrong or did not come, memory or open files grew, or the server ended. Ctrl-C ends it
with the table so far.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

import torch
from served_models import encoder
from soak_cases import Oracle, some_text
from soak_faults import FAULTS, Faults
from soak_report import BUCKET, Report, Sample, floors, show, slope_of
from soak_server import Counts, Server
from soak_traffic import Traffic

from triform.tasks import vector_index
from triform.text.chat_template import TEMPLATE_FILE as TEMPLATE
from triform.weights import model_folder

EVERY = 60.0  # seconds from one fault to the next
PROGRESS = 30.0
TRIM = 10.0  # seconds: how often the heap gives back what is free, so that only what is in use counts as memory
PASSAGES = 40  # of an index
SETTLING = 30.0  # seconds for connections and threads to end
BOMB = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"
# A pause must be longer than the silence after which a worker is given up for lost, or it proves nothing.
PAUSE, DEAD = 15.0, 12.0
# Small caches are full after the warm-up, so that what grows then is a leak.
LIMITS = {"stalled_seconds": DEAD / 2, "dead_seconds": DEAD, "look_bytes": 2**22, "prefix_bytes": 2**20}


def write_folders(root: Path, oracle_models: dict[str, Any]) -> None:
    """Every model, one with a template that never ends, an index and another one to put in its place."""
    for name, model in oracle_models.items():
        model_folder.write(root / name, model=model)
    model_folder.write(root / "bomb", model=oracle_models["cat"])
    (root / "bomb" / "manifest.json").unlink()
    (root / "bomb" / TEMPLATE).write_text(BOMB, encoding="utf-8")


def write_indexes(root: Path) -> None:
    """The one that is served, a copy for the oracle, which no fault touches, and another one to put in its place."""
    for name in ("index", "spare"):
        texts = root / f"{name} of"
        texts.mkdir()
        for number in range(PASSAGES):
            (texts / f"{number}.txt").write_text(some_text(random.Random(f"{name} {number}")), encoding="utf-8")
        vector_index.build_index([texts], model=encoder("embed"), name="embed", out=root / name)
    shutil.copytree(root / "index", root / "untouched")


class Soak:
    """One run; `report` may be asked for at any time."""

    def __init__(self, server: Server, traffic: Traffic, faults: Faults, given: argparse.Namespace) -> None:
        self.server, self.traffic, self.faults, self.given = server, traffic, faults, given
        self.seconds = 60 * given.minutes
        names = list(given.faults or FAULTS)
        self.every = given.every or min(EVERY, self.seconds / (len(names) + 1))
        self.warm_seconds = min(self.seconds / 2, self.every * (len(names) + 1))
        self.done: Counter[str] = Counter()
        self.problems: list[str] = []
        self.samples: list[Sample] = []
        self.began = time.monotonic()
        self.start_counts: Counts | None = None
        self.end_counts: Counts | None = None
        self._names, self._bag = names, list[str]()
        self._rng = random.Random(given.seed)
        self._acting: threading.Thread | None = None

    # --- the run ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        self.traffic.probe(seed=self.given.seed)
        self.faults.render_bad_template()  # its process is started now, not counted as one more later
        self.start_counts = self.settle()
        self.began = time.monotonic()
        with self.traffic.clients(self.given.clients):
            try:
                self._watch()
            finally:
                if self._acting is not None:
                    self._acting.join()
        if self.server.alive:
            self.end_counts = self.settle()

    def _watch(self) -> None:
        next_fault, next_line, next_trim = self.began + self.every, self.began + PROGRESS, self.began
        while (now := time.monotonic()) < self.began + self.seconds and self.server.alive:
            self.samples.append(Sample(now - self.began, self.server.counts().rss))
            self.server.read_log()
            self.traffic.find_hangs()
            if now >= next_fault and not (self._acting and self._acting.is_alive()):
                self._acting = threading.Thread(target=self._do, args=(self._next_fault(),))
                self._acting.start()
                next_fault = now + self.every
            if now >= next_trim:
                self.server.plant("trim")
                next_trim = now + TRIM
            if now >= next_line:
                self._show_progress()
                next_line += PROGRESS
            time.sleep(0.5)

    def _next_fault(self) -> str:
        """In a random order, each once before any comes again."""
        if not self._bag:
            self._bag = self._rng.sample(self._names, len(self._names))
        return self._bag.pop()

    def _do(self, name: str) -> None:
        try:
            with self.traffic.during(name):
                self.problems += FAULTS[name](self.faults)
        except Exception as error:
            self.problems.append(f"{name}: {error!r}")
        self.done[name] += 1
        if self.server.alive:
            self.traffic.probe(seed=self._rng.randrange(2**32))
        else:
            self.problems.append(f"{name}: the server ended with {self.server.process.poll()}")

    def settle(self) -> Counts:
        """What is held while nobody asks: counted when it no longer changes."""
        end, counts, same = time.monotonic() + SETTLING, self.server.counts(), 0
        while same < 3 and time.monotonic() < end:
            time.sleep(1.0)
            before, counts = counts, self.server.counts()
            same = same + 1 if before[1:] == counts[1:] else 0
        return counts

    # --- what is told -----------------------------------------------------------------------------------------------

    def _show_progress(self) -> None:
        tally, acting = self.traffic.tally, self._acting
        fault = self.traffic.spans[-1].fault if acting and acting.is_alive() else "none"
        print(
            f"{(time.monotonic() - self.began) / 60:6.1f} min  {sum(tally.requests.values()):8,} requests  "
            f"{tally.wrong} wrong  {tally.hangs} hangs  {sum(self.done.values())} faults (now: {fault})  "
            f"{self.samples[-1].rss / 2**20:.0f} MiB",
            file=sys.stderr,
            flush=True,
        )

    def report(self, exit_code: int | None) -> Report:
        self.server.read_log()
        tally = self.traffic.tally
        warm = [sample for sample in self.samples if sample.seconds >= self.warm_seconds]
        least = floors(warm, bucket=min(BUCKET, self.seconds / 20))
        strange = self.server.strange
        problems = [*self.problems, *(f"a line of the log is no event: {line[:200]}" for line in strange[:3])]
        report = Report(
            seed=self.given.seed, seconds=self.samples[-1].seconds if self.samples else 0.0,
            requests=dict(tally.requests), refused=dict(tally.refused), reconnects=tally.reconnects,
            faults={name: self.done[name] for name in self._names}, wrong=tally.wrong, hangs=tally.hangs,
            examples=tally.examples, slope=slope_of(least),
            slope_seconds=least[-1].seconds - least[0].seconds if least else 0.0,
            rss_start=least[0].rss if least else 0, rss_end=least[-1].rss if least else 0,
            counts_start=self.start_counts, counts_end=self.end_counts, log_events=dict(self.server.events),
            log_lines=self.server.notable,
            exit_code=exit_code, failures=problems,
        )  # fmt: skip
        report.judge()
        return report


def soak(given: argparse.Namespace, root: Path) -> Report:
    write_indexes(root)
    oracle = Oracle(root / "untouched")
    write_folders(root, oracle.models)
    models = [str(root / name) for name in (*oracle.models, "bomb")]
    limits = [f"--limit={name}={value}" for name, value in LIMITS.items()]
    served = [*models, "--index", f"texts={root / 'index'}", *limits]
    with Server(*served, log=root / "log", home=root / "home") as server:
        traffic = Traffic(server, oracle, seed=given.seed)
        faults = Faults(
            server, traffic, index=root / "index", spare=root / "spare", clients=given.clients, seconds=given.hold
        )
        run = Soak(server, traffic, faults, given)
        try:
            run.run()
        except KeyboardInterrupt:
            print("interrupted: the table so far", file=sys.stderr)
        return run.report(server.stop())


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long; default 10")
    parser.add_argument(
        "--every", type=float, help="seconds from one fault to the next; default 60, or all in a short run"
    )
    parser.add_argument(
        "--hold", type=float, default=PAUSE, help=f"seconds that a lasting fault lasts; default {PAUSE:g}"
    )
    parser.add_argument("--faults", type=lambda names: names.split(","), help="only these, with commas between")
    parser.add_argument("--clients", type=int, default=6, help="that send at once; default 6")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(2**31), help="of traffic and faults; default random"
    )
    parser.add_argument("--json", action="store_true", help="the result for machines")
    given = parser.parse_args()
    if unknown := sorted(set(given.faults or ()) - set(FAULTS)):
        parser.error(f"no such fault: {', '.join(unknown)}; there are: {', '.join(FAULTS)}")
    return given


def main() -> int:
    given = read_arguments()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory(prefix="triform-soak-") as root:
            report = soak(given, Path(root))
    except KeyboardInterrupt:
        print("interrupted before there was anything to report", file=sys.stderr)
        return 1
    if given.json:
        print(report.as_json())
    else:
        show(report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
