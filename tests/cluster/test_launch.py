"""`triform train --processes N` as a person runs it: one line for what is wrong, signals, no process left behind."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from triform.cluster.launch import check_processes, environment_of
from triform.errors import TriformError

SETTINGS = ("size=tiny", "tokenizer=characters", "batch_tokens=256", "accumulate=2", "save_every=5", "eval_every=1000")
TEXT = "the fat ginger cat sat on the mat, and a mole dug a hole beside it. " * 200


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    (folder / "text.txt").write_text(TEXT)
    return folder


def start(
    home: Path, out: Path, *options: str, steps: int = 8, python: tuple[str, ...] = ()
) -> "subprocess.Popen[str]":
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    command = [sys.executable, *python, "-m", "triform", "train", "complete", str(home / "text.txt"), "--out", str(out)]
    return subprocess.Popen(
        [*command, *settings, "--steps", str(steps), "--threads", "1", "-q", *options],
        env=os.environ | {"TRIFORM_HOME": str(home), "PYTHONWARNINGS": "error"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: "subprocess.Popen[str]") -> tuple[int, str]:
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors.strip()


def children_of(process: int) -> list[int]:
    """By rank: they were started in this order."""
    return sorted(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))


def wait_for_steps(out: Path, process: "subprocess.Popen[str]") -> list[int]:
    """Until the run makes steps; the processes of its ranks."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if (out / "metrics.jsonl").exists() and '"stepped"' in (out / "metrics.jsonl").read_text():
            return children_of(process.pid)
        time.sleep(0.05)
    raise AssertionError(finish(process))


def have_gone(processes: list[int]) -> bool:
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{process}").exists() for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def digest(out: Path) -> str:
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def unbroken(home: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("unbroken") / "out"
    assert finish(start(home, out))[0] == 0
    return digest(out)


@pytest.fixture
def endless(home: Path, tmp_path: Path) -> "Iterator[subprocess.Popen[str]]":
    process = start(home, tmp_path / "out", "--processes", "2", "--peer-timeout", "5", steps=100_000)
    try:
        yield process
    finally:
        for rank in children_of(process.pid) if process.poll() is None else ():
            os.kill(rank, signal.SIGKILL)
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_the_model_is_the_same_file(home: Path, tmp_path: Path, unbroken: str) -> None:
    code, errors = finish(start(home, tmp_path / "out", "--processes", "2"))
    assert (code, errors) == (0, "")
    assert digest(tmp_path / "out") == unbroken


def test_a_killed_rank_ends_the_run_with_its_name(endless: "subprocess.Popen[str]", tmp_path: Path) -> None:
    ranks = wait_for_steps(tmp_path / "out", endless)
    os.kill(ranks[1], signal.SIGKILL)
    assert finish(endless) == (2, "triform: rank 1 was ended by SIGKILL; continue with --resume")
    assert have_gone(ranks)


@pytest.mark.slow
def test_a_stopped_rank_ends_the_run_with_its_name(endless: "subprocess.Popen[str]", tmp_path: Path) -> None:
    ranks = wait_for_steps(tmp_path / "out", endless)
    os.kill(ranks[0], signal.SIGSTOP)
    code, errors = finish(endless)
    assert code == 2
    assert errors.startswith("triform: rank 0 has given no sign of life for 5 s"), errors
    assert "\n" not in errors
    assert have_gone(ranks)


@pytest.mark.slow
def test_no_rank_outlives_a_killed_starter(endless: "subprocess.Popen[str]", tmp_path: Path) -> None:
    ranks = wait_for_steps(tmp_path / "out", endless)
    endless.kill()
    assert have_gone(ranks)


@pytest.mark.slow
def test_ctrl_c_saves_and_ends_all(endless: "subprocess.Popen[str]", tmp_path: Path) -> None:
    ranks = wait_for_steps(tmp_path / "out", endless)
    endless.send_signal(signal.SIGINT)
    assert finish(endless)[0] == 130
    assert have_gone(ranks)
    assert (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--processes", "0"), "triform: --processes 0 is out of range; use 1 to 1024"),
        pytest.param(
            ("--processes", "3"),
            "triform: 3 processes share out the passes of a step, and accumulate=2; use --processes 2, or "
            "--set accumulate=3 (which the run then keeps)",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_wrong_number_of_processes_is_one_line(
    options: tuple[str, ...], line: str, home: Path, tmp_path: Path
) -> None:
    assert finish(start(home, tmp_path / "out", *options)) == (2, line)
    assert not (tmp_path / "out").exists()


def test_the_cores_are_shared_out() -> None:
    environment = environment_of(1, count=1000, folder=Path("ranks"))
    assert (environment["RANK"], environment["WORLD_SIZE"], environment["OMP_NUM_THREADS"]) == ("1", "1000", "1")
    with pytest.raises(TriformError, match="out of range"):
        check_processes(1025)
