"""torchrun starts the processes: on two "machines", over a slow line, after one was lost, at a port that is in use."""

import hashlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from triform.cluster.rank import RESTARTS, TORCHRUN, was_restarted
from triform.costs.scale_plan import Connection, make_plan
from triform.weights.verify_folder import describe_folder

TEXT = "the fat ginger cat sat on the mat, and a mole dug a hole beside it. " * 200
SETTINGS = ("size=tiny", "tokenizer=characters", "batch_tokens=256", "accumulate=2", "save_every=5", "eval_every=1000")


def arguments(home: Path, out: Path, *, steps: int) -> list[str]:
    (home / "text.txt").write_text(TEXT)
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    return ["-m", "triform", "train", "complete", str(home / "text.txt"), "--out", str(out), *settings,
            "--steps", str(steps), "--threads", "1", "-q"]  # fmt: skip


def torchrun(
    home: Path, out: Path, *options: str, steps: int = 8, address: str = "127.0.0.1", within: tuple[str, ...] = ()
) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "torch.distributed.run", "--rdzv-backend", "static", "--master-addr", address]
    return subprocess.Popen(
        [*within, *command, *options, *arguments(home, out, steps=steps)],
        env=os.environ | {"TRIFORM_HOME": str(home)},
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


@pytest.fixture
def slow_line() -> "Iterator[tuple[tuple[str, ...], ...]]":
    """Two network namespaces: the commands to enter. Their line takes 50 ms and loses 1 % of the packets, where the
    kernel has netem; elsewhere it is a fast one."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("network namespaces need root, ip and tc")
    names = [f"triform-{os.getpid()}-{side}" for side in "ab"]
    ends = [f"tf{os.getpid() % 100_000}{side}" for side in "ab"]

    def call(*words: str) -> None:
        subprocess.run(words, check=True, capture_output=True)

    try:
        for name in names:
            call("ip", "netns", "add", name)
        call("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for number, (name, end) in enumerate(zip(names, ends, strict=True), start=1):
            call("ip", "link", "set", end, "netns", name)
            inside = ("ip", "netns", "exec", name)
            call(*inside, "ip", "address", "add", f"10.99.0.{number}/24", "dev", end)
            call(*inside, "ip", "link", "set", end, "up")
            call(*inside, "ip", "link", "set", "lo", "up")
            netem = ("tc", "qdisc", "add", "dev", end, "root", "netem", "delay", "50ms", "loss", "1%")
            if subprocess.run([*inside, *netem], capture_output=True, check=False).returncode:
                print("no netem in this kernel: the line is a fast one")
        yield tuple(("ip", "netns", "exec", name) for name in names)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine makes no such line: {error.stderr.decode().strip()}")
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


@pytest.mark.slow
def test_a_line_between_machines_changes_the_time_alone(slow_line: tuple[tuple[str, ...], ...], tmp_path: Path) -> None:
    """Prints the time of a step beside the plan's."""
    out = tmp_path / "out"
    options = ("--nnodes", "2", "--nproc-per-node", "1", "--master-port", "29400")
    nodes = [
        torchrun(tmp_path, out, *options, "--node-rank", str(rank), steps=20, address="10.99.0.1", within=within)
        for rank, within in enumerate(slow_line)
    ]
    for node in nodes:
        _, errors = node.communicate(timeout=300)
        assert node.returncode == 0, errors
    assert digest(out) == train_alone(tmp_path, tmp_path / "alone", steps=20)
    line = Connection(bandwidth=1e9, latency=0.05)
    planned = make_plan(describe_folder(out), model="", processes=2, connection=line).training[0].sending
    taken, alone = (median_step(folder) for folder in (out, tmp_path / "alone"))
    print(f"a step: {taken:.3f} s over the line, {alone:.3f} s alone; the plan adds {planned:.3f} s")


def median_step(out: Path) -> float:
    events = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return statistics.median(event["seconds"] for event in events if "seconds" in event and "loss" in event)


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
