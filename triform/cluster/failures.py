"""Why a run of several processes ended: reported by each process, chosen by the one that started them.

A process that another one failed says so, but it is not the cause: the cause is the process that failed by itself.
Needs no torch.
"""

import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from triform.cluster.rank import Rank
from triform.errors import TriformError

RESUME = "continue with --resume"


class RankLost(TriformError):
    """Another process of the run ended or stopped answering."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """`by` is the process that failed: the one that reports it, or another that it has lost."""

    by: int
    why: str


def report_failure(rank: Rank, failure: Failure) -> None:
    """To the process that started this one, which prints one line for all; without it, on standard error."""
    if rank.folder is None:
        print(f"triform: rank {rank.number}: {failure.why}", file=sys.stderr, flush=True)
        return
    with suppress(OSError):  # the folder is gone with its maker
        (rank.folder / f"failure-{rank.number}.json").write_bytes(msgspec.json.encode(failure))


def read_failures(folder: Path) -> dict[int, Failure]:
    """The failures reported so far, by the rank that reports."""
    found: dict[int, Failure] = {}
    for path in folder.glob("failure-*.json"):
        with suppress(OSError, msgspec.MsgspecError):
            found[int(path.stem.removeprefix("failure-"))] = msgspec.json.decode(path.read_bytes(), type=Failure)
    return found


def explain(codes: Sequence[int], failures: Mapping[int, Failure], *, killed: Sequence[int] = ()) -> str:
    """One sentence with the cause. `codes` are the exit codes of all ranks; `killed` those that had to be ended."""
    for rank, failure in sorted(failures.items()):
        if failure.by == rank:
            return failure.why
    for rank, code in enumerate(codes):
        if code < 0 and rank not in killed:
            return f"rank {rank} was ended by {signal.Signals(-code).name}; {RESUME}"
    for _, failure in sorted(failures.items()):
        return failure.why
    rank, code = next((rank, code) for rank, code in enumerate(codes) if code)
    return f"rank {rank} ended with exit code {code}; {RESUME}"
