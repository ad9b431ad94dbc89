"""Checkpoints: a run at one step, as safetensors and JSON in a folder that is written atomically.

A save writes a draft folder, the manifest (SHA-256 of every file) last, syncs it to disk and renames it. Whatever
happens meanwhile, earlier checkpoints stay valid. Knows nothing of what a run computes.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
from torch import Tensor

from triform.errors import TriformError
from triform.files import manifest
from triform.files.atomic_file import make_folder
from triform.files.errors import FileError
from triform.files.format_version import check_format
from triform.files.replace_folder import delete_folder, draft_folder
from triform.files.safe_folder import SafeFolder
from triform.files.safetensors_data import TensorFile, write_tensors
from triform.files.safetensors_header import read_header
from triform.files.strict_json import encode_json

STEP_PREFIX = "step-"
STATE_FILE = "state.json"
S = TypeVar("S", bound=msgspec.Struct)
Tensors: TypeAlias = Mapping[str, Tensor]


class CheckpointError(TriformError):
    """A checkpoint cannot be written, or none can be read."""


class Checkpoint(NamedTuple, Generic[S]):
    """A checkpoint that was read, and what was wrong with newer ones."""

    step: int
    state: S
    groups: dict[str, Tensors]
    damaged: tuple[str, ...] = ()


class CheckpointFolder(Generic[S]):
    """The checkpoints of one run, `step-00000500` and so on, in one folder."""

    def __init__(self, folder: str | Path, *, kind: type[S]) -> None:
        self.folder = Path(folder)
        self.kind = kind

    def list_steps(self) -> list[int]:
        """The steps of all checkpoints, the newest first."""
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        numbers = [name.removeprefix(STEP_PREFIX) for name in names if name.startswith(STEP_PREFIX)]
        return sorted((int(number) for number in numbers if number.isdecimal()), reverse=True)

    def step_folder(self, step: int) -> Path:
        return self.folder / f"{STEP_PREFIX}{step:08}"

    def save(self, step: int, *, state: S, groups: Mapping[str, Tensors]) -> Path:
        place = self.step_folder(step)
        try:
            if place.exists():
                delete_folder(place)  # damaged: the run reached this step again from an earlier one
            make_folder(self.folder)
            with draft_folder(place) as draft:
                for name, group in groups.items():
                    write_tensors(draft / f"{name}.safetensors", group)
                (draft / STATE_FILE).write_bytes(encode_json(state))
                manifest.write(draft)
        except (FileError, OSError) as error:
            before = next((f"; resume from {self.step_folder(old).name}" for old in self.list_steps()), "")
            reason = getattr(error, "strerror", None) or error
            raise CheckpointError(f"cannot write {place}: {reason}; nothing was left there{before}") from error
        return place

    def find_newest(self, check: Callable[[Checkpoint[S]], None] = lambda checkpoint: None) -> Checkpoint[S] | None:
        """The newest undamaged checkpoint that `check` (which raises WeightsError otherwise); None if there is none."""
        damaged: list[str] = []
        for step in self.list_steps():
            try:
                checkpoint = self.load(step)
                check(checkpoint)
                return checkpoint._replace(damaged=tuple(damaged))
            except FileError as error:
                damaged.append(f"{self.step_folder(step).name}: {error}")
        if damaged:
            raise CheckpointError(f"no checkpoint in {self.folder} can be used; {damaged[0]}")
        return None

    def load(self, step: int) -> Checkpoint[S]:
        box = SafeFolder(self.step_folder(step))
        written = manifest.read(box)
        if written is None or STATE_FILE not in written.files:
            raise FileError(f"{box.root} has no manifest of a complete checkpoint")
        seen = manifest.verify(box)
        check_format(box.read(STATE_FILE), what=box.root / STATE_FILE, otherwise="start a new run in another folder")
        state = box.parse(STATE_FILE, self.kind)
        names = [name for name in written.files if name != STATE_FILE]
        groups: dict[str, Tensors] = {
            name.removesuffix(".safetensors"): LazyTensors(box, name, seen=seen) for name in names
        }
        manifest.check_unchanged(box, seen)
        return Checkpoint(step, state, groups)

    def prune(self, *, last: int, keep: int, best: int | None) -> None:
        """Keeps the newest `keep` up to step `last`, and the best. Deletes later ones, which are damaged, and drafts of
        saves that were killed."""
        with suppress(OSError):  # what cannot be deleted stays
            steps = self.list_steps()
            stay = {best, *[step for step in steps if step <= last][:keep]}
            for step in steps:
                if step not in stay:
                    delete_folder(self.step_folder(step))
            for name in os.listdir(self.folder):
                if name.startswith(f".{STEP_PREFIX}"):
                    shutil.rmtree(self.folder / name, ignore_errors=True)


class LazyTensors(Mapping[str, Tensor]):
    """The tensors of a verified file, each read when it is accessed."""

    def __init__(self, box: SafeFolder, name: str, *, seen: manifest.Identities) -> None:
        self._places, self._file = read_header(box, name), TensorFile(box, name)
        if self._file.identity != seen[name]:
            raise FileError(f"{name} in {box.root} was changed by another program while it was being read")

    def __getitem__(self, key: str) -> Tensor:
        return self._file.read_tensor(self._places[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
