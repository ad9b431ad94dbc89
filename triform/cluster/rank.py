"""Which of a run's processes this one is: the environment says it, as `--processes N` or torchrun set it.

Needs no torch.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from triform.errors import TriformError

FOLDER = "TRIFORM_RANKS"  # the private folder in which processes of one machine find each other
PARENT = "TRIFORM_PARENT"  # the process that started them and that they end with
TORCHRUN = "TORCHELASTIC_RUN_ID"
RESTARTS = "TORCHELASTIC_RESTART_COUNT"  # how often torchrun has started this process again, after one was lost
MAX_PROCESSES = 1024


class Rank(NamedTuple):
    """`number` of `size` processes. `folder`: they were started by `--processes` on this machine; None: by torchrun."""

    number: int
    size: int
    local: int  # its number on this machine
    local_size: int
    folder: Path | None = None
    parent: int = 0  # the id of the process that started it; 0: not known

    @property
    def leads(self) -> bool:
        """The first process writes files and shows progress."""
        return self.number == 0


ALONE = Rank(0, 1, 0, 1)


def find_rank(environment: Mapping[str, str] = os.environ) -> Rank:
    """This process's rank; `ALONE` if nothing says that there are others."""
    if FOLDER not in environment and TORCHRUN not in environment:
        return ALONE
    number, size = read_number(environment, "RANK"), read_number(environment, "WORLD_SIZE", least=1)
    local, local_size = read_number(environment, "LOCAL_RANK"), read_number(environment, "LOCAL_WORLD_SIZE", least=1)
    if number >= size:
        raise TriformError(f"RANK={number} of WORLD_SIZE={size} processes; ranks are 0 to {size - 1}")
    if size == 1:
        return ALONE
    folder = Path(environment[FOLDER]) if FOLDER in environment else None
    return Rank(number, size, local, local_size, folder, int(environment.get(PARENT, 0)))


def was_restarted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun has started the processes again (`--max-restarts`)."""
    return TORCHRUN in environment and environment.get(RESTARTS, "0") != "0"


def read_number(environment: Mapping[str, str], name: str, *, least: int = 0) -> int:
    """A number of a process or of processes."""
    text = environment.get(name, "")
    if not text.isdecimal() or not least <= int(text) <= MAX_PROCESSES:
        raise TriformError(
            f"{name}={text!r} in the environment is no number of processes; start with `--processes N`, or torchrun"
        )
    return int(text)
