"""torchrun starts the processes: on two "machines", again after one was lost, and at a port that is in use."""

import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from triform.cluster.rank import RESTARTS, TORCHRUN, was_restarted

TEXT = "the fat ginger cat sat on the mat, and a mole dug a hole beside it. " * 200
SETTINGS = ("size=tiny", "tokenizer=characters", "batch_tokens=256", "accumulate=2", "save_every=5", "eval_every=1000")


def arguments(home: Path, out: Path, *, steps: int) -> list[str]:
    (home / "text.txt").write_text(TEXT)
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    return ["-m", "triform", "train", "complete", str(home / "text.txt"), "--out", str(out), *settings,
            "--steps", str(steps), "--threads", "1", "-q"]  # fmt: skip


def torchrun(home: Path, out: Path, *options: str, steps: int = 8) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "torch.distributed.run", "--rdzv-backend", "static", "--master-addr", "127.0.0.1"]
    return subprocess.Popen(
        [*command, *options, *arguments(home, out, steps=steps)],
        env=os.environ | {"TRIFORM_HOME": str(home), "GLOO_SOCKET_IFNAME": "lo"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def digest(out: Path) -> str:
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


def train_alone(home: Path, out: Path, *, steps: int) -> str:
    subprocess.run(
        [sys.executable, *arguments(home, out, steps=steps)], env=os.environ | {"TRIFORM_HOME": str(home)}, check=True
    )
    return digest(out)


@pytest.mark.slow
def test_two_machines_train_the_model_of_one(tmp_path: Path) -> None:
    """Here both are this one, each with its own torchrun."""
    out, port = tmp_path / "out", str(find_port())
    options = ("--nnodes", "2", "--nproc-per-node", "1", "--master-port", port)
    nodes = [torchrun(tmp_path, out, *options, "--node-rank", str(rank)) for rank in range(2)]
    for node in nodes:
        _, errors = node.communicate(timeout=300)
        assert node.returncode == 0, errors
    assert digest(out) == train_alone(tmp_path, tmp_path / "alone", steps=8)


@pytest.mark.slow
def test_max_restarts_continues_the_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--nnodes", "1", "--nproc-per-node", "2", "--max-restarts", "1", "--master-port", str(find_port()))
    run = torchrun(tmp_path, out, *options, steps=60)
    deadline = time.monotonic() + 120
    while not list(out.glob("checkpoints/*10*")) and run.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    ranks = sorted(map(int, Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()))
    os.kill(ranks[-1], signal.SIGKILL)
    _, errors = run.communicate(timeout=300)
    assert run.returncode == 0, errors
    assert digest(out) == train_alone(tmp_path, tmp_path / "alone", steps=60)


def test_a_restart_is_known_by_torchruns_count() -> None:
    assert was_restarted({TORCHRUN: "none", RESTARTS: "1"})
    assert not was_restarted({TORCHRUN: "none", RESTARTS: "0"})
    assert not was_restarted({RESTARTS: "1"})


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ours = {TORCHRUN: "none", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TRIFORM_HOME": str(tmp_path)}
        ran = subprocess.run(
            [sys.executable, *arguments(tmp_path, tmp_path / "out", steps=8)], env=os.environ | ours | place,
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    assert ran.returncode == 2, ran.stderr
    assert (
        ran.stderr.strip()
        .splitlines()[-1]
        .endswith(f"port {port} is in use on this machine; choose another --master-port")
    )
    assert not (tmp_path / "out").exists()
