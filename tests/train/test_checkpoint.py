"""A checkpoint is whole or not there, whatever happens to its writing; damage is found, and the one before it used."""

import builtins
import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch

from triform.train.checkpoint import CheckpointError, CheckpointFolder


class State(msgspec.Struct, frozen=True):
    step: int
    note: str = "as it was"


def groups(step: int) -> dict[str, dict[str, torch.Tensor]]:
    weights = {"a": torch.full((3, 4), float(step)), "b": torch.arange(5, dtype=torch.float64) * step}
    return {"weights": weights, "optimizer": {"a:step": torch.tensor(float(step))}, "average": {}}


def save(shelf: CheckpointFolder[State], step: int) -> None:
    shelf.save(step, state=State(step), groups=groups(step))
    shelf.prune(last=step, keep=2, best=None)


def shelf_in(folder: Path) -> CheckpointFolder[State]:
    return CheckpointFolder(folder, kind=State)


def assert_whole(shelf: CheckpointFolder[State], *steps: int) -> int:
    found = shelf.find_newest()
    assert found is not None
    assert found.step in steps
    assert found.state == State(found.step)
    expected = groups(found.step)
    assert found.groups.keys() == expected.keys()
    for name, group in expected.items():
        assert found.groups[name].keys() == group.keys()
        for key, tensor in group.items():
            assert torch.equal(found.groups[name][key], tensor)
            assert found.groups[name][key].dtype == tensor.dtype
    return found.step


def test_there_and_back_and_pruned(tmp_path: Path) -> None:
    shelf = shelf_in(tmp_path)
    assert shelf.find_newest() is None
    for step in range(1, 6):
        shelf.save(step, state=State(step), groups=groups(step))
        shelf.prune(last=step, keep=2, best=1)
        assert_whole(shelf, step)
    assert shelf.list_steps() == [5, 4, 1]
    assert sorted(os.listdir(tmp_path)) == ["step-00000001", "step-00000004", "step-00000005"]


def test_damaged_ones_behind_the_last_are_not_counted(tmp_path: Path) -> None:
    """The run came here again from an earlier one: what was just written stays."""
    shelf = shelf_in(tmp_path)
    for step in (1, 2, 5, 9):
        shelf.save(step, state=State(step), groups=groups(step))
    for step in (5, 9):
        (shelf.step_folder(step) / "state.json").write_text("{}")
    shelf.save(3, state=State(3), groups=groups(3))
    shelf.prune(last=3, keep=1, best=1)
    assert shelf.list_steps() == [3, 1]
    assert_whole(shelf, 3)


# --- a file layer that dies -----------------------------------------------------------------------------------------


