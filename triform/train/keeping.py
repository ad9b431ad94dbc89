"""What is kept of a run: on disk (checkpoints, metrics.jsonl, run.toml) or, where no folder is given, the best weights.

Refuses to know how a run is computed.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec
from torch import Tensor

from triform.train.checkpoint import CheckpointError, Found, Shelf
from triform.train.config import Config
from triform.train.events import AnyEvent, Record
from triform.train.guards import GuardState

Groups: TypeAlias = Mapping[str, Mapping[str, Tensor]]

CHECKPOINTS = "checkpoints"
METRICS = "metrics.jsonl"
CONFIG = "run.toml"


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """All of a run that is not a tensor."""

    config: Config
    data: str  # fingerprint of the examples
    step: int = 0
    position: tuple[int, int] = (0, 0)
    elapsed: float = 0.0
    best: float | None = None
    best_step: int | None = None
    since_best: int = 0  # evaluations
    guard: GuardState = GuardState()


def changed(state: RunState, **changes: object) -> RunState:
    return msgspec.structs.replace(state, **changes)


class Keeper(Protocol):
    def begin(self, config: Config) -> None:
        """For a new run: nothing of another may be there."""

    def newest(self) -> Found[RunState] | None:
        """Where to go on; None: killed before the first checkpoint."""

    def save(self, state: RunState, groups: Groups) -> str:
        """Where it is kept now."""

    def best(self, state: RunState) -> Groups:
        """The tensors of the best step."""

    def tell(self, event: AnyEvent) -> None: ...


class InMemory:
    """The best weights, and nothing else."""

    def __init__(self) -> None:
        self.groups: Groups = {}

    def begin(self, config: Config) -> None:
        pass

    def newest(self) -> Found[RunState] | None:
        raise CheckpointError("a run that keeps nothing on disk cannot be resumed; give a folder")

    def save(self, state: RunState, groups: Groups) -> str:
        if state.best_step == state.step:
            kept = ("weights", "average")
            self.groups = {name: {key: t.detach().clone() for key, t in groups[name].items()} for name in kept}
        return ""

    def best(self, state: RunState) -> Groups:
        return self.groups

    def tell(self, event: AnyEvent) -> None:
        pass


class OnDisk:
    """Everything, below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shelf = Shelf(folder / CHECKPOINTS, kind=RunState)
        self.record: Record | None = None

    def begin(self, config: Config) -> None:
        if steps := self.shelf.steps():
            there = self.shelf.place(steps[0]).name
            raise CheckpointError(f"{self.shelf.folder} already holds {there}; resume it, or give another folder")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / CONFIG).write_text(config.to_toml(), encoding="utf-8")
        except OSError as error:
            raise CheckpointError(f"cannot write {self.folder}: {error.strerror or error}") from error
        self.record = Record(self.folder / METRICS, keep=0)

    def newest(self) -> Found[RunState] | None:
        found = self.shelf.newest()
        if found is None and not (self.folder / CONFIG).exists():
            raise CheckpointError(f"{self.folder} holds no run to resume; start it without resume")
        self.record = Record(self.folder / METRICS, keep=found.step if found else 0)
        return found

    def save(self, state: RunState, groups: Groups) -> str:
        place = self.shelf.save(state.step, state=state, groups=groups)
        self.shelf.prune(keep=state.config.keep, best=state.best_step)
        return os.path.relpath(place, self.folder)

    def best(self, state: RunState) -> Groups:
        if state.best_step is None:
            return {}
        return self.shelf.load(state.best_step).groups

    def tell(self, event: AnyEvent) -> None:
        if self.record is not None:
            self.record(event)
