"""What is kept of a run: on disk (checkpoints, metrics.jsonl, run.toml, begun.json) or, where no folder is given, the
best weights.

Refuses to know how a run is computed.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Protocol, TypeAlias

import msgspec
from torch import Tensor

from triform.errors import TriformError
from triform.files.locks import lock_inside
from triform.files.whole_files import write_whole
from triform.train import run_config
from triform.train.checkpoint import CheckpointError, Found, Shelf
from triform.train.loss_guard import GuardState
from triform.train.run_config import Config
from triform.train.run_events import AnyEvent, Record

Groups: TypeAlias = Mapping[str, Mapping[str, Tensor]]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Fits: TypeAlias = "Callable[[Found[RunState]], None]"

CHECKPOINTS = "checkpoints"
METRICS = "metrics.jsonl"
CONFIG = "run.toml"
BEGUN = "begun.json"


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """All of a run that is not a tensor."""

    config: Config
    data: str  # fingerprint of the examples
    valid: str = ""  # of what it is judged by; nothing: it is not known
    step: Count = 0
    position: tuple[Count, Count] = (0, 0)
    elapsed: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    best: float | None = None
    best_step: Count | None = None
    since_best: Count = 0  # evaluations
    guard: GuardState = GuardState()


def changed(state: RunState, **changes: object) -> RunState:
    return msgspec.structs.replace(state, **changes)


def differences(then: RunState, now: RunState) -> list[str]:
    """What keeps a run from going on as it was. Before the first step the base still decides, too."""
    free = run_config.FREE if then.step else run_config.FREE - {"base"}
    other = run_config.differences(then.config, now.config, free=free)
    for name, old, new in (("training", then.data, now.data), ("validation", then.valid, now.valid)):
        if old and new and old != new:
            other.append(f"the {name} data was {old[:12]}, is {new[:12]}")
    return other


class Keeper(Protocol):
    def begin(self, state: RunState) -> None:
        """For a new run: nothing of another may be there."""

    def newest(self, fits: Fits) -> Found[RunState] | None:
        """Where to go on: the newest checkpoint that is whole and fits; None: killed before the first checkpoint."""

    def begun(self) -> RunState | None:
        """What the run was when it began; None: killed before that was kept."""

    def go_on(self, state: RunState) -> None:
        """From here, now that it is known to be the same run: what lies behind is forgotten."""

    def save(self, state: RunState, groups: Groups) -> str:
        """Where it is kept now."""

    def best(self, state: RunState) -> Groups:
        """The tensors of the best step."""

    def tell(self, event: AnyEvent) -> None: ...

    def close(self) -> None:
        """The run has ended: others may write there."""


class InMemory:
    """The best weights, and nothing else."""

    def __init__(self) -> None:
        self.groups: Groups = {}

    def begin(self, state: RunState) -> None:
        pass

    def newest(self, fits: Fits) -> Found[RunState] | None:
        raise CheckpointError("a run that keeps nothing on disk cannot be resumed; give a folder")

    def begun(self) -> RunState | None:
        return None

    def go_on(self, state: RunState) -> None:
        pass

    def save(self, state: RunState, groups: Groups) -> str:
        if state.best_step == state.step:
            kept = ("weights", "average")
            self.groups = {name: {key: t.detach().clone() for key, t in groups[name].items()} for name in kept}
        return ""

    def best(self, state: RunState) -> Groups:
        return self.groups

    def tell(self, event: AnyEvent) -> None:
        pass

    def close(self) -> None:
        pass


class OnDisk:
    """Everything, below one folder, which no other process may write until `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lock = folder, lock_inside(folder)
        self.shelf = Shelf(folder / CHECKPOINTS, kind=RunState)
        self.record: Record | None = None

    def begin(self, state: RunState) -> None:
        if steps := self.shelf.steps():
            there = self.shelf.place(steps[0]).name
            raise CheckpointError(f"{self.shelf.folder} already holds {there}; resume it, or give another folder")
        self.go_on(state)

    def newest(self, fits: Fits) -> Found[RunState] | None:
        found = self.shelf.newest(fits)
        if found is None and not (self.folder / CONFIG).exists():
            raise CheckpointError(f"{self.folder} holds no run to resume; start it without resume")
        return found

    def begun(self) -> RunState | None:
        place = self.folder / BEGUN
        if not place.exists():
            return None
        try:
            return msgspec.json.decode(place.read_bytes(), type=RunState)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, TriformError) as error:
            raise CheckpointError(f"cannot read {place}: {error}; start a new run in another folder") from error

    def go_on(self, state: RunState) -> None:
        """run.toml first: with it alone a run that is killed here can be resumed, and then begins."""
        write_whole(self.folder / CONFIG, data=state.config.to_toml().encode())
        if not state.step:
            write_whole(self.folder / BEGUN, data=msgspec.json.format(msgspec.json.encode(state)))
        self.record = Record(self.folder / METRICS, keep=state.step)
        self.shelf.prune(last=state.step, keep=state.config.keep, best=state.best_step)

    def save(self, state: RunState, groups: Groups) -> str:
        place = self.shelf.save(state.step, state=state, groups=groups)
        self.shelf.prune(last=state.step, keep=state.config.keep, best=state.best_step)
        return os.path.relpath(place, self.folder)

    def best(self, state: RunState) -> Groups:
        if state.best_step is None:
            return {}
        return self.shelf.load(state.best_step).groups

    def tell(self, event: AnyEvent) -> None:
        if self.record is not None:
            self.record(event)

    def close(self) -> None:
        self.lock.release()