class Deadly:
    """Counts every mkdir, open for writing, write, fsync, rename and unlink of a process, and ends it before one.

    What has not been brought to disk by then is lost, as when the power goes: files that were not fsynced are cut.
    """

    def __init__(self, patch: pytest.MonkeyPatch, act: Callable[[], None], at: int) -> None:
        self.count, self.at, self.act = 0, at, act
        self.unsynced: set[Path] = set()
        for name in ("mkdir", "fsync", "rename", "unlink", "rmdir"):
            patch.setattr(os, name, self.watched(name, getattr(os, name)))
        patch.setattr("io.open", self.opened(builtins.open))  # what Path.open calls

    def tick(self) -> None:
        self.count += 1
        if self.count == self.at:
            for path in self.unsynced:
                if path.exists():
                    os.truncate(path, path.stat().st_size // 2)
            self.act()

    def watched(self, name: str, real: Callable) -> Callable:
        def call(*args, **keywords):
            self.tick()
            made = real(*args, **keywords)
            if name == "fsync":
                self.unsynced.discard(Path(os.readlink(f"/proc/self/fd/{args[0]}")))
            if name == "rename":
                moved = {path for path in self.unsynced if Path(args[0]) in path.parents}
                self.unsynced = self.unsynced - moved | {Path(args[1]) / path.relative_to(args[0]) for path in moved}
            return made

        return call

    def opened(self, real: Callable) -> Callable:
        def call(path, mode="r", *args, **keywords):
            writes = "w" in mode and "step-" in str(path)
            if writes:
                self.tick()
            file = real(path, mode, *args, **keywords)
            if writes:
                self.unsynced.add(Path(os.path.abspath(path)))
                write = file.write

                class Watched:
                    def __enter__(watched):
                        return watched

                    def __exit__(watched, *_):
                        file.close()

                    def write(watched, data):
                        self.tick()
                        file.flush()
                        return write(data)

                return Watched()
            return file

        return call


def operations(folder: Path) -> int:
    """How many a save and its pruning take, with two checkpoints there."""
    with pytest.MonkeyPatch.context() as patch:
        deadly = Deadly(patch, lambda: None, at=0)
        save(shelf_in(folder), 3)
    return deadly.count


@pytest.fixture
def two(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints"
    for step in (1, 2):
        save(shelf_in(folder), step)
    return folder


def dies(folder: Path, at: int) -> None:
    """A child saves step 3 and dies before its operation number `at`, without a chance to tidy up."""
    child = os.fork()
    if not child:
        try:
            Deadly(pytest.MonkeyPatch(), lambda: os._exit(7), at=at)
            save(shelf_in(folder), 3)
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_dying_at_every_write_fsync_and_rename(two: Path, tmp_path: Path) -> None:
    """Always resumes without help, and the next save tidies up."""
    count = operations(Path(shutil.copytree(two, tmp_path / "counted")))
    assert count > 25
    resumed = set()
    for at in range(1, count + 1):
        folder = Path(shutil.copytree(two, tmp_path / f"dies-{at}"))
        dies(folder, at)
        resumed.add(assert_whole(shelf_in(folder), 2, 3))
        save(shelf_in(folder), 4)
        assert_whole(shelf_in(folder), 4)
        assert all(name.startswith("step-") for name in os.listdir(folder)), "no leftovers"
    assert resumed == {2, 3}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_full_or_broken_disk_leaves_the_old_ones(number: int, two: Path, tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError(number, os.strerror(number))

    count = operations(Path(shutil.copytree(two, tmp_path / "counted")))
    said: list[str] = []
    for at in range(1, count + 1, 2):
        folder = Path(shutil.copytree(two, tmp_path / f"fails-{at}"))
        with pytest.MonkeyPatch.context() as patch:
            Deadly(patch, fail, at=at)
            try:
                save(shelf_in(folder), 3)
            except CheckpointError as error:
                said.append(str(error))
        assert_whole(shelf_in(folder), 2, 3)
    assert len(said) > 5
    assert all(os.strerror(number) in line and "resume from step-" in line and "\n" not in line for line in said)


# --- damage ---------------------------------------------------------------------------------------------------------


def flip(folder: Path, chance: random.Random) -> None:
    files = sorted(path for path in folder.iterdir() if path.stat().st_size)
    path = chance.choice(files)
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def flips(folder: Path, count: int) -> None:
    chance, shelf = random.Random(3), shelf_in(folder)
    whole = {path: path.read_bytes() for path in shelf.step_folder(2).iterdir()}
    for _ in range(count):
        flip(shelf.step_folder(2), chance)
        found = shelf.find_newest()
        assert found is not None
        assert found.step == 1, "the one before it"
        assert len(found.damaged) == 1
        assert found.damaged[0].startswith("step-00000002: ")
        for path, data in whole.items():
            path.write_bytes(data)
    assert_whole(shelf, 2)


def test_bit_flips_are_found(two: Path) -> None:
    flips(two, 100)


@pytest.mark.slow
def test_1000_bit_flips_are_found(two: Path) -> None:
    flips(two, 1000)


def test_files_missing_cut_or_swapped_are_found(two: Path) -> None:
    shelf = shelf_in(two)
    for path in sorted(shelf.step_folder(2).iterdir()):
        data = path.read_bytes()
        path.unlink()
        assert_whole(shelf, 1)
        path.write_bytes(data[: len(data) // 2])
        assert_whole(shelf, 1)
        path.write_bytes((shelf.step_folder(1) / path.name).read_bytes())
        if data != path.read_bytes() and path.name != "manifest.json":
            assert_whole(shelf, 1)
        path.write_bytes(data)
    assert_whole(shelf, 2)


def test_when_none_is_whole_it_is_said(two: Path) -> None:
    for step in (1, 2):
        (shelf_in(two).step_folder(step) / "state.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be used; step-00000002: "):
        shelf_in(two).find_newest()


def test_a_damaged_one_is_replaced_when_the_run_comes_there_again(two: Path) -> None:
    shelf = shelf_in(two)
    (shelf.step_folder(2) / "manifest.json").write_text("{")
    assert_whole(shelf, 1)
    save(shelf, 2)
    assert_whole(shelf, 2)
