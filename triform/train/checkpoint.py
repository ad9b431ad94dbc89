"""Checkpoints: a run at one step, as safetensors and JSON in a folder that is whole or not there.

A save writes a draft beside its place, the manifest (SHA-256 of every file) last, brings all of it to disk and gives it
its name. Whatever happens meanwhile, the checkpoints before it stay valid. Refuses to know what a run computes.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
from torch import Tensor

from triform.errors import TriformError
from triform.files import manifest
from triform.files.errors import WeightsError
from triform.files.replace_folder import drafting, make_folder
from triform.files.safe_folder import Box, parse
from triform.files.safetensors_data import TensorFile, write_tensors
from triform.files.safetensors_header import header

PREFIX = "step-"
STATE = "state.json"
S = TypeVar("S", bound=msgspec.Struct)
Tensors: TypeAlias = Mapping[str, Tensor]


class CheckpointError(TriformError):
    """A checkpoint that could not be written, or none that can be read."""


class Found(NamedTuple, Generic[S]):
    """A checkpoint, and what was wrong with newer ones."""

    step: int
    state: S
    groups: dict[str, Tensors]
    damaged: tuple[str, ...] = ()


def accept(found: Found[Any]) -> None:
    """Whatever is whole will do."""


class Shelf(Generic[S]):
    """The checkpoints of one run, `step-00000500` and so on, in one folder."""

    def __init__(self, folder: str | Path, *, kind: type[S]) -> None:
        self.folder = Path(folder)
        self.kind = kind

    def steps(self) -> list[int]:
        """Of all that stand there, the newest first."""
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        numbers = [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]
        return sorted((int(number) for number in numbers if number.isdecimal()), reverse=True)

    def place(self, step: int) -> Path:
        return self.folder / f"{PREFIX}{step:08}"

    def save(self, step: int, *, state: S, groups: Mapping[str, Tensors]) -> Path:
        place = self.place(step)
        try:
            if place.exists():
                self._drop(place)  # a damaged one: the run came here again from an earlier one
            make_folder(self.folder)
            with drafting(place) as draft:
                for name, group in groups.items():
                    write_tensors(draft / f"{name}.safetensors", group)
                (draft / STATE).write_bytes(msgspec.json.format(msgspec.json.encode(state)))
                manifest.write(draft)
        except (WeightsError, OSError) as error:
            before = next((f"; {self.place(old).name} is whole: resume from it" for old in self.steps()), "")
            reason = getattr(error, "strerror", None) or error
            raise CheckpointError(f"cannot write {place}: {reason}; nothing was left there{before}") from error
        return place

    def newest(self, fits: Callable[[Found[S]], None] = accept) -> Found[S] | None:
        """The newest that is as it was written and `fits` (which raises WeightsError where it does not); None where
        there is none at all."""
        damaged: list[str] = []
        for step in self.steps():
            try:
                found = self.load(step)
                fits(found)
                return found._replace(damaged=tuple(damaged))
            except WeightsError as error:
                damaged.append(f"{self.place(step).name}: {error}")
        if damaged:
            raise CheckpointError(f"no checkpoint in {self.folder} can be used; {damaged[0]}")
        return None

    def load(self, step: int) -> Found[S]:
        box = Box(self.place(step))
        said = manifest.read(box)
        if said is None or STATE not in said.files:
            raise WeightsError(f"{box.root} has no manifest of a whole checkpoint")
        seen = manifest.verify(box)
        state = parse(box.read(STATE), STATE, self.kind)
        names = [name for name in said.files if name != STATE]
        groups: dict[str, Tensors] = {name.removesuffix(".safetensors"): OnFile(box, name, seen=seen) for name in names}
        manifest.check_unchanged(box, seen)
        return Found(step, state, groups)

    def prune(self, *, last: int, keep: int, best: int | None) -> None:
        """The newest `keep` up to the last and the best stay. What stands behind the last was damaged, and the run came
        here again without it; a draft is of a save that was killed."""
        with suppress(OSError):  # what cannot be deleted stays
            steps = self.steps()
            kept = {best, *[step for step in steps if step <= last][:keep]}
            for step in steps:
                if step not in kept:
                    self._drop(self.place(step))
            for name in os.listdir(self.folder):
                if name.startswith(f".{PREFIX}"):
                    shutil.rmtree(self.folder / name, ignore_errors=True)

    def _drop(self, place: Path) -> None:
        """Under another name first: a checkpoint half deleted must not look like one."""
        gone = place.with_name(f".{place.name}.gone")
        shutil.rmtree(gone, ignore_errors=True)
        os.rename(place, gone)
        shutil.rmtree(gone, ignore_errors=True)


class OnFile(Mapping[str, Tensor]):
    """The tensors of a file that has been verified, read one at a time when they are asked for."""

    def __init__(self, box: Box, name: str, *, seen: manifest.Seen) -> None:
        self._places, self._file = header(box, name), TensorFile(box, name)
        if self._file.identity != seen[name]:
            raise WeightsError(f"{name} in {box.root} was changed by another program while it was being read")

    def __getitem__(self, key: str) -> Tensor:
        return self._file.tensor(self._places[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
