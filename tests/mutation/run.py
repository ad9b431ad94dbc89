"""Mutation testing: plant small mistakes one by one, run the tests that touch the line, list those nobody noticed.

    python tests/mutation/run.py                  all groups, as `make mutate` does
    python tests/mutation/run.py core --count 20  a few mutants of one group

A mutant runs in a process forked from one that has torch and the test libraries loaded already.
"""

import argparse
import importlib.machinery
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from mutants import Mutant, make_mutants
from tests_by_line import ROOT

HOME = ROOT / ".mutation"


class Group(NamedTuple):
    """Files to mutate, how many mutants to draw from them, and the tests that may notice."""

    files: tuple[str, ...]
    count: int
    least: float  # of the mutants must be noticed
    tests: tuple[str, ...]


TRAIN = ("checkpoint", "label_objectives", "loop", "loss_guard", "objectives", "pair_objectives", "token_objectives")
HTTP = ("auth", "bounded_parser", "connections", "http_errors", "limits", "request_body")
GROUPS = {
    "core": Group(("triform/core/*.py",), 160, 0.9, ("tests/core", "tests/roads")),
    "generate": Group(("triform/generate/*.py",), 160, 0.9, ("tests/generate",)),
    "train": Group(tuple(f"triform/train/{name}.py" for name in TRAIN), 120, 0.8, ("tests/train",)),
    "weights": Group(
        ("triform/weights/[a-z]*.py", "triform/weights/tables/*.py"),
        120,
        0.8,
        ("tests/weights", "tests/files", "tests/fuzz"),
    ),
    "serve": Group(
        (*(f"triform/serve/http/{name}.py" for name in HTTP), "triform/serve/worker/bounded_queues.py"),
        80,
        0.8,
        ("tests/serve",),
    ),
}
SEED = 7
QUICK_SECONDS = 20.0  # of tests that are tried first; a mutant that survives them meets the others
MOST_SECONDS = 60.0
CONTROLS, CONTROL_TESTS = 4, 5  # unchanged files per group, and tests of each


class Found(NamedTuple):
    mutant: Mutant
    noticed: bool
    how: str


def draw(group: Group, *, count: int) -> list[Mutant]:
    """The same ones each time, spread evenly over all places of all files."""
    files = sorted(path for pattern in group.files for path in ROOT.glob(pattern))
    every = [mutant for path in files for mutant in make_mutants(path, root=ROOT)]
    return sorted(random.Random(SEED).sample(every, min(count, len(every))))


def read_map(name: str, group: Group) -> dict[str, Any]:
    """Tests by line, made anew where there is none yet (delete `.mutation` after tests or code have changed)."""
    place = HOME / f"{name}.json"
    if not place.exists():
        HOME.mkdir(exist_ok=True)
        command = [sys.executable, str(ROOT / "tests/mutation/tests_by_line.py"), str(place), *group.tests]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            place.unlink(missing_ok=True)
            raise SystemExit(f"the tests of {name} do not pass as they are")
    found: dict[str, Any] = json.loads(place.read_text())
    return found


def choose_tests(mutant: Mutant, known: dict[str, Any]) -> list[str]:
    """Those that touch the line, the quickest first; a line that runs at import is touched by all of its file's."""
    lines = known["lines"].get(mutant.path, {})
    touching = lines.get(str(mutant.line), [])
    if not touching:
        touching = sorted({test for tests in lines.values() for test in tests})
    return sorted(touching, key=lambda test: known["seconds"].get(test, 0.0))


def try_mutant(mutant: Mutant, known: dict[str, Any]) -> Found:
    tests = choose_tests(mutant, known)
    seconds = [known["seconds"].get(test, 1.0) for test in tests]
    first = [test for at, test in enumerate(tests) if sum(seconds[: at + 1]) <= QUICK_SECONDS] or tests[:1]
    rest = [test for at, test in enumerate(tests) if test not in set(first) and sum(seconds[: at + 1]) <= MOST_SECONDS]
    for some in (first, rest):
        if some and (how := run_tests(mutant, some, limit=30 + 4 * sum(known["seconds"].get(t, 1.0) for t in some))):
            return Found(mutant, True, how)
    return Found(mutant, False, f"{len(tests)} tests touch it" if tests else "no test touches it")


