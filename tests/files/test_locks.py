"""One writer per folder: a second one is refused and told who writes; a killed one leaves no lock."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from lock_holder import held_by_another

from triform.cli.resumable_output import OutFile
from triform.errors import TriformError
from triform.files.locks import FolderBusy, WriterLock, find_writer_inside, lock_beside, lock_inside, lock_leftover

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.mark.parametrize("take", [lock_beside, lock_inside])
def test_a_second_process_is_refused_until_the_first_is_killed(
    take: Callable[[Path], WriterLock], tmp_path: Path
) -> None:
    target = tmp_path / "run"
    with held_by_another(lambda: take(target)) as child, pytest.raises(FolderBusy) as error:
        take(target)
    assert f"run is being written by process {child} (since 2" in str(error.value)
    assert "\n" not in str(error.value)
    with take(target):
        assert (target / ".lock").exists() or (tmp_path / ".run.lock").exists()
    assert not (target / ".lock").exists()
    assert not (tmp_path / ".run.lock").exists()


def test_one_thread_may_take_its_own_lock_again_and_another_may_not(tmp_path: Path) -> None:
    refused: list[str] = []

    def other() -> None:
        try:
            lock_beside(tmp_path / "run")
        except FolderBusy as error:
            refused.append(str(error))

    with lock_beside(tmp_path / "run"):
        with lock_beside(tmp_path / "run"):
            pass
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        with pytest.raises(FolderBusy):
            lock_leftover(tmp_path / "run")
    assert len(refused) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_made_for_a_lock_goes_with_it_unless_something_is_in_it(tmp_path: Path) -> None:
    with lock_inside(tmp_path / "deep" / "er"):
        assert (tmp_path / "deep" / "er").is_dir()
    assert list(tmp_path.iterdir()) == []
    with lock_inside(tmp_path / "deep" / "er"):
        (tmp_path / "deep" / "er" / "file").write_text("x")
    assert os.listdir(tmp_path / "deep" / "er") == ["file"]


def test_a_lock_is_never_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / ".run.lock").symlink_to(tmp_path / "mine")
    with pytest.raises(TriformError, match="cannot write"):
        lock_beside(tmp_path / "run")
    assert (tmp_path / "mine").read_text() == "precious"


def test_who_writes_is_told_to_readers(tmp_path: Path) -> None:
    assert find_writer_inside(tmp_path) == ""
    with lock_inside(tmp_path):
        assert find_writer_inside(tmp_path) == ""
    with held_by_another(lambda: lock_inside(tmp_path)) as child:
        assert find_writer_inside(tmp_path).startswith(f"process {child} ")
    assert find_writer_inside(tmp_path) == ""


def test_answers_of_two_commands_do_not_go_into_one_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    part = tmp_path / "answers.jsonl.part"
    part.write_bytes(b"half a line")  # as a live writer may have it
    with held_by_another(lambda: lock_beside(path)), pytest.raises(FolderBusy):
        OutFile(path, about={}, resume=True)
    assert part.read_bytes() == b"half a line"
