"""Starts the processes of a run on this machine, hands signals on to them, and ends all of them when one is lost.

The process that starts them computes nothing and needs no torch.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from triform.cluster.failures import explain, read_failures
from triform.cluster.rank import FOLDER, MAX_PROCESSES, PARENT
from triform.errors import TriformError
from triform.threads import count_cores

POLL_SECONDS = 0.05
GRACE_SECONDS = 15.0  # for the others to end by themselves, after one has ended
ENDED_BY_USER = (130, 143)


def check_processes(count: int) -> None:
    if not 1 <= count <= MAX_PROCESSES:
        raise TriformError(f"--processes {count} is out of range; use 1 to {MAX_PROCESSES}")


def run_processes(arguments: Sequence[str], *, count: int) -> int:
    """Runs `triform ARGUMENTS` in `count` processes; the exit code, or an error that names the rank and the cause."""
    check_processes(count)
    folder = Path(tempfile.mkdtemp(prefix="triform-ranks-"))
    children: list[subprocess.Popen[bytes]] = []
    try:
        with passing_signals(children) as received:
            for rank in range(count):  # one by one, so that a signal meanwhile reaches those that run
                children += [start(arguments, environment_of(rank, count=count, folder=folder), leads=rank == 0)]
            killed = wait(children, folder)
        codes = [child.returncode for child in children]
        if not any(codes):
            return 0
        if received and codes[0] in ENDED_BY_USER:
            return codes[0]
        raise TriformError(explain(codes, read_failures(folder), killed=killed))
    finally:
        for child in children:
            end(child)
        shutil.rmtree(folder, ignore_errors=True)


def environment_of(rank: int, *, count: int, folder: Path) -> dict[str, str]:
    """Each process computes with its share of the cores; nothing listens but on the loopback interface."""
    ours = {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": count}
    share = max(1, count_cores() // count)  # `--threads` is among the arguments and sets more or fewer
    threads = min(share, int(os.environ.get("OMP_NUM_THREADS") or share))
    loopback = {} if sys.platform == "win32" else {"GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0"}
    return {
        **os.environ,
        **loopback,
        **{name: str(value) for name, value in ours.items()},
        FOLDER: str(folder),
        PARENT: str(os.getpid()),
        "OMP_NUM_THREADS": str(threads),
    }


def start(arguments: Sequence[str], environment: Mapping[str, str], *, leads: bool) -> "subprocess.Popen[bytes]":
    """In a session of its own: Ctrl-C reaches it once, through us. Only the first process speaks."""
    return subprocess.Popen(
        [sys.executable, "-m", "triform", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=None if leads else subprocess.DEVNULL,
        start_new_session=True,
    )


def wait(children: Sequence["subprocess.Popen[bytes]"], folder: Path) -> list[int]:
    """Until all have ended; after a failure, those that do not end by themselves are killed. The ranks killed."""
    deadline = None
    while running := [rank for rank, child in enumerate(children) if child.poll() is None]:
        if deadline is None and any(child.returncode for child in children):
            deadline = time.monotonic() + GRACE_SECONDS
        stuck = len(running) == 1 and is_lost(running[0], folder)
        if deadline is not None and (stuck or time.monotonic() > deadline):
            for rank in running:
                end(children[rank])
            return running
        time.sleep(POLL_SECONDS)
    return []


def is_lost(rank: int, folder: Path) -> bool:
    """Whether another process has reported this one as lost: it may be stopped."""
    return any(failure.by == rank != reporter for reporter, failure in read_failures(folder).items())


def end(child: "subprocess.Popen[bytes]") -> None:
    if child.poll() is None:
        child.kill()  # also a stopped process
        child.wait()


@contextmanager
def passing_signals(children: Sequence["subprocess.Popen[bytes]"]) -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM are handed on to every process; the signals received."""
    received: list[int] = []

    def hand_on(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for child in children:
            with suppress(ProcessLookupError):
                child.send_signal(number)

    before = {number: signal.signal(number, hand_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