def run_tests(mutant: Mutant, tests: list[str], *, limit: float) -> str:
    """What noticed the mutant, or nothing."""
    child = os.fork()
    if child == 0:
        os.setsid()
        run_in_child(mutant, tests)
    end = time.monotonic() + limit
    handle = os.pidfd_open(child)
    try:
        ready, _, _ = select.select([handle], [], [], max(0.0, end - time.monotonic()))
    finally:
        os.close(handle)
    if not ready:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "time"
    _, status = os.waitpid(child, 0)
    return "" if os.waitstatus_to_exitcode(status) == 0 else "tests"


def run_in_child(mutant: Mutant, tests: list[str]) -> None:
    import pytest

    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    replace_source(ROOT / mutant.path, mutant.source)
    os.chdir(ROOT)
    code = pytest.main(["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", "no:randomly", *tests])
    os._exit(int(code))


def replace_source(path: Path, source: str) -> None:
    """Whoever imports this file gets another source; compiled files beside it are neither read nor written."""
    loader: Any = importlib.machinery.SourceFileLoader
    get_data, path_stats = loader.get_data, loader.path_stats
    sys.dont_write_bytecode = True
    loader.get_data = lambda self, at: source.encode() if str(at) == str(path) else get_data(self, at)
    loader.path_stats = lambda self, at: {"mtime": -1, "size": -1} if str(at) == str(path) else path_stats(self, at)


def warm_up() -> None:
    """Everything slow that tests import, but nothing of the package."""
    sys.path.insert(0, str(ROOT))
    os.environ["OMP_NUM_THREADS"] = "1"
    import pytest  # noqa: F401
    import torch  # noqa: F401


def check_control(drawn: list[Mutant], known: dict[str, Any]) -> None:
    """A file with its own source, unchanged, must pass its tests, or every mutant would count as noticed."""
    for mutant in drawn[:: max(1, len(drawn) // CONTROLS)]:
        unchanged = mutant._replace(source=(ROOT / mutant.path).read_text(encoding="utf-8"))
        tests = choose_tests(mutant, known)[:CONTROL_TESTS]
        if tests and (how := run_tests(unchanged, tests, limit=600.0)):
            raise SystemExit(f"{mutant.path} without a mistake fails ({how}): {', '.join(tests)}")


def run_group(name: str, *, count: int | None, jobs: int) -> list[Found]:
    """`jobs` processes, each with every so-manieth mutant."""
    group = GROUPS[name]
    known, drawn = read_map(name, group), draw(group, count=count or group.count)
    check_control(drawn, known)
    pipes = []
    for job in range(jobs):
        reads, writes = os.pipe()
        if os.fork() == 0:
            os.close(reads)
            with os.fdopen(writes, "w") as out:
                for mutant in drawn[job::jobs]:
                    found = try_mutant(mutant, known)
                    out.write(json.dumps([found.mutant.path, found.mutant.number, found.noticed, found.how]) + "\n")
                    out.flush()
            os._exit(0)
        os.close(writes)
        pipes.append(os.fdopen(reads))
    by_place = {(mutant.path, mutant.number): mutant for mutant in drawn}
    results = []
    for pipe in pipes:
        for line in pipe:
            path, number, noticed, how = json.loads(line)
            results.append(Found(by_place[path, number], noticed, how))
            print(f"\r{name}: {len(results)} of {len(drawn)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return sorted(results)


def report(name: str, results: list[Found]) -> bool:
    """The group's line and its survivors; whether enough were noticed."""
    hows = Counter(found.how for found in results if found.noticed)
    share = sum(found.noticed for found in results) / max(1, len(results))
    least = GROUPS[name].least
    print(f"{name}: {len(results)} mutants, {share:.1%} noticed (aim {least:.0%}), {hows['time']} of them by time")
    for found in results:
        if not found.noticed:
            print(f"  {found.mutant.path}:{found.mutant.line}  {found.mutant.what}   ({found.how})")
    return share >= least


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(GROUPS)}; default: all")
    parser.add_argument("--count", type=int, help="mutants per group")
    parser.add_argument("--jobs", type=int, default=2, help="at once")
    asked = parser.parse_args()
    if unknown := [name for name in asked.groups if name not in GROUPS]:
        parser.error(f"no group is named {unknown[0]!r}; there are {', '.join(GROUPS)}")
    warm_up()
    enough = [report(name, run_group(name, count=asked.count, jobs=asked.jobs)) for name in asked.groups or GROUPS]
    return 0 if all(enough) else 1


if __name__ == "__main__":
    sys.exit(main())
