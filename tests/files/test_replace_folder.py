"""A folder is replaced in one step, whoever kills its writer; and what a reader verified is what it uses."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lock_holder import held_by_another
from tiny_folders import GPT2, LLAMA, model, saved

from triform.errors import TriformError
from triform.files import manifest, replace_folder
from triform.files.locks import FolderBusy, lock_beside, lock_inside
from triform.files.safe_folder import SafeFolder
from triform.files.safetensors_data import TensorFile
from triform.files.safetensors_header import read_header
from triform.files.stable_read import MAX_ATTEMPTS
from triform.weights import load_tensors
from triform.weights import model_folder as folders
from triform.weights.model_folder import read, write
from triform.weights.model_store import find_model

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
CALLS = ("mkdir", "open", "fsync", "rename", "replace", "unlink", "rmdir")


class Watched:
    """Every system call of `os` that changes a folder, and the exchange; `act` is called before each."""

    def __init__(self, patch: pytest.MonkeyPatch, act: Callable[[int], None]) -> None:
        self.count, self.act = 0, act
        for name in CALLS:
            patch.setattr(os, name, self._watched(getattr(os, name)))
        patch.setattr(replace_folder, "exchange", self._watched(replace_folder.exchange))

    def _watched(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            self.count += 1
            self.act(self.count)
            return real(*args, **keywords)

        return call


def replace(target: Path) -> None:
    """A folder with one file, and a manifest, by the road that all folders take."""
    with folders.write_folder(target) as draft:
        (draft / "file").write_text("new")
        manifest.write(draft)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    target = tmp_path / "model"
    with folders.write_folder(target) as draft:
        (draft / "file").write_text("old")
        manifest.write(draft)
    return target


def without_exchange(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replace_folder, "exchange", lambda one, other: False)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("exchanges", [True, False])
def test_killed_at_every_system_call_the_folder_is_old_or_new(exchanges: bool, old: Path) -> None:
    """And the next save leaves nothing else there."""
    seen, at, code = set[str](), 0, 7
    while code == 7:
        at += 1
        child = os.fork()
        if not child:
            try:
                patch = pytest.MonkeyPatch()
                if not exchanges:
                    without_exchange(patch)
                Watched(patch, lambda count, at=at: os._exit(7) if count == at else None)
                replace(old)
                os._exit(0)
            finally:
                os._exit(9)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert exchanges is False or old.is_dir()
        box = SafeFolder(find_model(str(old)))
        manifest.verify(box)
        seen.add((box.root / "file").read_text())
        with folders.write_folder(old) as draft:
            (draft / "file").write_text("old")
            manifest.write(draft)
        assert os.listdir(old.parent) == ["model"]
    assert code == 0
    assert at > 20
    assert seen == {"old", "new"}


def test_a_reader_at_every_system_call_of_a_replacement_finds_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"
    write(target, model=model(GPT2))
    specs, busy = set(), False

    def look(count: int) -> None:
        nonlocal busy
        if not busy:  # a reader's own calls are not counted
            busy = True
            specs.add(read(target).spec)
            busy = False

    with monkeypatch.context() as patch:
        watched = Watched(patch, look)
        write(target, model=model(LLAMA))
    assert watched.count > 20
    assert specs == {GPT2, LLAMA}


def test_a_folder_left_aside_is_put_back_by_readers(old: Path) -> None:
    old.rename(old.with_name(".model.0123abcd.old"))
    old.with_name(".model.0123abcd").mkdir()
    old.with_name(".model.lock").write_text("process 1")
    assert find_model(str(old)) == old
    assert (old / "file").read_text() == "old"
    replace(old)
    assert os.listdir(old.parent) == ["model"]


def test_other_hidden_folders_are_not_taken_for_leftovers(old: Path) -> None:
    mine = [".model.partial", ".model.notes", ".model2.0123abcd", ".model.0123abcd.older"]
    for name in mine:
        old.with_name(name).mkdir()
    replace(old)
    assert sorted(os.listdir(old.parent)) == sorted([*mine, "model"])


def test_a_second_writer_is_refused_and_nothing_is_touched(old: Path) -> None:
    old.with_name(".model.0123abcd").mkdir()  # the first one's draft
    with held_by_another(lambda: lock_beside(old)), pytest.raises(FolderBusy, match="written by process"):
        replace(old)
    assert (old / "file").read_text() == "old"
    assert old.with_name(".model.0123abcd").is_dir()


def test_what_others_put_there_meanwhile_is_not_replaced(old: Path) -> None:
    def writes() -> None:
        with folders.write_folder(old) as draft:
            manifest.write(draft)
            (old / "notes.txt").write_text("mine")

    with pytest.raises(TriformError, match=r"already holds notes\.txt"):
        writes()
    assert (old / "notes.txt").read_text() == "mine"


# --- readers --------------------------------------------------------------------------------------------------------


def meanwhile(patch: pytest.MonkeyPatch, act: Callable[[], None], *, times: int) -> None:
    """`act` is done in the middle of a load, so often."""
    real, left = load_tensors.load, iter(range(times))

    def load(*args: Any, **keywords: Any) -> Any:
        if next(left, None) is not None:
            act()
        return real(*args, **keywords)

    patch.setattr(load_tensors, "load", load)


def test_replaced_while_it_is_loaded_it_is_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "m", model=model(GPT2))
    meanwhile(monkeypatch, lambda: write(tmp_path / "m", model=model(LLAMA)), times=1)
    assert read(tmp_path / "m").spec == LLAMA


def test_replaced_without_end_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "m", model=model(GPT2))
    meanwhile(monkeypatch, lambda: write(tmp_path / "m", model=model(GPT2)), times=MAX_ATTEMPTS)
    with pytest.raises(TriformError, match=f"was replaced {MAX_ATTEMPTS} times while it was read"):
        read(tmp_path / "m")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "manifest.json"])
def test_written_to_while_it_is_loaded_it_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "m", model=model(GPT2))
    os.utime(tmp_path / "m" / name, (0, 0))  # so that a write is another time, however fast this runs

    def overwrite() -> None:
        """Other bytes of the same length, in place."""
        with (tmp_path / "m" / name).open("r+b") as file:
            file.seek(-3, os.SEEK_END)
            file.write(b"\x01\x01\x01" if name.endswith("safetensors") else b"  }")

    meanwhile(monkeypatch, overwrite, times=1)
    with pytest.raises(TriformError, match=rf"{name}' was changed by another program while it was being read"):
        read(tmp_path / "m")


def test_a_folder_that_a_run_is_writing_says_so(tmp_path: Path) -> None:
    with (
        held_by_another(lambda: lock_inside(tmp_path)) as child,
        pytest.raises(TriformError, match=f"holds no config.json.*being written meanwhile by process {child}"),
    ):
        read(tmp_path)


def test_a_file_cut_while_it_is_read_is_an_error_not_a_signal(tmp_path: Path) -> None:
    box = SafeFolder(saved(tmp_path / "m"))
    file = TensorFile(box, "model.safetensors")
    place = max(read_header(box, "model.safetensors").values(), key=lambda place: place.stop)
    before = file.read_tensor(place)
    kept = before.clone()
    os.truncate(box.root / "model.safetensors", 0)
    assert torch.equal(before, kept), "what was read does not depend on the file any more"
    with pytest.raises(TriformError, match="was changed by another program"):
        file.read_tensor(place)


def test_every_changed_character_of_a_manifest_is_noticed(tmp_path: Path) -> None:
    """Also where it no longer says that it is ours."""
    write(tmp_path / "m", model=model(GPT2))
    path = tmp_path / "m" / "manifest.json"
    whole = path.read_text()
    unnoticed = []
    for at, character in enumerate(whole):
        if not character.isspace():
            path.write_text(f"{whole[:at]}{'x' if character != 'x' else 'y'}{whole[at + 1 :]}")
            try:
                manifest.verify(SafeFolder(tmp_path / "m"))
            except TriformError:
                continue
            unnoticed.append(whole[max(0, at - 10) : at + 10])
    assert unnoticed == []
