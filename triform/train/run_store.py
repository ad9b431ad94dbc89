"""Where a run is stored: on disk (checkpoints, metrics.jsonl, run.toml, begun.json), or its best weights in memory."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from torch import Tensor

from triform.errors import TriformError
from triform.files.atomic_file import write_file
from triform.files.format_version import CURRENT_FORMAT, FORMAT_KEY, NewerFormat, check_format
from triform.files.locks import lock_inside
from triform.files.strict_json import encode_json
from triform.train import run_config
from triform.train.checkpoint import Checkpoint, CheckpointError, CheckpointFolder
from triform.train.loss_guard import GuardState
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, MetricsFile

Groups: TypeAlias = Mapping[str, Mapping[str, Tensor]]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Fits: TypeAlias = "Callable[[Checkpoint[RunState]], None]"

CHECKPOINTS_FOLDER = "checkpoints"
METRICS_FILE = "metrics.jsonl"
CONFIG_FILE = "run.toml"
FIRST_STATE_FILE = "begun.json"


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of a run that is not a tensor."""

    format_version: int = CURRENT_FORMAT
    config: Config
    data: str  # fingerprint of the examples
    valid: str = ""  # fingerprint of the validation rows; empty: not known
    step: Count = 0
    position: tuple[Count, Count] = (0, 0)
    elapsed: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    best: float | None = None
    best_step: Count | None = None
    since_best: Count = 0  # evaluations
    guard: GuardState = GuardState()


def find_differences(then: RunState, now: RunState) -> list[str]:
    """What keeps a run from being resumed. Before the first step this includes the base model."""
    free = run_config.FREE_KEYS if then.step else run_config.FREE_KEYS - {"base"}
    other = run_config.find_differences(then.config, now.config, free=free)
    for name, old, new in (("training", then.data, now.data), ("validation", then.valid, now.valid)):
        if old and new and old != new:
            other.append(f"the {name} data was {old[:12]}, is {new[:12]}")
    return other


class RunStore:
    """Keeps the best weights in memory and nothing else."""

    def __init__(self) -> None:
        self.groups: Groups = {}

    def begin(self, state: RunState) -> None:
        """Starts a new run; no other run may be stored there."""

    def find_newest(self, fits: Fits) -> Checkpoint[RunState] | None:
        """The newest undamaged checkpoint that fits; None: the run was killed before the first."""
        raise CheckpointError("a run without a folder cannot be resumed; give a folder")

    def read_first_state(self) -> RunState | None:
        """The state when the run began; None: it was killed before that was stored."""
        return None

    def resume(self, state: RunState) -> None:
        """Continues from this state; what was stored after it is deleted."""

    def save(self, state: RunState, groups: Groups) -> str:
        """Stores a checkpoint; its path, if it has one."""
        if state.best_step == state.step:
            names = ("weights", "average")
            self.groups = {name: {key: t.detach().clone() for key, t in groups[name].items()} for name in names}
        return ""

    def read_best(self, state: RunState) -> Groups:
        """The tensors of the best step."""
        return self.groups

    def record(self, event: AnyEvent) -> None:
        """Appends an event to metrics.jsonl."""

    def close(self) -> None:
        """Releases the folder."""


class DiskRunStore(RunStore):
    """Stores everything in one folder, which no other process may write until `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lock = folder, lock_inside(folder)
        self.checkpoints = CheckpointFolder(folder / CHECKPOINTS_FOLDER, kind=RunState)
        self.metrics: MetricsFile | None = None

    def begin(self, state: RunState) -> None:
        if steps := self.checkpoints.list_steps():
            newest, folder = self.checkpoints.step_folder(steps[0]).name, self.checkpoints.folder
            raise CheckpointError(f"{folder} already holds {newest}; resume it, or give another folder")
        self.resume(state)

    def find_newest(self, fits: Fits) -> Checkpoint[RunState] | None:
        checkpoint = self.checkpoints.find_newest(fits)
        if checkpoint is None and not (self.folder / CONFIG_FILE).exists():
            raise CheckpointError(f"{self.folder} holds no run to resume; start it without resume")
        return checkpoint

    def read_first_state(self) -> RunState | None:
        path = self.folder / FIRST_STATE_FILE
        if not path.exists():
            return None
        try:
            data = path.read_bytes()
            check_format(data, what=path, otherwise="start a new run in another folder")
            return msgspec.json.decode(data, type=RunState)
        except NewerFormat:
            raise
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, TriformError) as error:
            raise CheckpointError(f"cannot read {path}: {error}; start a new run in another folder") from error

    def resume(self, state: RunState) -> None:
        """Writes run.toml first: a run that is killed after it can be resumed, from its start."""
        write_file(self.folder / CONFIG_FILE, f"{FORMAT_KEY} = {CURRENT_FORMAT}\n{state.config.to_toml()}".encode())
        if not state.step:
            write_file(self.folder / FIRST_STATE_FILE, encode_json(state))
        self.metrics = MetricsFile(self.folder / METRICS_FILE, keep=state.step)
        self._prune(state)

    def save(self, state: RunState, groups: Groups) -> str:
        path = self.checkpoints.save(state.step, state=state, groups=groups)
        self._prune(state)
        return os.path.relpath(path, self.folder)

    def _prune(self, state: RunState) -> None:
        self.checkpoints.prune(last=state.step, keep=state.config.keep, best=state.best_step)

    def read_best(self, state: RunState) -> Groups:
        return {} if state.best_step is None else self.checkpoints.load(state.best_step).groups

    def record(self, event: AnyEvent) -> None:
        if self.metrics is not None:
            self.metrics(event)

    def close(self) -> None:
        self.lock.release()


class FollowerRunStore(DiskRunStore):
    """The same folder, for the other processes of a run: the first one writes, they read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoints = CheckpointFolder(folder / CHECKPOINTS_FOLDER, kind=RunState)

    def begin(self, state: RunState) -> None:
        """Writes nothing."""

    def resume(self, state: RunState) -> None:
        """Writes nothing."""

    def save(self, state: RunState, groups: Groups) -> str:
        return ""

    def record(self, event: AnyEvent) -> None:
        """Writes nothing."""

    def close(self) -> None:
        """Holds no lock."""
